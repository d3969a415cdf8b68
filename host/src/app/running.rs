//! A running host: what has been started, and how it stops.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::StartError;
use crate::admin::{self, AdminOptions, AdminParts, Stage};
use crate::env::{self, Env};
use crate::execute::Caller;
use crate::guest::{GuestHost, PackFile};
use crate::intake::{self, IntakeOptions, RouteTable};
use crate::model::ids::RuntimeId;
use crate::publish::{PublishOptions, Publisher};
use crate::secrets::{Secret, Secrets};
use crate::store::Store;
use crate::supervise::{DestinationBook, Keeper, SuperviseOptions, SuperviseParts, Supervisor};
use crate::telemetry;
use crate::timeline::{Timeline, TimelineOptions};

/// A host, from its open store on.
pub struct Running {
    env: Env,
    store: Store,
    metrics: PrometheusHandle,
    intake_addr: SocketAddr,
    admin_addr: SocketAddr,
    stage: watch::Sender<Stage>,
    upkeep: JoinHandle<()>,
    admin: Option<Service>,
    intake: Option<Service>,
    publisher: Option<Publisher>,
    /// They are followed until the guard is dropped.
    destinations: Option<(DestinationBook, DropGuard)>,
    timeline: Option<(Timeline, CancellationToken)>,
    supervisor: Option<Supervisor>,
    keeper: Keeper,
    keeping: Option<Service>,
    guest_threads: Option<GuestThreads>,
}

/// A listener's task, and how to end it.
struct Service {
    task: JoinHandle<()>,
    stop: CancellationToken,
}

impl Service {
    async fn end(self) {
        self.stop.cancel();
        // A panic has been logged; the service has ended either way.
        let _ = self.task.await;
    }
}

/// Threads that run guests: one a core and one more, so that a short call waits for none of those that compute for long
/// (`guest::long_calls_max`), on a machine with one core too.
pub(super) fn guest_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from) + 1
}

/// The runtime that guests run on. A runtime must not be dropped where it could block, so this one is let go.
struct GuestThreads(Option<Runtime>);

impl GuestThreads {
    fn start() -> std::io::Result<(Self, Handle)> {
        let runtime =
            Builder::new_multi_thread().worker_threads(guest_threads()).thread_name("guest").enable_all().build()?;
        let handle = runtime.handle().clone();
        Ok((Self(Some(runtime)), handle))
    }
}

impl Drop for GuestThreads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// The host did not stop in time. What it left unfinished is taken up again when its leases run out.
#[derive(Debug, thiserror::Error)]
#[error(
    "not stopped after {} s, while {step}: what was not finished is left to its leases and taken up again",
    timeout.as_secs()
)]
pub struct ShutdownError {
    timeout: Duration,
    step: &'static str,
}

impl Running {
    pub(super) fn begin(
        store: Store,
        metrics: PrometheusHandle,
        env: Env,
        keeper: Keeper,
        [intake_addr, admin_addr]: [SocketAddr; 2],
    ) -> Self {
        let upkeep = env::spawn("metrics upkeep", keep_up(metrics.clone()));
        Self {
            env,
            store,
            metrics,
            intake_addr,
            admin_addr,
            stage: watch::Sender::new(Stage::Starting),
            upkeep,
            admin: None,
            intake: None,
            publisher: None,
            destinations: None,
            timeline: None,
            supervisor: None,
            keeper,
            keeping: None,
            guest_threads: None,
        }
    }

    /// Where providers deliver.
    pub fn intake_addr(&self) -> SocketAddr {
        self.intake_addr
    }

