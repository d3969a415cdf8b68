//! Budgets that are full, connections that are too many, and stopping.

use std::time::Duration;

use super::client::{Connection, Reply, head, request};
use super::fixture::{Setup, World, delivery, plain_route};
use crate::intake::IntakeOptions;
use crate::intake::server::Bounds;
use crate::model::verification::Verification;

const BODY: &[u8] = b"0123456789";

fn post(body: &[u8]) -> Vec<u8> {
    request("POST", "/in/acme/plain", &[], body)
}

/// Begins a request and comes back once it is admitted: its body is being waited for.
async fn admitted(world: &World) -> Connection {
    let mut connection = world.connect().await;
    let length = BODY.len().to_string();
    let expecting = head("POST", "/in/acme/plain", &[("content-length", &length), ("expect", "100-continue")]);
    connection.send(&expecting).await;
    assert_eq!(connection.reply().await.status, 100);
    connection
}

fn assert_come_back_later(reply: &Reply) {
    assert_eq!((reply.status, reply.code().as_str()), (503, "unavailable"));
    assert!((1..=30).contains(&reply.retry_after()), "{reply:?}");
}

// ADM-1, ADM-2
#[tokio::test]
async fn requests_above_the_budget_are_told_to_come_back_and_cost_nothing() {
    let options = IntakeOptions { requests_max: 1, ..Setup::default().options };
    let world = World::start(Setup { options, ..Setup::default() }).await;
    let mut first = admitted(&world).await;
    assert_eq!(world.metric("forebay_intake_in_flight"), 1.0);
    let mut second = world.connect().await;
    second.send(&post(BODY)).await;
    assert_come_back_later(&second.reply().await);
    assert!(world.events().await.is_empty());
    assert_eq!(world.answers(503, "requests_full"), 1);

    first.send(BODY).await;
    assert_eq!(first.reply().await.status, 202);
    second.send(&post(BODY)).await;
    assert_eq!(second.reply().await.status, 202, "the connection that was refused goes on");
    assert_eq!(world.events().await.len(), 2);
}

// ADM-1, ADM-2
#[tokio::test]
async fn bytes_above_the_budget_are_told_to_come_back() {
    let options = IntakeOptions { bytes_max: 100_000, ..Setup::default().options };
    let world = World::start(Setup { options, ..Setup::default() }).await;
    assert_come_back_later(&world.send(&post(&[b'x'; 200_000])).await);
    assert_eq!(world.answers(503, "bytes_full"), 1);
    assert_eq!(world.send(&post(&[b'x'; 60_000])).await.status, 202);
    assert_eq!(world.metric("forebay_intake_bytes_in_flight"), 0.0);
    assert_eq!(world.events().await.len(), 1);
}

// ADM-2
#[tokio::test]
async fn a_connection_above_the_bound_is_answered_before_it_is_closed() {
    let bounds = Bounds { connections_max: 1, shedding_max: 1, ..Setup::default().bounds };
    let world = World::start(Setup { bounds, ..Setup::default() }).await;
    let mut served = world.connect().await;
    served.send(&post(BODY)).await;
    assert_eq!(served.reply().await.status, 202);

    // More than are turned away at a time: the later ones wait their turn.
    let mut others = Vec::new();
    for _ in 0..3 {
        let mut other = world.connect().await;
        other.send(&post(BODY)).await;
        others.push(other);
    }
    for other in &mut others {
        let reply = other.reply().await;
        assert_come_back_later(&reply);
        assert_eq!(reply.header("connection"), Some("close"));
        other.closed().await;
    }
    assert_eq!(world.answers(503, "connections_full"), 3);
    served.send(&post(BODY)).await;
    assert_eq!(served.reply().await.status, 202);
    assert_eq!(world.events().await.len(), 2);
}

