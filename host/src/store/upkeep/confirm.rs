//! Confirmation, while hosts run: whether claims can be made in the database. There are three answers, and they are
//! never mixed up: the database is as it must be; it is confirmed to be otherwise, which is a *gap*; or the check
//! failed, which is an error and says nothing.

use std::collections::BTreeMap;

use super::coverage::{self, Uncovered};
use crate::model::ids::EventId;
use crate::model::names::PackName;
use crate::store::engine::dialect::{Conflict, Engine, is_forbidden, is_missing};
use crate::store::engine::statement::Statement;
use crate::store::engine::values::values;
use crate::store::engine::{schema, server};
use crate::store::writer::Control;
use crate::store::writer::unit::{Answers, Unit};
use crate::store::{Store, StoreError};

/// The most ordinals of Events that one look goes forward. A start looks until it is through.
const LOOKED_ORDINALS_MAX: i64 = 20_000;

/// The fewest ordinals of a look, even at a slow database.
const LOOKED_ORDINALS_MIN: i64 = 500;

/// The confirmed Events that one look checks again: an Event that lost its WorkItem later is found in time.
const RECHECKED_ORDINALS: i64 = 256;

/// The most Events without a WorkItem that are remembered of one pack.
const KNOWN_PER_PACK_MAX: usize = 20;

/// The progress in ordinals that is worth a write.
const MARK_ORDINALS: i64 = 10_000;

/// The only row of its table.
const MARK_ID: u32 = 1;

/// A confirmed obstacle to every claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// The kind.
    pub kind: GapKind,
    /// The finding, and the remedy.
    pub seen: String,
}

/// The kind of a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum GapKind {
    /// A table or a column that claims need, or a migration.
    Schema,
    /// A right that this host lacks.
    Capability,
    /// The WorkItem of an Event.
    Coverage,
}

impl GapKind {
    /// The word for it in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            GapKind::Schema => "schema",
            GapKind::Capability => "capability",
            GapKind::Coverage => "coverage",
        }
    }
}

/// The progress of the looks at Events, and their findings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoverageWatch {
    /// The ordinals of the next look.
    reach: i64,
    /// Events below this ordinal have been looked at; `None` before the first look.
    looked_to: Option<i64>,
    /// Whether all Events have been looked at.
    complete: bool,
    /// The ordinal from which the next look checks again.
    recheck_from: i64,
    /// The ordinal that is stored as confirmed.
    marked: i64,
    gaps: BTreeMap<PackName, PackGap>,
}

/// Events of one pack without a WorkItem.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct PackGap {
    /// The first Events that were found, by ordinal.
    known: BTreeMap<i64, EventId>,
    /// Whether more were found.
    more: bool,
}

impl Default for CoverageWatch {
    fn default() -> Self {
        let (looked_to, complete, recheck_from, marked, gaps) = (None, false, 0, 0, BTreeMap::new());
        Self { reach: LOOKED_ORDINALS_MAX, looked_to, complete, recheck_from, marked, gaps }
    }
}

impl CoverageWatch {
    /// Shortens the next look, after one that took too long.
    pub fn look_less_far(&mut self) {
        self.reach = (self.reach / 2).max(LOOKED_ORDINALS_MIN);
    }

    /// Whether every Event has been looked at.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// The gap of a pack's Events, if there is one.
    pub fn gap(&self, pack: &PackName) -> Option<Gap> {
        let gap = self.gaps.get(pack)?;
        let (count, first) = (gap.known.len(), gap.known.values().next()?);
        let more = if gap.more { " and more" } else { "" };
        let seen = format!(
            "events of pack `{pack}` have no work item ({count}{more}, the first is {first}), so its work is not claimed: \
             run `forebay migrate`"
        );
        Some(Gap { kind: GapKind::Coverage, seen })
    }

    /// The packs with a gap.
    pub fn gaps(&self) -> impl Iterator<Item = &PackName> {
        self.gaps.keys()
    }

    fn found(&mut self, uncovered: Vec<Uncovered>) {
        for event in uncovered {
            let gap = self.gaps.entry(event.scope.pack).or_default();
            if gap.known.len() < KNOWN_PER_PACK_MAX {
                gap.known.insert(event.ordinal, event.id);
            } else {
                gap.more |= !gap.known.contains_key(&event.ordinal);
            }
        }
    }

    /// Forgets Events that have their WorkItem by now. If not all were remembered, they are looked for again.
    fn still(&mut self, uncovered: &[Uncovered]) {
        let mut again = None;
        self.gaps.retain(|_, gap| {
            let first = gap.known.keys().next().copied();
            gap.known.retain(|ordinal, _| uncovered.iter().any(|event| event.ordinal == *ordinal));
            let closed = gap.known.is_empty();
            if closed && gap.more {
                again = again.min(first).or(first);
            }
            !closed
        });
        if let Some(first) = again {
            self.complete = false;
            self.looked_to = self.looked_to.min(Some(first));
        }
    }
}

/// All columns that claims, finishes and deliveries name.
const COLUMNS: [&str; 5] = [
    "SELECT ordinal, id, event_id, work_type, namespace, pack, generation, state, turn, source_lane_id, delivery_lane_id, blockers, \
     lane_ordinal, run_after, lease_token, epoch, attempt, failures, created_at, finished_at, ignored, note, failure_class, \
     failure_message, queue_class, replayed_at, replay_of, replay_event, coalesces, projection_key, projection_active_key, \
     waiting_source, waiting_delivery FROM work_item WHERE ordinal IS NULL",
    "SELECT id, namespace, pack, kind, `key`, head, last_ordinal FROM lane WHERE id IS NULL",
    "SELECT pack, work_type, generation, state, stripe, count FROM work_item_counter WHERE pack IS NULL",
    "SELECT ordinal, id, receipt, namespace, route, delivery_key, source_key, payload_digest, body, replayed_at FROM event \
     WHERE ordinal IS NULL",
    "SELECT ordinal, id, pack, generation, received_at, content_type, headers, delivery_lane FROM receipt WHERE ordinal IS NULL",
];

