//! Destinations that are set while hosts run.

use super::*;
use crate::model::destination::DESTINATIONS_SET_MAX;
use crate::store::{DestinationChange, DestinationChanged, DestinationRow, DestinationWish, Pending};

async fn change(fixture: &Fixture, name: &str, wish: DestinationWish, expected: Option<u64>) -> DestinationChanged {
    let change = DestinationChange { name: name.parse().unwrap(), wish, expected, now: fixture.now() };
    fixture.store.change_destination(change).await.unwrap()
}

fn set(document: &str) -> DestinationWish {
    DestinationWish::Set(document.to_owned())
}

async fn row(fixture: &Fixture, name: &str) -> Option<DestinationRow> {
    fixture.store.destinations().await.unwrap().into_iter().find(|row| row.name.as_str() == name)
}

// LAN-5
#[tokio::test]
async fn a_change_of_another_version_changes_nothing_and_no_version_comes_twice() {
    let fixture = start().await;
    let mut changes = fixture.store.subscribe_destinations();
    assert_eq!(fixture.store.destinations_version().await.unwrap(), 0);
    assert_eq!(change(&fixture, "crm", set("{}"), Some(3)).await, DestinationChanged::Stale(0));
    assert_eq!(change(&fixture, "crm", DestinationWish::Remove, None).await, DestinationChanged::NotFound);
    assert!(!changes.has_changed().unwrap(), "nothing was changed");
    assert_eq!(change(&fixture, "crm", set("{\"a\":1}"), Some(0)).await, DestinationChanged::Done(1));
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
    fixture.advance(Duration::from_secs(5));
    assert_eq!(change(&fixture, "crm", set("{}"), Some(0)).await, DestinationChanged::Stale(1));
    assert_eq!(change(&fixture, "crm", DestinationWish::Forget, Some(2)).await, DestinationChanged::Stale(1));
    assert_eq!(change(&fixture, "erp", set("{}"), None).await, DestinationChanged::Done(2));
    assert_eq!(change(&fixture, "crm", set("{\"a\":2}"), Some(1)).await, DestinationChanged::Done(3));
    let crm = row(&fixture, "crm").await.unwrap();
    assert_eq!((crm.document.as_str(), crm.version, crm.removed), ("{\"a\":2}", 3, false));
    assert_eq!((crm.created_at, crm.changed_at), (START, fixture.now()));

    // One that is waited for is remembered; to whoever sets it, it is not there.
    assert_eq!(change(&fixture, "crm", DestinationWish::Remove, Some(3)).await, DestinationChanged::Done(4));
    assert!(row(&fixture, "crm").await.unwrap().removed);
    assert_eq!(change(&fixture, "crm", set("{}"), Some(4)).await, DestinationChanged::Stale(0));
    assert_eq!(change(&fixture, "crm", set("{}"), Some(0)).await, DestinationChanged::Done(5));
    assert!(!row(&fixture, "crm").await.unwrap().removed);
    assert_eq!(change(&fixture, "crm", DestinationWish::Forget, None).await, DestinationChanged::Done(6));
    assert_eq!(row(&fixture, "crm").await, None);
    assert_eq!(change(&fixture, "crm", set("{}"), Some(0)).await, DestinationChanged::Done(7));
    assert_eq!(fixture.store.destinations_version().await.unwrap(), 7);
}

// LAN-5
#[tokio::test]
async fn there_are_no_more_destinations_than_may_be() {
    let fixture = start().await;
    for number in 0..DESTINATIONS_SET_MAX {
        let changed = change(&fixture, &format!("to-{number}"), set("{}"), None).await;
        assert_eq!(changed, DestinationChanged::Done(number as u64 + 1));
    }
    assert_eq!(change(&fixture, "one-more", set("{}"), None).await, DestinationChanged::TooMany);
    assert!(matches!(change(&fixture, "to-7", set("{}"), None).await, DestinationChanged::Done(_)));
    assert_eq!(fixture.store.destinations().await.unwrap().len(), DESTINATIONS_SET_MAX);
}

// LAN-5
#[tokio::test]
async fn what_waits_for_a_destination_is_counted_and_what_has_ended_is_not() {
    let fixture = start().await;
    let to = |name: &str| fixture.message(name, START);
    let ids = fixture.emit(vec![to("crm"), to("erp"), to("crm"), to("crm")]).await;
    let pending = async |name: &str| fixture.store.pending_of(&name.parse().unwrap()).await.unwrap();
    assert_eq!(pending("crm").await, Pending { messages: 3, more: false });
    fixture.store.cancel(ids[0], fixture.now()).await.unwrap();
    assert_eq!(pending("crm").await, Pending { messages: 2, more: false });
    assert_eq!(pending("erp").await, Pending { messages: 1, more: false });
    assert_eq!(pending("none").await, Pending { messages: 0, more: false });
}
