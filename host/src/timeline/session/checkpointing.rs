//! A session's checkpoints: when one is made, and what becomes of it. The work itself is done beside the session
//! (`checkpoint`), which only starts it and hears of its end.

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

/// Pause after a checkpoint that could not be made, unless they are made more often anyway.
const TRY_AGAIN: Duration = Duration::from_secs(60);

/// Where the result of an operator's wish goes: the checkpoint, or why there is none.
pub(in crate::timeline) type CheckpointReply = oneshot::Sender<Result<CheckpointRow, String>>;

/// A shard's checkpoints, as long as this runtime owns it.
pub(in crate::timeline) struct Checkpointing {
    pub checkpoints: Arc<Checkpoints>,
    /// Where copies of the index lie while they are uploaded.
    pub staging: PathBuf,
    /// The newest one that counts.
    pub newest: Option<CheckpointRow>,
    /// Which one of this owner's is the next.
    number: u64,
    /// None is made by itself before this monotonic time.
    due_from: Duration,
    /// The index had written so many batches when the last one was begun.
    copied_batches: u64,
    asked: Vec<CheckpointReply>,
    under_way: Option<UnderWay>,
    /// Where what is under way is known of, should this end without waiting for it.
    tasks: TaskTracker,
    stop: CancellationToken,
    _stopping: DropGuard,
}

/// A checkpoint that is being made, and who waits for it.
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

    /// An operator wants one now.
    pub(super) fn ask(&mut self, reply: CheckpointReply) {
        if self.asked.len() < INQUIRIES_MAX {
            self.asked.push(reply);
        } else {
            // Whoever finds out that nobody listens does not need the answer.
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

    /// Ends what is under way, and returns once nobody has the index open for it any more.
    pub(super) async fn end(&mut self) {
        self.stop.cancel();
        if let Some(UnderWay { task, .. }) = self.under_way.take() {
            // What has not counted by now counts for nothing.
            let _ = task.await;
        }
    }
}

impl Session {
    /// Whether there is something to do about checkpoints.
    pub(super) fn has_checkpoint_work(&self, now: Duration) -> bool {
        let (batches, has_disk) = (self.index.database().batches(), self.has_disk_for_checkpoints());
        let wanted = self.caught_up && self.checkpointing.is_wanted(batches, now, has_disk);
        self.checkpointing.is_done() || wanted
    }

    /// Hears of the checkpoint that was made, or begins one.
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
        let (now, shard) = (self.parts.env.clock.monotonic(), self.parts.shard.0);
        let every = self.checkpointing.checkpoints.every.unwrap_or(TRY_AGAIN);
        let answer = match result {
            Ok(Made { row, uploaded_bytes }) => {
                self.checkpointing.due_from = now + every;
                self.parts.signals.checkpoint_made(uploaded_bytes);
                let (applied, bytes) = (row.applied, row.bytes);
                tracing::info!(shard, applied, bytes, uploaded_bytes, "a checkpoint of a shard was made");
                self.checkpointing.newest = Some(row.clone());
                Ok(row)
            }
            Err(error) => {
                self.checkpointing.due_from = now + every.min(TRY_AGAIN);
                // What has changed since the last one that counts is in none.
                self.checkpointing.copied_batches = 0;
                self.parts.signals.checkpoint_failed();
                tracing::warn!(shard, %error, "a checkpoint of a shard cannot be made now");
                Err(error.to_string())
            }
        };
        for reply in asked {
            // Whoever no longer listens does not need the answer.
            let _ = reply.send(answer.clone());
        }
    }
}
