//! Messages: the feed, admission, outcomes, commands, and who may do it.

use super::*;
use crate::model::message::{AfterAttempt, TooLate};

const NOW: Timestamp = START;

pub(super) async fn acquire(fixture: &Fixture, shard: u16) -> ShardLease {
    let lease = fixture.store.acquire_shard(ShardId(shard), fixture.runtime(), LEASE, fixture.now()).await.unwrap();
    lease.expect("nobody has it")
}

/// A message that a flow emitted to `sink`, with the lease of its shard.
pub(super) async fn scheduled(fixture: &Fixture) -> (MessageId, ShardLease) {
    let message = fixture.message("sink", NOW);
    fixture.emit(vec![message.clone()]).await;
    (message.id, acquire(fixture, shard(fixture)).await)
}

/// The shard of the destination `sink`.
pub(super) fn shard(fixture: &Fixture) -> u16 {
    crate::store::shards::shard_of(&namespace(), &"sink".parse().unwrap(), fixture.store.shard_count())
}

pub(super) async fn admit(fixture: &Fixture, lease: ShardLease, id: MessageId, generation: u32) -> Admission {
    let request = AdmissionRequest { id, generation };
    fixture.store.admit(lease, vec![request], fixture.now()).await.unwrap()[0]
}

/// Records what an attempt of a message's first generation came to.
pub(super) async fn record(
    fixture: &Fixture,
    lease: ShardLease,
    id: MessageId,
    attempt: u32,
    after: AfterAttempt,
) -> bool {
    record_outcome(fixture, lease, outcome(id, 1, attempt, after)).await
}

async fn record_outcome(fixture: &Fixture, lease: ShardLease, outcome: OutcomeRecord) -> bool {
    fixture.store.record_outcomes(lease, vec![outcome], fixture.now()).await.unwrap()[0]
}

fn outcome(id: MessageId, generation: u32, attempt: u32, after: AfterAttempt) -> OutcomeRecord {
    let (status, error) = (Some(503), Some("refused".to_owned()));
    OutcomeRecord {
        id,
        generation,
        attempt,
        after,
        uncertain: after == AfterAttempt::Uncertain,
        spared: false,
        status,
        error,
    }
}

#[test]
fn a_destinations_shard_never_changes() {
    let shard = |namespace: &str, destination: &str, shards| {
        crate::store::shards::shard_of(&namespace.parse().unwrap(), &destination.parse().unwrap(), shards)
    };
    assert_eq!(shard("acme", "sink", 1), 0);
    assert_eq!([shard("acme", "sink", 64), shard("acme", "audit", 64), shard("umbrella", "sink", 64)], [26, 32, 16]);
    assert_ne!(shard("a", "bc", 65_535), shard("ab", "c", 65_535));
}

// TL-2
#[tokio::test]
async fn the_feed_holds_every_command_in_the_order_of_its_commits() {
    let fixture = start().await;
    let messages: Vec<_> = (0..6).map(|_| fixture.message("sink", NOW)).collect();
    let all: Vec<_> = messages.iter().map(|message| message.id).collect();
    fixture.emit(messages).await;
    let shard = ShardId(shard(&fixture));
    let feed = async |after, nonterminal_only| {
        let page = fixture.store.feed(shard, after, nonterminal_only, 100).await.unwrap();
        page.entries.iter().map(|entry| (entry.seq, entry.id)).collect::<Vec<_>>()
    };
    let expected: Vec<_> = (1..).zip(all.clone()).collect();
    assert_eq!(feed(0, false).await, expected);
    assert_eq!(fixture.store.feed_end(shard).await.unwrap(), 6);

    fixture.store.cancel(all[1], NOW).await.unwrap();
    fixture.store.reschedule(all[0], NOW + LEASE).await.unwrap();
    assert_eq!(feed(6, false).await, [(7, all[1]), (8, all[0])]);
    assert_eq!(fixture.store.feed_end(shard).await.unwrap(), 8);

    let lease = acquire(&fixture, shard.0).await;
    admit(&fixture, lease, all[2], 1).await;
    record(&fixture, lease, all[2], 1, AfterAttempt::Published).await;
    admit(&fixture, lease, all[3], 1).await;
    assert_eq!(feed(0, true).await, [(4, all[3]), (5, all[4]), (6, all[5]), (8, all[0])]);
    let page = fixture.store.feed(shard, 4, true, 2).await.unwrap();
    assert_eq!(page.entries.iter().map(|entry| entry.seq).collect::<Vec<_>>(), [5, 6]);
    assert!(fixture.store.feed(ShardId(1 - shard.0), 0, false, 100).await.unwrap().entries.is_empty());
}