    /// Where operators ask.
    pub fn admin_addr(&self) -> SocketAddr {
        self.admin_addr
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// Where operators look, with a browser.
    pub fn console_url(&self) -> String {
        admin::console_url(self.admin_addr)
    }

    pub(super) fn env(&self) -> &Env {
        &self.env
    }

    /// Where the host itself listens.
    pub(super) fn addresses(&self) -> [SocketAddr; 2] {
        [self.intake_addr, self.admin_addr]
    }

    pub(super) fn serve_admin(&mut self, listener: TcpListener, token: Option<Secret>) {
        let parts = AdminParts {
            store: self.store.clone(),
            metrics: self.metrics.clone(),
            stage: self.stage.subscribe(),
            env: self.env.clone(),
            keeper: self.keeper.clone(),
        };
        let stop = CancellationToken::new();
        let task = env::spawn("admin", admin::serve(listener, AdminOptions { token }, parts, stop.clone()));
        self.admin = Some(Service { task, stop });
    }

    pub(super) fn start_publisher(
        &mut self,
        options: PublishOptions,
        book: DestinationBook,
        secrets: Secrets,
    ) -> Result<(), StartError> {
        let destinations = book.subscribe().borrow().clone();
        let publisher = Publisher::start(options, &destinations, self.store.clone(), secrets, self.env.clone())?;
        let stop = CancellationToken::new();
        env::spawn("destinations", book.clone().follow(publisher.clone(), stop.clone()));
        self.publisher = Some(publisher);
        self.destinations = Some((book, stop.drop_guard()));
        Ok(())
    }

    pub(super) async fn start_timeline(
        &mut self,
        options: TimelineOptions,
        runtime: RuntimeId,
    ) -> Result<(), StartError> {
        let publisher = self.publisher.clone().expect("the publisher starts before the timeline");
        let (book, _) = self.destinations.as_ref().expect("destinations are known before the timeline starts");
        let destinations = book.subscribe();
        let stop = CancellationToken::new();
        let (store, env) = (self.store.clone(), self.env.clone());
        let timeline = Timeline::start(options, runtime, destinations, store, publisher, env, stop.clone()).await?;
        self.timeline = Some((timeline, stop));
        Ok(())
    }

    pub(super) async fn start_supervisor(
        &mut self,
        options: SuperviseOptions,
        packs: Vec<PackFile>,
        guests: GuestHost,
        caller: Arc<dyn Caller>,
        routes: RouteTable,
    ) -> Result<(), StartError> {
        let (threads, guest_runtime) = GuestThreads::start().map_err(StartError::Threads)?;
        self.guest_threads = Some(threads);
        let (store, env) = (self.store.clone(), self.env.clone());
        let parts = SuperviseParts { store, guests, routes, env, caller, guest_runtime };
        self.supervisor = Some(Supervisor::start(options, packs, parts).await?);
        Ok(())
    }

    pub(super) fn start_keeper(&mut self) {
        let stop = CancellationToken::new();
        let task = env::spawn("retention", self.keeper.clone().run(stop.clone()));
        self.keeping = Some(Service { task, stop });
    }

    pub(super) fn serve_intake(
        &mut self,
        listener: TcpListener,
        options: IntakeOptions,
        routes: RouteTable,
        secrets: Secrets,
    ) {
        let stop = CancellationToken::new();
        let (store, env) = (self.store.clone(), self.env.clone());
        let service = intake::serve(listener, options, store, routes, secrets, env, stop.clone());
        self.intake = Some(Service { task: env::spawn("intake", service), stop });
        if let (Some(supervisor), Some((timeline, _)), Some(publisher), Some((destinations, _))) =
            (&self.supervisor, &self.timeline, &self.publisher, &self.destinations)
        {
            let (supervisor, timeline, publisher) = (supervisor.clone(), timeline.clone(), publisher.clone());
            let destinations = destinations.clone();
            self.stage.send_replace(Stage::Serving { supervisor, timeline, publisher, destinations });
        }
    }

    /// Stops in order, within `timeout`.
    pub async fn shutdown(mut self, timeout: Duration) -> Result<(), ShutdownError> {
        let step = watch::Sender::new("beginning");
        let stopped = tokio::time::timeout(timeout, self.stop_in_order(&step)).await;
        let last_step = *step.borrow();
        match stopped {
            Ok(()) => {
                tracing::info!("stopped");
                Ok(())
            }
            Err(_) => Err(ShutdownError { timeout, step: last_step }),
        }
    }

    async fn stop_in_order(&mut self, step: &watch::Sender<&'static str>) {
        self.stage.send_replace(Stage::Stopping);
        if let Some(intake) = self.intake.take() {
            step.send_replace("answering what was admitted");
            intake.end().await;
        }
        if let Some(keeping) = self.keeping.take() {
            step.send_replace("removing what was kept long enough");
            keeping.end().await;
        }
        if let Some(supervisor) = self.supervisor.take() {
            step.send_replace("finishing executions");
            supervisor.drain().await;
        }
        if let Some((timeline, stop)) = self.timeline.take() {
            step.send_replace("settling claimed messages");
            stop.cancel();
            timeline.stopped().await;
        }
        self.destinations = None;
        if let Some(publisher) = self.publisher.take() {
            step.send_replace("recording the outcomes of messages");
            publisher.drain().await;
        }
        if let Some(admin) = self.admin.take() {
            step.send_replace("answering operators");
            admin.end().await;
        }
        step.send_replace("closing the store");
        self.store.close().await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // What has not been stopped by now is told to: nobody holds it any more.
        self.upkeep.abort();
        for service in [self.intake.take(), self.keeping.take(), self.admin.take()].into_iter().flatten() {
            service.stop.cancel();
        }
        if let Some((_, stop)) = self.timeline.take() {
            stop.cancel();
        }
    }
}

/// Drains histograms between scrapes.
async fn keep_up(metrics: PrometheusHandle) {
    loop {
        env::sleep(telemetry::UPKEEP_INTERVAL).await;
        metrics.run_upkeep();
    }
}
