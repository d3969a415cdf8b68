//! The sweep: what nobody would ever let go on is found and put right, and what is right is left alone.

use super::*;

/// Sweeps once over all lanes. Returns how many were repaired.
async fn sweep_all(fixture: &Fixture) -> u64 {
    let (mut cursor, mut repaired) = (SweepCursor::default(), 0);
    loop {
        let sweep = fixture.store.sweep_lanes(cursor).await.unwrap();
        repaired += sweep.repaired;
        cursor = sweep.next;
        if cursor == SweepCursor::default() {
            return repaired;
        }
    }
}

async fn break_by(fixture: &Fixture, statements: &[&str]) {
    let mut tampering = Tampering::with(fixture).await;
    for statement in statements {
        tampering.execute(statement).await;
    }
    tampering.close().await;
}

// CLM-3
#[tokio::test]
async fn lanes_that_are_right_are_left_alone() {
    let fixture = start().await;
    for n in 0..80 {
        fixture.deliver(&format!("a-{n}"), Some(&format!("repo-{n}"))).await;
        fixture.deliver_strictly(&format!("strict-{}", n % 7), &format!("b-{n}"), Some(&format!("repo-{n}"))).await;
    }
    let items = fixture.claim(20).await;
    let run_after = fixture.now() + Duration::from_secs(5);
    for (n, item) in items.iter().enumerate() {
        let disposition = match n % 5 {
            0 => Disposition::Dead { failure: failure(), leaves_lane: false },
            1 => Disposition::Retry { failure: failure(), run_after, leaves_lane: false },
            2 => Disposition::Retry { failure: failure(), run_after, leaves_lane: true },
            3 => done(vec![]),
            _ => continue,
        };
        fixture.finish(item, disposition).await;
    }
    let before = fixture.store.stats().await.unwrap();
    assert_eq!(sweep_all(&fixture).await, 0);
    assert_eq!(fixture.store.stats().await.unwrap(), before);
}

// CLM-3
#[tokio::test]
async fn a_lane_without_a_head_gets_one() {
    for broken in [
        "UPDATE lane SET head = NULL",
        "UPDATE lane SET head = 4711",
        // The head ended, and nobody was promoted.
        "UPDATE work_item SET state = 4 WHERE state = 1",
        // The head left, and nobody was promoted.
        "UPDATE work_item SET source_lane_id = NULL, delivery_lane_id = NULL WHERE state = 1",
        // Somebody is the head of all lanes, and counts one that blocks it.
        "UPDATE lane SET head = (SELECT min(ordinal) FROM work_item WHERE state = 0)",
    ] {
        let fixture = start().await;
        fixture.deliver_strictly("strict", "d-1", Some("repo")).await;
        let second = fixture.deliver_strictly("strict", "d-2", Some("repo")).await;
        let third = fixture.deliver_strictly("strict", "d-3", Some("repo")).await;
        break_by(&fixture, &[broken, "UPDATE work_item SET state = 4 WHERE state = 1"]).await;
        assert!(fixture.claim(10).await.is_empty(), "{broken}");
        assert!((1..=2).contains(&sweep_all(&fixture).await), "{broken}");
        assert_eq!(sweep_all(&fixture).await, 0, "{broken}");
        assert_eq!(fixture.drain().await, [second, third], "{broken}");
    }
}

// CLM-3: who is the head of one lane and waits in the other one is let go on as soon as that is free.
#[tokio::test]
async fn blockers_that_were_miscounted_are_counted_again() {
    let fixture = start().await;
    let (_, of_source) = fixture.deliver("d-1", Some("repo")).await;
    let both = fixture.deliver_strictly("strict", "d-2", Some("repo")).await;
    break_by(&fixture, &["UPDATE work_item SET blockers = 2 WHERE state = 0"]).await;
    assert_eq!(sweep_all(&fixture).await, 1);
    assert_eq!(fixture.drain().await, [of_source, both]);
    fixture.assert_counted().await;
}

// CLM-9: a sweep looks at a few lanes, however many there are, and comes round.
#[tokio::test]
async fn a_sweep_is_bounded_and_comes_round() {
    let fixture = start().await;
    let of = |n: usize, key: &str| fixture.event(&format!("{key}-{n}"), Some(&format!("repo-{n}")), "{}");
    fixture.enqueue((0..100).flat_map(|n| [of(n, "a"), of(n, "b")]).collect()).await;
    let mut cursor = SweepCursor::default();
    let mut lanes = Vec::new();
    for _ in 0..4 {
        let sweep = fixture.store.sweep_lanes(cursor).await.unwrap();
        lanes.push(sweep.lanes);
        cursor = sweep.next;
    }
    assert_eq!(lanes, [32, 32, 32, 4]);
    assert_eq!(cursor, SweepCursor::default());
}

// CLM-3: a row that says that it waits for nobody, behind somebody: who ends before it is told, nobody else is hurt,
// and the sweep puts it right.
#[tokio::test]
async fn one_who_waits_and_counts_nobody_hurts_only_the_one_before_it() {
    let fixture = start().await;
    fixture.deliver("d-1", Some("repo")).await;
    let (_, next) = fixture.deliver("d-2", Some("repo")).await;
    let item = fixture.claim(1).await.pop().unwrap();
    break_by(&fixture, &["UPDATE work_item SET blockers = 0 WHERE state = 0"]).await;
    for _ in 0..2 {
        let refused = fixture.store.finish(fixture.ending(&item, done(vec![]))).await;
        assert!(matches!(refused, Err(StoreError::Unusable(_))), "{refused:?}");
    }
    fixture.deliver("d-3", None).await;
    assert_eq!(fixture.claim(10).await.len(), 1, "the store goes on");
    assert_eq!(sweep_all(&fixture).await, 1);
    assert_eq!(fixture.state(next).await, WorkState::Blocked, "its place is behind the head");
    assert_eq!(fixture.finish(&item, done(vec![])).await, Finished::Applied);
    assert_eq!(fixture.state(next).await, WorkState::Ready);
    assert_eq!(sweep_all(&fixture).await, 0);
    fixture.assert_counted().await;
}