// TL-2: a snapshot may hold a transaction and lack one that it had waited for. Whoever read on behind it would never
// see the other.
#[tokio::test]
async fn a_page_of_the_feed_ends_where_the_shard_ended_before_it_was_read() {
    let fixture = start().await;
    fixture.emit((0..6).map(|_| fixture.message("sink", NOW)).collect()).await;
    let shard = ShardId(shard(&fixture));
    let mut tampering = Tampering::with(&fixture).await;
    let seen = async |end: u64, nonterminal_only| {
        let page = fixture.store.feed(shard, 0, nonterminal_only, 100).await.unwrap();
        assert_eq!(page.end, end);
        page.entries.iter().map(|entry| entry.seq).collect::<Vec<_>>()
    };
    for end in [4, 6] {
        // As if the others' snapshot had been taken before they ended.
        tampering.execute(&format!("UPDATE shard SET last_seq = {end} WHERE id = {}", shard.0)).await;
        for nonterminal_only in [false, true] {
            assert_eq!(seen(end, nonterminal_only).await, Vec::from_iter(1..=end));
        }
    }
}

// TL-4
#[tokio::test]
async fn an_admission_counts_an_attempt_and_its_outcome_ends_it() {
    let fixture = start().await;
    let (id, lease) = scheduled(&fixture).await;
    assert_eq!(admit(&fixture, lease, id, 2).await, Admission::Moved, "another generation");
    assert_eq!(admit(&fixture, lease, id, 1).await, Admission::Admitted { attempt: 1 });
    assert_eq!(admit(&fixture, lease, id, 1).await, Admission::Moved, "it is being published");
    assert!(!record(&fixture, lease, id, 2, AfterAttempt::Published).await, "another attempt");

    let again = NOW + Duration::from_secs(60);
    assert!(record(&fixture, lease, id, 1, AfterAttempt::RetryAt(again)).await);
    assert!(!record(&fixture, lease, id, 1, AfterAttempt::Published).await, "it is recorded already");
    let waiting = fixture.store.message(id).await.unwrap().unwrap();
    assert_eq!(waiting.summary.entry.state, MessageState::RetryWait);
    assert_eq!((waiting.summary.entry.eligible_at, waiting.summary.entry.due_at), (again, NOW));
    assert_eq!((waiting.status, waiting.error.as_deref()), (Some(503), Some("refused")));

    assert_eq!(admit(&fixture, lease, id, 1).await, Admission::Admitted { attempt: 2 });
    assert!(record(&fixture, lease, id, 2, AfterAttempt::Published).await);
    let entry = fixture.store.message_entries(&[id]).await.unwrap().remove(0);
    assert_eq!((entry.state, entry.attempt), (MessageState::Published, 2));
    fixture.store.assert_counted().await;
}

