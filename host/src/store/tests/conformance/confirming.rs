//! What is confirmed of a database while it is used: schema, rights and coverage; and what is not found out.

use super::*;

async fn look(fixture: &Fixture, watch: CoverageWatch) -> CoverageWatch {
    fixture.store.confirm_coverage(&watch).await.unwrap()
}

/// Events as if from a time that knew no WorkItems.
async fn uncover(fixture: &Fixture, keys: std::ops::Range<u32>) {
    fixture.enqueue(keys.map(|n| fixture.event(&format!("d-{n}"), None, "body")).collect()).await;
    let mut tampering = Tampering::with(fixture).await;
    tampering.execute("DELETE FROM work_item WHERE state = 1").await;
    tampering.execute("UPDATE work_item_counter SET count = 0 WHERE state = 1").await;
    tampering.close().await;
}

async fn repair(fixture: &Fixture) -> u64 {
    let mut tampering = Tampering::with(fixture).await;
    let repair = coverage::repair(&mut tampering.connection(), &fixture.env, &no_rules).await.unwrap();
    tampering.close().await;
    repair.repaired
}

// RDY-1: a column that claims are made with is gone, and comes back.
#[tokio::test]
async fn what_the_schema_lacks_is_a_gap_and_a_store_that_does_not_answer_is_none() {
    let fixture = start_with(|options| options.read_timeout = Duration::from_millis(500)).await;
    assert_eq!(fixture.store.confirm_claims().await.unwrap(), None);
    for (away, back) in [
        ("ALTER TABLE lane RENAME COLUMN head TO chief", "ALTER TABLE lane RENAME COLUMN chief TO head"),
        ("ALTER TABLE work_item_counter RENAME TO elsewhere", "ALTER TABLE elsewhere RENAME TO work_item_counter"),
        ("UPDATE _sqlx_migrations SET success = false", "UPDATE _sqlx_migrations SET success = true"),
    ] {
        let mut tampering = Tampering::with(&fixture).await;
        tampering.execute(away).await;
        let gap = fixture.store.confirm_claims().await.unwrap();
        assert_eq!(gap.as_ref().map(|gap| gap.kind), Some(GapKind::Schema), "{away}: {gap:?}");
        assert!(gap.unwrap().seen.contains("forebay migrate"), "{away}: it says what to do");
        tampering.execute(back).await;
        tampering.close().await;
        assert_eq!(fixture.store.confirm_claims().await.unwrap(), None, "{back}");
    }
    // RDY-2: that nothing was found out is an error.
    let held = fixture.store.hold_readers().await;
    assert!(fixture.store.confirm_claims().await.is_err());
    assert!(fixture.store.confirm_coverage(&CoverageWatch::default()).await.is_err());
    drop(held);
    assert_eq!(fixture.store.confirm_claims().await.unwrap(), None);
}

// RDY-1, RDY-3: Events of a pack that lack their WorkItem are found, also later ones and those of before, and so is the
// repair.
#[tokio::test]
async fn a_gap_in_the_coverage_is_found_while_the_database_is_used_and_so_is_its_repair() {
    let fixture = start().await;
    let watch = look(&fixture, CoverageWatch::default()).await;
    assert!(watch.is_complete());
    assert_eq!(watch.gap(&pack()), None);
    fixture.deliver("covered", None).await;
    let watch = look(&fixture, watch).await;
    assert_eq!((watch.is_complete(), watch.gap(&pack())), (true, None));

    uncover(&fixture, 0..3).await;
    let watch = look(&fixture, watch).await;
    let gap = watch.gap(&pack()).unwrap();
    assert_eq!(gap.kind, GapKind::Coverage);
    assert!(gap.seen.starts_with("events of pack `github` have no work item (4, the first is evt_"), "{}", gap.seen);
    assert_eq!(watch.gap(&"gitlab".parse().unwrap()), None, "it is that pack's");
    assert_eq!(look(&fixture, watch.clone()).await.gap(&pack()), watch.gap(&pack()));

    assert_eq!(repair(&fixture).await, 4);
    let watch = look(&fixture, watch).await;
    assert_eq!((watch.is_complete(), watch.gap(&pack())), (true, None));

    // More than are remembered: the others are looked for again once those are repaired.
    uncover(&fixture, 10..60).await;
    let mut watch = look(&fixture, watch).await;
    assert!(watch.gap(&pack()).unwrap().seen.contains("(20 and more, "), "{watch:?}");
    assert!(repair(&fixture).await >= 50);
    for _ in 0..2 {
        watch = look(&fixture, watch).await;
    }
    assert_eq!((watch.is_complete(), watch.gap(&pack())), (true, None));
}

// RDY-1: what a start once saw is not looked at again by the next one, but for what is gone over anyway.
#[tokio::test]
async fn a_start_goes_on_from_where_the_coverage_was_confirmed() {
    let fixture = start().await;
    for delivery in 0..11 {
        let events = (0..1_000).map(|n| fixture.event(&format!("d-{delivery}-{n}"), None, "x")).collect();
        fixture.store.enqueue(fixture.delivery(events)).await.unwrap();
    }
    let mut tampering = Tampering::with(&fixture).await;
    assert_eq!(tampering.count("SELECT count(*) FROM coverage_mark").await, 0);
    let watch = look(&fixture, CoverageWatch::default()).await;
    assert!(watch.is_complete(), "{watch:?}");
    let marked = tampering.count("SELECT ordinal FROM coverage_mark").await;
    assert!(marked > 10_000, "{marked}");
    // One of long ago loses its WorkItem: the next start does not look there at once, but goes round.
    tampering
        .execute("DELETE FROM work_item WHERE ordinal = (SELECT ordinal FROM (SELECT max(ordinal) AS ordinal FROM work_item) AS last)")
        .await;
    tampering.execute(&format!("UPDATE coverage_mark SET ordinal = {}", marked + 10)).await;
    let mut watch = look(&fixture, CoverageWatch::default()).await;
    let mut looks = 1;
    while watch.gap(&pack()).is_none() {
        watch = look(&fixture, watch).await;
        looks += 1;
        assert!(looks < 1_000, "it comes round");
    }
    assert!(looks > 10, "{looks}: a few at a time");
    tampering.close().await;
}

// RDY-1: what a look found is kept, and a database that is slow is looked over in smaller steps.
#[tokio::test]
async fn a_look_that_took_too_long_is_followed_by_shorter_ones() {
    let fixture = start().await;
    let events = (0..1_200).map(|n| fixture.event(&format!("d-{n}"), None, "body")).collect();
    fixture.enqueue(events).await;
    let mut watch = CoverageWatch::default();
    for _ in 0..20 {
        watch.look_less_far();
    }
    let mut looks = Vec::new();
    while !watch.is_complete() {
        watch = fixture.store.confirm_coverage(&watch).await.unwrap();
        looks.push(watch.is_complete());
    }
    assert_eq!(looks, [false, false, true], "five hundred at a time");
    assert_eq!(watch.gap(&pack()), None);
}