// ADM-1
#[tokio::test]
async fn a_body_that_drips_is_cut_off_at_the_deadline() {
    let options = IntakeOptions { deadline: Duration::from_millis(50), ..Setup::default().options };
    let world = World::start(Setup { options, ..Setup::default() }).await;
    let mut connection = world.connect().await;
    connection.send(&head("POST", "/in/acme/plain", &[("content-length", "10")])).await;
    connection.send(b"0").await;
    let reply = connection.reply().await;
    assert_eq!((reply.status, reply.code().as_str()), (408, "too_slow"));
    assert_eq!(reply.header("connection"), Some("close"));
    connection.closed().await;
    assert_eq!(world.metric("forebay_intake_in_flight"), 0.0);
    assert!(world.events().await.is_empty());
}

// ADM-2
#[tokio::test]
async fn a_route_whose_secret_the_operator_has_not_given_is_unavailable_not_forbidden() {
    let mut route = plain_route("token");
    let header = super::fixture::name("x-token");
    route.verification = Verification::SharedToken { header, secret: "absent".parse().unwrap() };
    let world = World::start(Setup { routes: vec![route], ..Setup::default() }).await;
    assert_come_back_later(&world.send(&request("POST", "/in/acme/token", &[("x-token", "t")], BODY)).await);
    assert_eq!(world.answers(503, "secret_unusable"), 1);
    assert!(world.events().await.is_empty());
}

// ADM-2
#[tokio::test]
async fn a_store_that_takes_nothing_is_a_503() {
    let world = World::start(Setup::default()).await;
    let mut connection = world.connect().await;
    world.store.close().await;
    connection.send(&post(BODY)).await;
    assert_come_back_later(&connection.reply().await);
    assert_eq!(world.answers(503, "store_unavailable"), 1);
}

// ADM-3: what was verified becomes durable, whatever becomes of its sender.
#[tokio::test]
async fn a_sender_that_goes_away_loses_nothing() {
    let world = World::start(Setup::default()).await;
    let mut work = world.store.subscribe_work();
    let mut connection = world.connect().await;
    connection.send(&delivery("d-1", b"{}")).await;
    drop(connection);
    work.changed().await.unwrap();
    let events = world.events().await;
    assert_eq!((events.len(), events[0].delivery_key.as_str()), (1, "d-1"));
}

// ADM-2
#[tokio::test]
async fn stopping_answers_what_was_admitted_and_turns_away_what_comes() {
    // As long as it takes: a body that comes before the end of its time is taken.
    let bounds = Bounds { late_bodies_max: Duration::from_secs(60), ..Setup::default().bounds };
    let mut world = World::start(Setup { bounds, ..Setup::default() }).await;
    let mut admitted = admitted(&world).await;
    let mut idle = world.connect().await;
    idle.send(&post(BODY)).await;
    assert_eq!(idle.reply().await.status, 202);

    world.stop.cancel();
    // Whether a request still came before the stop is a race; that it is answered is not.
    let refused = loop {
        let reply = world.send(&post(BODY)).await;
        if reply.status != 202 {
            break reply;
        }
    };
    assert_come_back_later(&refused);
    assert_eq!(refused.header("connection"), Some("close"));
    let before = world.events().await.len();

    admitted.send(BODY).await;
    assert_eq!(admitted.reply().await.status, 202);
    admitted.closed().await;
    idle.closed().await;
    world.stopped().await;
    assert_eq!(world.events().await.len(), before + 1);
}

// ADM-2
#[tokio::test]
async fn a_body_that_still_arrives_when_its_time_is_over_is_told_to_come_back() {
    let bounds = Bounds { late_bodies_max: Duration::from_millis(10), ..Setup::default().bounds };
    let mut world = World::start(Setup { bounds, ..Setup::default() }).await;
    let mut slow = admitted(&world).await;
    slow.send(&BODY[..1]).await;
    world.stop.cancel();
    let reply = slow.reply().await;
    assert_come_back_later(&reply);
    assert_eq!(reply.header("connection"), Some("close"));
    assert_eq!(world.answers(503, "stopping"), 1);
    slow.send(&BODY[1..]).await;
    slow.closed().await;
    world.stopped().await;
    assert!(world.events().await.is_empty());
}