// TL-4, TL-5: attempts are counted anew after a reschedule, so their number alone does not say which one it was.
#[tokio::test]
async fn an_outcome_that_is_repeated_after_a_reschedule_is_not_the_next_generations() {
    let fixture = start().await;
    let (id, lease) = scheduled(&fixture).await;
    assert_eq!(admit(&fixture, lease, id, 1).await, Admission::Admitted { attempt: 1 });
    assert!(record(&fixture, lease, id, 1, AfterAttempt::RetryAt(NOW)).await);
    let rescheduled = fixture.store.reschedule(id, NOW).await.unwrap();
    assert_eq!(rescheduled, Rescheduled::Rescheduled { generation: 2 });
    assert_eq!(admit(&fixture, lease, id, 2).await, Admission::Admitted { attempt: 1 });

    assert!(!record(&fixture, lease, id, 1, AfterAttempt::Published).await, "the first generation's");
    assert_eq!(fixture.message_state(id).await, MessageState::Publishing);
    assert!(record_outcome(&fixture, lease, outcome(id, 2, 1, AfterAttempt::Published)).await);
    assert_eq!(fixture.message_state(id).await, MessageState::Published);
}

// TL-5
#[tokio::test]
async fn a_cancel_before_the_admission_is_never_overtaken() {
    let fixture = start().await;
    let (id, lease) = scheduled(&fixture).await;
    assert_eq!(fixture.store.cancel(id, NOW).await.unwrap(), Cancelled::Cancelled);
    assert_eq!(fixture.store.cancel(id, NOW).await.unwrap(), Cancelled::Already);
    assert_eq!(admit(&fixture, lease, id, 1).await, Admission::Moved);
    let reschedule = fixture.store.reschedule(id, NOW).await.unwrap();
    assert_eq!(reschedule, Rescheduled::TooLate(TooLate::Stands(MessageState::Cancelled)));
}

// TL-5
#[tokio::test]
async fn after_the_admission_a_command_comes_too_late() {
    let fixture = start().await;
    let (id, lease) = scheduled(&fixture).await;
    admit(&fixture, lease, id, 1).await;
    let too_late = MessageState::Publishing;
    assert_eq!(fixture.store.cancel(id, NOW).await.unwrap(), Cancelled::TooLate(TooLate::Stands(too_late)));
    assert_eq!(fixture.store.reschedule(id, NOW).await.unwrap(), Rescheduled::TooLate(TooLate::Stands(too_late)));
    assert!(record(&fixture, lease, id, 1, AfterAttempt::Uncertain).await);
    assert_eq!(
        fixture.store.cancel(id, NOW).await.unwrap(),
        Cancelled::TooLate(TooLate::Stands(MessageState::Uncertain))
    );
    assert_eq!(admit(&fixture, lease, id, 1).await, Admission::Moved, "it waits for an operator");
}

/// A message that waits although nobody knows what its first attempt did: the policy `retry`.
async fn uncertain_and_waiting(fixture: &Fixture) -> (MessageId, ShardLease) {
    let (id, lease) = scheduled(fixture).await;
    admit(fixture, lease, id, 1).await;
    let unknown = OutcomeRecord { uncertain: true, ..outcome(id, 1, 1, AfterAttempt::RetryAt(NOW)) };
    assert!(record_outcome(fixture, lease, unknown).await);
    (id, lease)
}

// TL-5, TL-6
#[tokio::test]
async fn what_may_have_arrived_is_neither_cancelled_nor_rescheduled() {
    let fixture = start().await;
    let (id, lease) = uncertain_and_waiting(&fixture).await;
    let may_have_arrived = TooLate::MayHaveArrived(MessageState::RetryWait);
    let before = fixture.store.message_entries(&[id]).await.unwrap();
    assert_eq!(fixture.store.cancel(id, NOW).await.unwrap(), Cancelled::TooLate(may_have_arrived));
    assert_eq!(fixture.store.reschedule(id, NOW).await.unwrap(), Rescheduled::TooLate(may_have_arrived));
    assert_eq!(fixture.store.message_entries(&[id]).await.unwrap(), before, "nothing has changed");
    // It is tried again all the same, and one failure more that is certain does not make the first one so.
    assert_eq!(admit(&fixture, lease, id, 1).await, Admission::Admitted { attempt: 2 });
    assert!(record(&fixture, lease, id, 2, AfterAttempt::RetryAt(NOW)).await);
    assert_eq!(fixture.store.cancel(id, NOW).await.unwrap(), Cancelled::TooLate(may_have_arrived));
    // Neither does a new generation.
    admit(&fixture, lease, id, 1).await;
    assert!(record(&fixture, lease, id, 3, AfterAttempt::Dead).await);
    fixture.store.redrive(vec![id], NOW).await.unwrap();
    let may_have_arrived = TooLate::MayHaveArrived(MessageState::Scheduled);
    assert_eq!(fixture.store.cancel(id, NOW).await.unwrap(), Cancelled::TooLate(may_have_arrived));
}

