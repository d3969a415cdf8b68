//! A session's checkpoints: when to make one, and what follows from its result. The work is done in a task of its own
//! (`checkpoint`), which the session starts and whose end it notices.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::Session;
use crate::env;
use crate::store::{CheckpointRow, ShardLease};
use crate::timeline::checkpoint::{CheckpointError, Checkpoints, Job, Made};
use crate::timeline::inquiry::INQUIRIES_MAX;

/// The pause after a checkpoint failed, unless they are made more often anyway.
const TRY_AGAIN: Duration = Duration::from_secs(60);

/// The way for the answer to an operator: the checkpoint, or the reason why there is none.
pub(in crate::timeline) type CheckpointReply = oneshot::Sender<Result<CheckpointRow, String>>;

/// The checkpoints that this owner makes of its shard.
pub(in crate::timeline) struct Checkpointing {
    pub checkpoints: Arc<Checkpoints>,
    /// The directory for copies of the index while they are uploaded.
    pub staging: PathBuf,
    /// The newest checkpoint that is recorded.
    pub newest: Option<CheckpointRow>,
    /// The number of this owner's next checkpoint.
    number: u64,
    /// The monotonic time before which no checkpoint is made unless an operator asks.
    due_from: Duration,
    /// Batches of the index when the last checkpoint was begun.
    copied_batches: u64,
    /// Operators' requests for the next checkpoint.
    asked: Vec<CheckpointReply>,
    under_way: Option<UnderWay>,
    /// The tasks of the shard, which are waited for even if the session panics.
    tasks: TaskTracker,
    stop: CancellationToken,
    _stopping: DropGuard,
}

/// A checkpoint that is being made, and the requests that it answers.
struct UnderWay {
    task: JoinHandle<Result<Made, CheckpointError>>,
    asked: Vec<CheckpointReply>,
}

impl Checkpointing {
    /// Begins at monotonic time `now`.
    pub(in crate::timeline) fn new(
        checkpoints: Arc<Checkpoints>,
        staging: PathBuf,
        newest: Option<CheckpointRow>,
        now: Duration,
        tasks: TaskTracker,
    ) -> Self {
        let stop = CancellationToken::new();
        Self {
            due_from: now + checkpoints.every.unwrap_or_default(),
            checkpoints,
            staging,
            newest,
            number: 1,
            copied_batches: 0,
            asked: Vec::new(),
            under_way: None,
            tasks,
            _stopping: stop.clone().drop_guard(),
            stop,
        }
    }

    /// Takes an operator's request for a checkpoint now.
    pub(super) fn ask(&mut self, reply: CheckpointReply) {
        if self.asked.len() < INQUIRIES_MAX {
            self.asked.push(reply);
        } else {
            // The operator may have given up waiting.
            let _ = reply.send(Err("too many ask for one at once".to_owned()));
        }
    }

    fn is_done(&self) -> bool {
        self.under_way.as_ref().is_some_and(|under_way| under_way.task.is_finished())
    }

    fn is_wanted(&self, batches: u64, now: Duration, has_disk: bool) -> bool {
        let is_due = self.checkpoints.every.is_some() && now >= self.due_from && batches > self.copied_batches;
        let by_itself = is_due && has_disk;
        self.under_way.is_none() && (by_itself || !self.asked.is_empty())
    }

    fn begin(&mut self, job: Job, batches: u64) {
        let checkpoints = Arc::clone(&self.checkpoints);
        let task = env::spawn("shard checkpoint", self.tasks.track_future(async move { checkpoints.make(job).await }));
        self.under_way = Some(UnderWay { task, asked: std::mem::take(&mut self.asked) });
        self.copied_batches = batches;
        self.number += 1;
    }

    /// Stops the checkpoint that is being made, and returns once its task has let go of the index.
    pub(super) async fn end(&mut self) {
        self.stop.cancel();
        if let Some(UnderWay { task, .. }) = self.under_way.take() {
            // A checkpoint that is not recorded by now never counts.
            let _ = task.await;
        }
    }
}

impl Session<'_> {
    /// Whether a checkpoint was made, or is to be made.
    pub(super) fn has_checkpoint_work(&self, now: Duration) -> bool {
        let (batches, has_disk) = (self.index.database().batches(), self.has_disk_for_checkpoints());
        let wanted = self.catching_up.is_done && self.checkpointing.is_wanted(batches, now, has_disk);
        self.checkpointing.is_done() || wanted
    }

    /// Takes the result of a checkpoint, or begins one.
    pub(super) async fn take_checkpoint_turn(&mut self, lease: ShardLease) -> usize {
        if self.checkpointing.is_done()
            && let Some(UnderWay { task, asked }) = self.checkpointing.under_way.take()
        {
            let result = task.await.unwrap_or(Err(CheckpointError::Stopped));
            self.conclude_checkpoint(result, asked);
            return 1;
        }
        let database = self.index.database();
        let batches = database.batches();
        let job = Job {
            lease,
            number: self.checkpointing.number,
            database,
            staging: self.checkpointing.staging.clone(),
            stop: self.checkpointing.stop.clone(),
        };
        self.checkpointing.begin(job, batches);
        1
    }

    fn conclude_checkpoint(&mut self, result: Result<Made, CheckpointError>, asked: Vec<CheckpointReply>) {
        let (now, shard, signals) = (self.monotonic(), self.shard.id.0, &self.shard.signals);
        let every = self.checkpointing.checkpoints.every.unwrap_or(TRY_AGAIN);
        let answer = match result {
            Ok(Made { row, uploaded_bytes }) => {
                self.checkpointing.due_from = now + every;
                signals.checkpoint_made(uploaded_bytes);
                let (applied, bytes) = (row.applied, row.bytes);
                tracing::info!(shard, applied, bytes, uploaded_bytes, "a checkpoint of a shard was made");
                self.checkpointing.newest = Some(row.clone());
                Ok(row)
            }
            Err(error) => {
                self.checkpointing.due_from = now + every.min(TRY_AGAIN);
                // Changes since the last recorded checkpoint are in none.
                self.checkpointing.copied_batches = 0;
                signals.checkpoint_failed();
                tracing::warn!(shard, %error, "a checkpoint of a shard cannot be made now");
                Err(error.to_string())
            }
        };
        for reply in asked {
            // The operator may have given up waiting.
            let _ = reply.send(answer.clone());
        }
    }
}
