//! The numbers that rows are given.
//!
//! The embedded database has one writer, which counts on from the largest number that it finds. Where hosts share a
//! database, each takes blocks of numbers from it: unique, rising within a host, with gaps.

use super::connection::Connection;
use super::dialect::Engine;
use super::values::values;
use crate::model::time::Timestamp;

/// The fewest numbers that a host takes from a shared database at once. Each block costs a transaction.
const BLOCK: i64 = 16_384;

/// A row stands in the lane of its source and in that of its route, and each may be new.
const LANES_PER_ROW: i64 = 2;

/// The tables whose rows are numbered, as the table `sequence` names them.
const NAMES: [&str; 5] = ["receipt", "event", "lane", "message", "replay"];

/// Numbers to hand out.
#[derive(Debug, Clone, Default)]
pub(in crate::store) struct Sequences {
    receipt: Range,
    event: Range,
    lane: Range,
    message: Range,
    replay: Range,
    turn: i64,
}

/// The numbers behind `last`, up to `end`.
#[derive(Debug, Clone, Copy, Default)]
struct Range {
    last: i64,
    end: i64,
}

impl Range {
    fn next(&mut self) -> i64 {
        assert!(self.last < self.end, "a transaction has numbers for all of its rows");
        self.last += 1;
        self.last
    }
}

impl Sequences {
    /// The numbers of a new connection.
    pub(in crate::store) async fn load(connection: &mut Connection<'_>) -> Result<Self, sqlx::Error> {
        match connection.engine() {
            Engine::Sqlite => Self::after_the_last(connection).await,
            Engine::MySql { .. } => Ok(Self::default()),
        }
    }

    async fn after_the_last(connection: &mut Connection<'_>) -> Result<Self, sqlx::Error> {
        let text = "SELECT (SELECT max(ordinal) FROM receipt), (SELECT max(ordinal) FROM event), \
                    (SELECT max(id) FROM lane), (SELECT max(ordinal) FROM message), \
                    (SELECT max(0, (15 - min(ordinal)) / 16) FROM work_item)";
        let after = |last: Option<i64>| Range { last: last.unwrap_or(0), end: i64::MAX };
        let ((receipt, event, lane), (message, replay)) = connection.read_one(text, values![]).await?;
        Ok(Self {
            receipt: after(receipt),
            event: after(event),
            lane: after(lane),
            message: after(message),
            replay: after(replay),
            turn: 0,
        })
    }

    /// Takes new blocks from a shared database where fewer numbers are left than a transaction over `rows` rows may
    /// need, in a transaction of its own.
    pub(in crate::store) async fn stock(
        &mut self,
        connection: &mut Connection<'_>,
        rows: usize,
    ) -> Result<(), sqlx::Error> {
        let rows = i64::try_from(rows).unwrap_or(i64::MAX).saturating_mul(LANES_PER_ROW);
        let ranges = [&mut self.receipt, &mut self.event, &mut self.lane, &mut self.message, &mut self.replay];
        for (name, range) in NAMES.into_iter().zip(ranges) {
            if range.end - range.last >= rows {
                continue;
            }
            let block = BLOCK.max(rows);
            connection.begin().await?;
            // The row is locked by the update; what is read behind it is what was written.
            connection.execute("UPDATE sequence SET last = last + ? WHERE name = ?", values![block, name]).await?;
            let end = connection.read_one("SELECT last FROM sequence WHERE name = ?", values![name]).await?;
            connection.commit().await?;
            *range = Range { last: end - block, end };
        }
        Ok(())
    }

    pub(in crate::store) fn receipt(&mut self) -> i64 {
        self.receipt.next()
    }

    pub(in crate::store) fn event(&mut self) -> i64 {
        self.event.next()
    }

    pub(in crate::store) fn lane(&mut self) -> i64 {
        self.lane.next()
    }

    pub(in crate::store) fn message(&mut self) -> i64 {
        self.message.next()
    }

    /// The number of a replay, from which its WorkItem's ordinal is made (`replay`).
    pub(in crate::store) fn replay(&mut self) -> i64 {
        self.replay.next()
    }

    /// A place in the line of claims, behind `last`: the time in microseconds, and in any case behind every place that
    /// this writer handed out. So lanes are served first come, first served, and a lane's own order holds even when the
    /// clock is set back.
    pub(in crate::store) fn turn(&mut self, last: i64, now: Timestamp) -> i64 {
        self.turn = now.as_millis().saturating_mul(1_000).max(self.turn + 1).max(last.saturating_add(1));
        self.turn
    }
}