// TL-6, LAN-4
#[tokio::test]
async fn what_waits_after_an_uncertain_attempt_is_settled_by_an_operator_and_keeps_its_place() {
    for (resolution, state) in [
        (Resolution::Retry, MessageState::RetryWait),
        (Resolution::Published, MessageState::Published),
        (Resolution::Dead, MessageState::Dead),
    ] {
        let fixture = start().await;
        let (id, lease) = uncertain_and_waiting(&fixture).await;
        let place = fixture.store.message_entries(&[id]).await.unwrap()[0].place;
        assert_eq!(fixture.store.resolve(id, resolution, fixture.now()).await.unwrap(), Resolved::Resolved);
        // Whoever had claimed it before comes too late: the answer was acknowledged.
        assert_eq!(admit(&fixture, lease, id, 1).await, Admission::Moved, "{resolution:?}");
        let entry = fixture.store.message_entries(&[id]).await.unwrap().remove(0);
        let (generation, attempt) = if resolution == Resolution::Retry { (2, 0) } else { (1, 1) };
        assert_eq!((entry.state, entry.generation, entry.attempt, entry.place), (state, generation, attempt, place));
        assert!(entry.seq > place, "the feed tells of it");
        assert_eq!(fixture.store.count_rows().await.unwrap(), fixture.store.stats().await.unwrap());
        let uncertain = fixture.store.message(id).await.unwrap().unwrap().uncertain_attempts;
        assert_eq!(uncertain, u32::from(resolution != Resolution::Dead), "that it did not arrive is known now");
        if resolution == Resolution::Dead {
            fixture.store.redrive(vec![id], NOW).await.unwrap();
            assert_eq!(fixture.store.cancel(id, NOW).await.unwrap(), Cancelled::Cancelled);
        }
    }
}

// TL-5
#[tokio::test]
async fn a_cancel_and_an_admission_at_once_have_one_winner() {
    let fixture = start().await;
    let (mut cancels, mut admissions) = (0, 0);
    for round in 0..20 {
        let message = fixture.message("sink", NOW);
        fixture.emit(vec![message.clone()]).await;
        let lease = acquire_again(&fixture).await;
        // One of them, and in later rounds the other, comes a little after the other.
        let pause = async |reads: usize| {
            for _ in 0..reads {
                fixture.store.feed_end(lease.shard).await.unwrap();
            }
        };
        let (of_cancel, of_admission) = if round % 2 == 0 { (0, round / 4) } else { (round / 4, 0) };
        let cancel = async {
            pause(of_cancel).await;
            fixture.store.cancel(message.id, NOW).await.unwrap()
        };
        let admission = async {
            pause(of_admission).await;
            admit(&fixture, lease, message.id, 1).await
        };
        match futures_util::future::join(cancel, admission).await {
            (Cancelled::Cancelled, Admission::Moved) => cancels += 1,
            (Cancelled::TooLate(_), Admission::Admitted { .. }) => admissions += 1,
            both => panic!("{both:?}"),
        }
    }
    assert!(cancels > 0 && admissions > 0, "{cancels} cancels and {admissions} admissions came first");
}

async fn acquire_again(fixture: &Fixture) -> ShardLease {
    let runtime = RuntimeId::from_bytes([5; 16]);
    fixture.store.acquire_shard(ShardId(shard(fixture)), runtime, LEASE, NOW).await.unwrap().unwrap()
}

