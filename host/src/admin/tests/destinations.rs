//! Destinations over HTTP, before the host serves. `it::destinations` tests a running host.

use super::{Desk, shown};

// LAN-5
#[tokio::test]
async fn destinations_are_asked_for_by_their_names_once_the_host_serves() {
    let desk = Desk::open(None).await;
    for (method, path) in
        [("GET", "/api/v1/destinations"), ("GET", "/api/v1/destinations/crm"), ("DELETE", "/api/v1/destinations/crm")]
    {
        let answer = desk.ask(method, path, &[], "").await;
        assert_eq!(answer.status, 503, "{}", shown(&answer));
    }
    let put = async |path: &str, body: &str| shown(&desk.ask("PUT", path, &[], body).await);
    assert!(put("/api/v1/destinations/Big", "{}").await.starts_with("400"));
    assert!(put("/api/v1/destinations/crm", "[]").await.starts_with("400"));
    assert!(put("/api/v1/destinations/crm", "{").await.starts_with("400"));
    assert!(put("/api/v1/destinations/crm?versoin=1", "{}").await.contains("unknown parameter `versoin`"));
    assert!(put("/api/v1/destinations/crm?version=-1", "{}").await.contains("`version`"));
    let large = format!("{{\"url\":\"{}\"}}", "a".repeat(20_000));
    assert!(put("/api/v1/destinations/crm", &large).await.starts_with("413"));
    let answer = desk.ask("DELETE", "/api/v1/destinations/crm?pending=lose", &[], "").await;
    assert!(shown(&answer).contains("it must be one of wait"), "{}", shown(&answer));
    assert!(desk.store.destinations().await.unwrap().is_empty());
}
