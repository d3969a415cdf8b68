//! The ways to destinations as they are now. Others take their place while messages are under way: an attempt that has
//! begun ends by the one that it began by, and the next one goes by what is said now.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use super::adapter::{Adapter, FlowAdapter};
use super::claim::Route;
use super::metrics::{self, DestinationMetrics};
use crate::model::destination::{Destination, Destinations, FLOW_TERMS};
use crate::model::names::DestinationName;

/// How a destination is called.
pub(super) type MakeAdapter = Box<dyn Fn(&Destination) -> Box<dyn Adapter> + Send + Sync>;

/// Routes, by destination.
pub(super) struct Routes {
    now: RwLock<Arc<HashMap<DestinationName, Known>>>,
    /// That of every pack's flow.
    flow: Arc<Route>,
    make: MakeAdapter,
}

/// A route, and what it was made of.
struct Known {
    destination: Destination,
    route: Arc<Route>,
}

impl Routes {
    pub(super) fn new(destinations: &Destinations, make: MakeAdapter) -> Self {
        let flow = Route {
            adapter: Box::new(FlowAdapter),
            terms: FLOW_TERMS,
            metrics: DestinationMetrics::new(metrics::FLOW),
        };
        let routes = Self { now: RwLock::default(), flow: Arc::new(flow), make };
        routes.follow(destinations);
        routes
    }

    /// From here on there are routes to these destinations. Those of destinations that are as they were stay.
    pub(super) fn follow(&self, destinations: &Destinations) {
        let before = self.known();
        let route = |destination: &Destination| match before.get(&destination.name) {
            Some(known) if known.destination == *destination => Arc::clone(&known.route),
            Some(_) | None => Arc::new(Route {
                adapter: (self.make)(destination),
                terms: destination.terms(),
                metrics: DestinationMetrics::new(destination.name.as_str()),
            }),
        };
        let known = |destination: &Destination| {
            let known = Known { destination: destination.clone(), route: route(destination) };
            (destination.name.clone(), known)
        };
        let now = Arc::new(destinations.values().map(known).collect());
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = now;
    }

    /// The route to a destination, if there is one now.
    pub(super) fn to(&self, destination: &DestinationName) -> Option<Arc<Route>> {
        if destination.is_flow() {
            return Some(Arc::clone(&self.flow));
        }
        self.known().get(destination).map(|known| Arc::clone(&known.route))
    }

    /// How many destinations there are.
    pub(super) fn len(&self) -> usize {
        self.known().len()
    }

    fn known(&self) -> Arc<HashMap<DestinationName, Known>> {
        Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner))
    }
}