// TL-5
#[tokio::test]
async fn a_reschedule_makes_a_new_generation() {
    let fixture = start().await;
    let (id, lease) = scheduled(&fixture).await;
    admit(&fixture, lease, id, 1).await;
    record(&fixture, lease, id, 1, AfterAttempt::RetryAt(NOW)).await;
    let due_at = NOW + Duration::from_secs(3_600);
    let answer = fixture.store.reschedule(id, due_at).await.unwrap();
    assert_eq!(answer, Rescheduled::Rescheduled { generation: 2 });
    assert_eq!(admit(&fixture, lease, id, 1).await, Admission::Moved, "the older generation is superseded");
    let entry = fixture.store.message_entries(&[id]).await.unwrap().remove(0);
    assert_eq!((entry.state, entry.generation, entry.attempt), (MessageState::Scheduled, 2, 0));
    assert_eq!((entry.due_at, entry.eligible_at), (due_at, due_at));
    assert_eq!(admit(&fixture, lease, id, 2).await, Admission::Admitted { attempt: 1 });

    let nobody = MessageId::from_bytes([9; 16]);
    assert_eq!(fixture.store.cancel(nobody, NOW).await.unwrap(), Cancelled::NotFound);
    assert_eq!(fixture.store.reschedule(nobody, NOW).await.unwrap(), Rescheduled::NotFound);
    assert!(fixture.store.message_entries(&[nobody]).await.unwrap().is_empty());
}

// TL-6
#[tokio::test]
async fn the_next_owner_finds_and_settles_what_a_dead_one_left() {
    let fixture = start().await;
    let messages: Vec<_> = (0..3).map(|_| fixture.message("sink", NOW)).collect();
    let mut all: Vec<_> = messages.iter().map(|message| message.id).collect();
    all.sort_unstable();
    fixture.emit(messages).await;
    let dead = acquire(&fixture, shard(&fixture)).await;
    for id in &all {
        admit(&fixture, dead, *id, 1).await;
    }
    fixture.advance(LEASE);
    let next = acquire(&fixture, dead.shard.0).await;
    let left = fixture.store.publishing_entries(next.shard, None, 2).await.unwrap();
    assert_eq!(left.iter().map(|entry| entry.id).collect::<Vec<_>>(), all[..2]);
    let left = fixture.store.publishing_entries(next.shard, Some(all[1]), 2).await.unwrap();
    assert_eq!(left.iter().map(|entry| (entry.id, entry.attempt)).collect::<Vec<_>>(), [(all[2], 1)]);
    assert!(record(&fixture, next, all[0], 1, AfterAttempt::RetryAt(NOW)).await);
    assert!(record(&fixture, next, all[1], 1, AfterAttempt::Uncertain).await);
    assert_eq!(fixture.message_state(all[1]).await, MessageState::Uncertain);
}

// TL-7
#[tokio::test]
async fn an_owner_that_lost_its_shard_admits_and_records_nothing() {
    let fixture = start().await;
    let (id, old) = scheduled(&fixture).await;
    let other = fixture.message("sink", NOW);
    fixture.emit(vec![other.clone()]).await;
    admit(&fixture, old, id, 1).await;
    let rival = fixture.runtime();
    let held = fixture.store.acquire_shard(old.shard, rival, LEASE, fixture.now()).await.unwrap();
    assert_eq!(held, None, "the lease still holds");

    fixture.advance(LEASE);
    if fixture.store.is_shared() {
        assert_eq!(admit(&fixture, old, other.id, 1).await, Admission::Fenced, "the lease ran out");
    }
    let new = fixture.store.acquire_shard(old.shard, rival, LEASE, fixture.now()).await.unwrap().unwrap();
    assert_eq!(new.epoch, old.epoch + 1);
    assert_eq!(admit(&fixture, old, other.id, 1).await, Admission::Fenced);
    assert!(!record(&fixture, old, id, 1, AfterAttempt::Published).await);
    assert!(!expire(&fixture, old, other.id).await);
    assert_eq!(fixture.store.renew_shard(old, LEASE, fixture.now()).await.unwrap(), None);
    fixture.store.release_shard(old).await.unwrap();
    assert_eq!(admit(&fixture, new, other.id, 1).await, Admission::Admitted { attempt: 1 });
    assert!(record(&fixture, new, id, 1, AfterAttempt::Published).await);
}