/// Writes that change nothing, of each kind that claims, finishes and deliveries do: they fail without the right.
const WRITES: [&str; 5] = [
    "UPDATE work_item SET epoch = epoch WHERE ordinal IS NULL",
    "UPDATE lane SET head = head WHERE id IS NULL",
    "UPDATE work_item_counter SET count = count WHERE pack IS NULL",
    "INSERT INTO event SELECT * FROM event WHERE ordinal IS NULL",
    "INSERT INTO work_item_counter SELECT * FROM work_item_counter WHERE pack IS NULL",
];

/// `success` is false for a migration that was begun and not ended.
const VERSION: &str = "SELECT CAST(coalesce(max(version), 0) AS SIGNED) FROM _sqlx_migrations WHERE success";

const MARKED: &str = "SELECT ordinal FROM coverage_mark WHERE id = ?";

static MARK: Statement = Statement::insert("coverage_mark (id, ordinal)", Conflict::Set("id", "ordinal"));

impl Store {
    /// Checks that claims can be made in this database, apart from its contents. `None`: there is no gap.
    pub async fn confirm_claims(&self) -> Result<Option<Gap>, StoreError> {
        let mut reader = self.reader().await?;
        let mut connection = reader.connection();
        let (writes, latest) = match connection.engine() {
            // The file is this process's own: what may be done with it was seen when it was opened.
            Engine::Sqlite => (&WRITES[..0], schema::latest_version()),
            Engine::MySql { .. } => (&WRITES[..], server::latest_version()),
        };
        let version: i64 = match connection.read_one(VERSION, values![]).await {
            Ok(version) => version,
            Err(error) => return gap(error),
        };
        if version < latest {
            let seen = format!(
                "the database's schema has version {version} and this host needs {latest}: run `forebay migrate`, or restore the \
                 right backup"
            );
            return Ok(Some(Gap { kind: GapKind::Schema, seen }));
        }
        for text in COLUMNS {
            if let Err(error) = connection.fetch_optional(text, values![]).await {
                return gap(error);
            }
        }
        for text in writes {
            if let Err(error) = connection.execute(text, values![]).await {
                return gap(error);
            }
        }
        Ok(None)
    }

    /// Looks for Events without a WorkItem among the next ones, and again among those that were found before. A look is
    /// bounded: many Events need several.
    pub async fn confirm_coverage(&self, watch: &CoverageWatch) -> Result<CoverageWatch, StoreError> {
        let mut watch = watch.clone();
        let mut reader = self.reader().await?;
        let mut connection = reader.connection();
        let known = watch.gaps.values().flat_map(|gap| gap.known.keys().copied()).collect();
        let still = coverage::uncovered_of(&mut connection, known).await?;
        watch.still(&still);
        let Some((first, last)) = coverage::bounds(&mut connection).await? else {
            watch.complete = true;
            return Ok(watch);
        };
        let mut from = match watch.looked_to {
            Some(looked_to) => looked_to,
            None => {
                watch.marked = connection.read_optional(MARKED, values![MARK_ID]).await?.unwrap_or(first);
                watch.marked.max(first)
            }
        };
        if from <= last {
            let until = from.saturating_add(watch.reach).min(last + 1);
            let missing = coverage::missing(&mut connection, from, until).await?;
            watch.found(coverage::uncovered_of(&mut connection, missing).await?);
            from = until;
        }
        (watch.complete, watch.looked_to) = (from > last, Some(from));
        let recheck = watch.recheck_from.max(first);
        let until = (recheck + RECHECKED_ORDINALS).min(last + 1);
        let missing = coverage::missing(&mut connection, recheck, until).await?;
        watch.found(coverage::uncovered_of(&mut connection, missing).await?);
        watch.recheck_from = if until > last { first } else { until };
        drop(reader);
        // Also on the way: the next start continues from there.
        if watch.gaps.is_empty() && from - watch.marked >= MARK_ORDINALS {
            self.writer.control(|reply| Control::MarkCovered(from, reply)).await?;
            watch.marked = from;
        }
        Ok(watch)
    }
}

/// Stores the ordinal up to which every Event has its WorkItem.
pub(in crate::store) async fn apply(unit: &mut Unit<'_>, marks: Vec<i64>) -> Result<Answers<()>, sqlx::Error> {
    let answers = marks.iter().map(|_| Ok(())).collect();
    if let Some(furthest) = marks.into_iter().max() {
        MARK.write(&mut unit.connection, vec![furthest], |values, ordinal| {
            values.push(MARK_ID).push(ordinal);
        })
        .await?;
    }
    Ok(answers)
}

/// The gap that an error confirms, if it confirms one.
fn gap(error: sqlx::Error) -> Result<Option<Gap>, StoreError> {
    if is_missing(&error) {
        let seen = format!(
            "the database lacks what claims are made with ({error}): run `forebay migrate`, or restore the right backup"
        );
        return Ok(Some(Gap { kind: GapKind::Schema, seen }));
    }
    if is_forbidden(&error) {
        let seen = format!(
            "the database does not let this host write ({error}): give its user the rights that docs/queue.md names, or point \
             `database.url` at a server that takes writes"
        );
        return Ok(Some(Gap { kind: GapKind::Capability, seen }));
    }
    Err(error.into())
}
