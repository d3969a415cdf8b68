//! Large backlogs, put into a database with a few statements: what the store would take minutes for.

use super::*;
use crate::store::engine::values::values;
use crate::store::work::materialize::WORK_TYPES_PER_EVENT;

/// The first number of what is put here: far above what the store of a test hands out.
const FIRST: u32 = 10_000_000;

/// Numbers from 0 to 999,999, for both engines.
const NUMBERS: &str = "\
    WITH digit (n) AS (SELECT 0 UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 \
    UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9), \
    number (n) AS (SELECT f.n * 100000 + e.n * 10000 + d.n * 1000 + c.n * 100 + b.n * 10 + a.n FROM digit AS f \
    CROSS JOIN digit AS e CROSS JOIN digit AS d CROSS JOIN digit AS c CROSS JOIN digit AS b CROSS JOIN digit AS a)";

/// What a backlog is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// All wait in the lane of the source `line`, which somebody stands in already.
    DeepLane,
    /// All are delayed for longer than any test takes.
    ManyDelayed,
    /// Each is the head of a lane of its own.
    ManyLanes,
    /// All are done.
    ManyFinished,
}

impl Shape {
    pub(super) const ALL: [Shape; 4] = [Shape::DeepLane, Shape::ManyDelayed, Shape::ManyLanes, Shape::ManyFinished];

    fn state(self) -> WorkState {
        match self {
            Shape::DeepLane => WorkState::Blocked,
            Shape::ManyDelayed => WorkState::Delayed,
            Shape::ManyLanes => WorkState::Ready,
            Shape::ManyFinished => WorkState::Done,
        }
    }
}

impl Tampering {
    /// Adds `rows` WorkItems, at most a million, as they would stand there if they had been delivered; but without
    /// their Events, which no operation of the queue looks at (CLM-2).
    pub(super) async fn add_backlog(&mut self, shape: Shape, rows: u32) {
        // Behind everything that the store places at the start of a test.
        let place = format!("{} + n", (START + Duration::from_secs(10)).as_millis() * 1_000);
        let run_after = (START + Duration::from_secs(3_600)).as_millis();
        let (turn, lane, blockers) = match shape {
            Shape::DeepLane => (place.clone(), "(SELECT id FROM lane WHERE `key` = 'line')".to_owned(), 1),
            Shape::ManyDelayed => (run_after.to_string(), "NULL".to_owned(), 0),
            Shape::ManyLanes => (place.clone(), format!("{FIRST} + n"), 0),
            Shape::ManyFinished => (place.clone(), "NULL".to_owned(), 0),
        };
        let state = shape.state().code();
        let engine = self.connection().engine();
        let id = engine.pick("CAST(printf('%016d', n) AS BLOB)", "LPAD(n, 16, '0')");
        let item = format!("({FIRST} + n) * {WORK_TYPES_PER_EVENT} + 1");
        let mut statements = vec![
            format!(
                "INSERT INTO work_item (ordinal, id, event_id, work_type, namespace, pack, generation, state, turn, \
                 source_lane_id, lane_ordinal, run_after, epoch, attempt, failures, created_at, ignored, queue_class, \
                 blockers) {NUMBERS} SELECT {item}, {id}, {id}, 1, 'acme', 'github', 1, {state}, {turn}, {lane}, {place}, \
                 0, 0, 0, 0, 0, 0, 1, {blockers} FROM number WHERE n < {rows} ORDER BY n"
            ),
            format!("INSERT INTO work_item_counter VALUES ('github', 1, 1, {state}, 99, {rows})"),
        ];
        match shape {
            Shape::DeepLane => {
                statements.push(
                    "UPDATE lane SET last_ordinal = (SELECT max(lane_ordinal) FROM work_item) WHERE `key` = 'line'"
                        .to_owned(),
                );
            }
            Shape::ManyLanes => statements.push(format!(
                "INSERT INTO lane (id, namespace, pack, kind, `key`, head, last_ordinal) {NUMBERS} \
                 SELECT {FIRST} + n, 'acme', 'github', 1, {key}, {item}, {place} FROM number WHERE n < {rows} ORDER BY n",
                key = engine.pick("'backlog-' || n", "CONCAT('backlog-', n)"),
            )),
            Shape::ManyDelayed | Shape::ManyFinished => {}
        }
        let mut connection = self.connection();
        connection.begin().await.unwrap();
        for statement in statements {
            connection.execute(&statement, values![]).await.unwrap();
        }
        connection.commit().await.unwrap();
    }

    /// Has the WorkItems of a backlog that are done have ended at `at`, and adds as many messages that were published
    /// then.
    pub(super) async fn end_backlog(&mut self, rows: u32, at: Timestamp) {
        let at = at.as_millis();
        let engine = self.connection().engine();
        let id = engine.pick("CAST(printf('%016d', n) AS BLOB)", "LPAD(n, 16, '0')");
        let statements = [
            format!("UPDATE work_item SET finished_at = {at} + ordinal % 1000 WHERE ordinal >= {FIRST} * 16"),
            format!(
                "INSERT INTO message (ordinal, id, shard, seq, event_id, work_item_id, namespace, destination, state, \
                 generation, attempt, due_at, eligible_at, bytes, created_at, finished_at) {NUMBERS} \
                 SELECT {FIRST} + n, {id}, 0, {FIRST} + n, {id}, {id}, 'acme', 'sink', 4, 1, 1, 0, 0, 2, 0, {at} + n % 1000 \
                 FROM number WHERE n < {rows} ORDER BY n"
            ),
            format!("INSERT INTO message_counter VALUES (4, 99, {rows})"),
        ];
        let mut connection = self.connection();
        connection.begin().await.unwrap();
        for statement in statements {
            connection.execute(&statement, values![]).await.unwrap();
        }
        connection.commit().await.unwrap();
    }
}