// TL-7, TL-3: by the clock of the host, which may be set, no lease of a host that is alone ends.
#[tokio::test]
async fn a_lease_that_ran_out_by_a_clock_that_was_set_still_admits_where_nobody_else_could_have_the_shard() {
    let fixture = start().await;
    if fixture.store.is_shared() {
        return;
    }
    let (id, lease) = scheduled(&fixture).await;
    fixture.advance(100 * LEASE);
    assert_eq!(admit(&fixture, lease, id, 1).await, Admission::Admitted { attempt: 1 });
}

// TL-7
#[tokio::test]
async fn a_shard_is_renewed_given_up_and_taken_again() {
    let fixture = start().await;
    let runtime = fixture.runtime();
    let acquire = async |runtime| fixture.store.acquire_shard(ShardId(0), runtime, LEASE, fixture.now()).await.unwrap();
    let lease = acquire(runtime).await.unwrap();
    fixture.advance(LEASE / 2);
    let renewed = fixture.store.renew_shard(lease, LEASE, fixture.now()).await.unwrap().unwrap();
    assert_eq!((renewed.epoch, renewed.until), (lease.epoch, fixture.now() + LEASE));
    assert_eq!(acquire(runtime).await.unwrap().epoch, lease.epoch + 1, "its owner gets a new epoch");
    fixture.store.release_shard(ShardLease { epoch: lease.epoch + 1, ..lease }).await.unwrap();
    assert_eq!(acquire(fixture.runtime()).await.unwrap().epoch, lease.epoch + 2);
    let strange = fixture.store.acquire_shard(ShardId(7), runtime, LEASE, fixture.now()).await;
    assert!(matches!(strange, Err(StoreError::Refused(_))));
}

async fn expire(fixture: &Fixture, lease: ShardLease, id: MessageId) -> bool {
    let request = AdmissionRequest { id, generation: 1 };
    fixture.store.expire(lease, vec![request], fixture.now()).await.unwrap()[0]
}

// TL-3
#[tokio::test]
async fn a_message_expires_when_its_time_is_over_and_not_before() {
    let fixture = start().await;
    let mut message = fixture.message("sink", NOW);
    message.expire_at = Some(NOW + Duration::from_secs(10));
    let forever = fixture.message("sink", NOW);
    fixture.emit(vec![message.clone(), forever.clone()]).await;
    let lease = acquire(&fixture, shard(&fixture)).await;
    assert!(!expire(&fixture, lease, message.id).await);
    fixture.advance(Duration::from_secs(10));
    assert!(expire(&fixture, lease, message.id).await);
    assert!(!expire(&fixture, lease, message.id).await, "it has ended");
    assert!(!expire(&fixture, lease, forever.id).await);
    assert_eq!(fixture.message_state(message.id).await, MessageState::Expired);
}

// TL-2
#[tokio::test]
async fn a_longer_feed_is_told() {
    let fixture = start().await;
    let mut feed = fixture.store.subscribe_feed();
    let (id, lease) = scheduled(&fixture).await;
    assert!(feed.has_changed().unwrap());
    feed.mark_unchanged();
    admit(&fixture, lease, id, 1).await;
    assert!(!feed.has_changed().unwrap(), "its place in the feed is the same");
    record(&fixture, lease, id, 1, AfterAttempt::RetryAt(NOW)).await;
    fixture.store.cancel(id, NOW).await.unwrap();
    assert!(feed.has_changed().unwrap());
}
