//! The keeper: when it begins, how far it goes, and what it does when it cannot.

use std::time::Duration;

use super::super::retention::{Keeper, Pass, Phase, RetentionOptions};
use crate::model::retention::{DAY, Keep};
use crate::store::testing::{Fixture, done};
use crate::store::{Finished, PAGE_UNITS_MAX, Removed, StoreError};

const KEEP: Keep = Keep::of_days(30, 30, None);
const START_AFTER: Duration = Duration::from_secs(600);

fn keeper(fixture: &Fixture) -> Keeper {
    let options = RetentionOptions { keep: KEEP, start_after: START_AFTER };
    Keeper::new(options, fixture.store.clone(), fixture.env.clone())
}

/// Events that have ended, one of them newer than the rest.
async fn ended(fixture: &Fixture, count: u32) {
    for number in 0..count {
        fixture.deliver(&format!("event-{number}-{}", fixture.now().as_millis()), None).await;
        let item = fixture.claim(1).await.pop().unwrap();
        assert_eq!(fixture.finish(&item, done(vec![])).await, Finished::Applied);
    }
}

/// Ticks until a pass has ended.
async fn pass(keeper: &Keeper) -> Pass {
    let before = keeper.progress().last;
    while keeper.progress().last == before {
        assert!(keeper.tick().await < START_AFTER || keeper.progress().phase == Phase::Resting);
    }
    keeper.progress().last.unwrap().pass
}

fn events(events: u64) -> Removed {
    Removed { events, work_items: events, messages: 0 }
}

// RET-1, RET-5
#[tokio::test]
async fn a_keeper_clears_page_after_page_and_rests() {
    let fixture = Fixture::new().await;
    ended(&fixture, PAGE_UNITS_MAX + 10).await;
    fixture.advance(31 * DAY);
    let keeper = keeper(&fixture);
    assert_eq!(keeper.progress().phase, Phase::Waiting);
    assert_eq!(keeper.tick().await, START_AFTER, "the clock has yet to go evenly");
    fixture.advance(START_AFTER);
    let cleared = pass(&keeper).await;
    assert_eq!(
        (cleared.looked, cleared.removed),
        (u64::from(PAGE_UNITS_MAX) + 10, events(u64::from(PAGE_UNITS_MAX) + 9))
    );
    assert_eq!((keeper.progress().phase, keeper.progress().removed), (Phase::Resting, cleared.removed));
    let rest = keeper.tick().await;
    assert!(rest > Duration::from_secs(60) && keeper.progress().last.unwrap().pass == cleared, "{rest:?}");
    ended(&fixture, 2).await;
    fixture.advance(31 * DAY);
    assert_eq!(pass(&keeper).await.removed, events(2), "the newest of before, and the older one of these");
    fixture.store.assert_counted().await;
}

// RET-5: a machine that comes up with a wrong date takes nothing for old.
#[tokio::test]
async fn nothing_is_removed_by_a_clock_that_was_set_just_now() {
    let fixture = Fixture::new().await;
    ended(&fixture, 3).await;
    let keeper = keeper(&fixture);
    keeper.tick().await;
    fixture.advance(START_AFTER);
    assert_eq!(pass(&keeper).await.removed, events(0));
    // A year ahead, and set right before the clock has gone evenly for long.
    let right = fixture.now();
    fixture.clock.jump_to(right + 365 * DAY);
    fixture.advance(Duration::from_secs(601));
    assert_eq!(keeper.tick().await, START_AFTER);
    assert_eq!(keeper.progress().phase, Phase::Waiting);
    fixture.advance(START_AFTER / 2);
    assert_eq!(keeper.tick().await, START_AFTER / 2);
    fixture.clock.jump_to(right);
    assert_eq!(keeper.tick().await, START_AFTER);
    fixture.advance(START_AFTER);
    assert_eq!(pass(&keeper).await.removed, events(0));
    assert_eq!(fixture.store.stats().await.unwrap().work_items.values().sum::<u64>(), 3);
}

// RET-5
#[tokio::test]
async fn a_store_that_fails_is_tried_again() {
    let fixture = Fixture::new().await;
    ended(&fixture, 3).await;
    fixture.advance(31 * DAY);
    let keeper = keeper(&fixture);
    keeper.tick().await;
    fixture.advance(START_AFTER);
    fixture.store.close().await;
    let first = keeper.tick().await;
    assert!(first >= Duration::from_secs(1), "{first:?}");
    assert!(matches!(fixture.store.probe().await, Err(StoreError::Unavailable(_))));
    assert_eq!((keeper.progress().phase, keeper.progress().last), (Phase::Clearing, None));
}
