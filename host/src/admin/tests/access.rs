//! Access: refusals come before any lookup.

use expect_test::expect;

use super::{Desk, shown};

#[tokio::test]
async fn without_a_token_only_what_names_this_machine_is_answered() {
    let desk = Desk::open(None).await;
    for host in ["localhost", "LOCALHOST:1", "127.0.0.1:8081", "127.1.2.3", "[::1]:8081"] {
        assert_eq!(desk.ask("GET", "/healthz", &[("host", host)], "").await.status, 200, "{host}");
    }
    for host in ["evil.example", "localhost.evil.example", "10.0.0.1", "127.0.0.1.evil.example", "[::2]", "", "@"] {
        assert_eq!(desk.ask("GET", "/healthz", &[("host", host)], "").await.status, 403, "{host}");
    }
}

#[tokio::test]
async fn without_a_token_a_page_from_elsewhere_is_not_answered() {
    let desk = Desk::open(None).await;
    let path = "/api/v1/messages/msg_00000000000000000000000000000000/cancel";
    for origin in ["https://evil.example", "null", "http://localhost.evil.example"] {
        assert_eq!(desk.ask("POST", path, &[("origin", origin)], "").await.status, 403, "{origin}");
    }
    let address = desk.address.to_string();
    let (own, secure) = (format!("http://{address}"), format!("https://{address}"));
    for origin in [own.as_str(), secure.as_str()] {
        assert_eq!(desk.ask("POST", path, &[("origin", origin)], "").await.status, 404, "{origin}");
    }
    // A tunnel has a port of its own.
    let tunnel = [("host", "localhost:9000"), ("origin", "http://LOCALHOST:9000")];
    assert_eq!(desk.ask("POST", path, &tunnel, "").await.status, 404);
}

#[tokio::test]
async fn without_a_token_a_page_of_another_server_on_this_machine_is_not_answered() {
    let desk = Desk::open(None).await;
    let path = "/api/v1/messages/msg_00000000000000000000000000000000/cancel";
    let port = desk.address.port();
    for origin in
        ["http://127.0.0.1:3000".to_owned(), "http://localhost".to_owned(), format!("http://localhost:{port}")]
    {
        assert_eq!(desk.ask("POST", path, &[("origin", &origin)], "").await.status, 403, "{origin}");
    }
    for site in ["cross-site", "same-site", "?"] {
        for (method, path) in [("POST", path), ("GET", "/api/v1/stats"), ("GET", "/metrics")] {
            assert_eq!(desk.ask(method, path, &[("sec-fetch-site", site)], "").await.status, 403, "{site} {path}");
        }
    }
    for site in ["same-origin", "none"] {
        assert_eq!(desk.ask("GET", "/api/v1/stats", &[("sec-fetch-site", site)], "").await.status, 200, "{site}");
    }
}

/// Another origin's page can send a token only after a preflight, and that is refused.
#[tokio::test]
async fn no_page_from_elsewhere_may_send_a_token() {
    let desk = Desk::open(Some("a-token-of-20-letters")).await;
    let asks = [
        ("origin", "https://evil.example"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization"),
    ];
    for path in ["/api/v1/lanes/gate", "/console/"] {
        let answer = desk.ask("OPTIONS", path, &asks, "").await;
        assert!(!answer.status.is_success(), "{path}");
        assert!(answer.headers.keys().all(|name| !name.as_str().starts_with("access-control-")), "{path}");
    }
}

#[tokio::test]
async fn with_a_token_only_the_probes_are_open() {
    let desk = Desk::open(Some("a-token-of-20-letters")).await;
    assert_eq!(desk.get("/healthz").await.status, 200);
    assert_eq!(desk.get("/readyz").await.status, 503, "it is open, and says that the host is starting");
    for path in ["/metrics", "/api/v1/stats", "/api/v1/events", "/nowhere"] {
        let answer = desk.get(path).await;
        assert_eq!(answer.status, 401, "{path}");
        assert_eq!(answer.headers["www-authenticate"], "Bearer");
    }
    for wrong in ["Bearer a-token-of-20-letterz", "Bearer ", "Basic a-token-of-20-letters", "a-token-of-20-letters", ""]
    {
        assert_eq!(desk.ask("GET", "/nowhere", &[("authorization", wrong)], "").await.status, 401, "{wrong}");
    }
    for right in ["Bearer a-token-of-20-letters", "bearer a-token-of-20-letters"] {
        let headers = [("authorization", right), ("host", "forebay.internal")];
        assert_eq!(desk.ask("GET", "/nowhere", &headers, "").await.status, 404, "{right}");
    }
}

#[tokio::test]
async fn what_cannot_be_understood_is_named() {
    let desk = Desk::open(None).await;
    let mut answers = String::new();
    for (method, path, body) in [
        ("GET", "/api", ""),
        ("GET", "/api/v1/events/", ""),
        ("DELETE", "/api/v1/events", ""),
        ("GET", "/api/v1/events/42", ""),
        ("GET", "/api/v1/work-items/evt_00000000000000000000000000000000", ""),
        ("GET", "/api/v1/events?state=finished", ""),
        ("GET", "/api/v1/events?namespace=A", ""),
        ("GET", "/api/v1/events?limit=0", ""),
        ("GET", "/api/v1/events?limit=1001", ""),
        ("GET", "/api/v1/events?after=msg_00000000000000000000000000000000", ""),
        ("GET", "/api/v1/events?colour=red", ""),
        ("GET", "/api/v1/messages?limit=1&limit=2", ""),
        ("POST", "/api/v1/messages/msg_00000000000000000000000000000000/reschedule", ""),
        ("POST", "/api/v1/messages/msg_00000000000000000000000000000000/reschedule", "{}"),
        ("POST", "/api/v1/messages/msg_00000000000000000000000000000000/reschedule", r#"{"due_at":"tomorrow"}"#),
        (
            "POST",
            "/api/v1/messages/msg_00000000000000000000000000000000/reschedule",
            r#"{"due_at":"1969-01-01T00:00:00Z"}"#,
        ),
        ("POST", "/api/v1/messages/msg_00000000000000000000000000000000/reschedule", r#"{"delay_ms":-1}"#),
        ("POST", "/api/v1/messages/msg_00000000000000000000000000000000/reschedule", r#"{"delay_ms":1000000000000}"#),
        ("POST", "/api/v1/messages/msg_00000000000000000000000000000000/reschedule", r#"{"delay":1}"#),
    ] {
        answers.push_str(&format!("{}\n", shown(&desk.ask(method, path, &[], body).await)));
    }
    expect![[r#"
        404 {"error":{"code":"not_found","message":"there is no such path"}}
        404 {"error":{"code":"not_found","message":"there is no such path"}}
        405 {"error":{"code":"method_not_allowed","message":"this path does not answer this method"}}
        400 {"error":{"code":"invalid","message":"`42` is not an event id: expected `evt_` and 32 hex digits"}}
        400 {"error":{"code":"invalid","message":"`evt_00000000000000000000000000000000` is not a work item id: expected `wi_` and 32 hex digits"}}
        400 {"error":{"code":"invalid","message":"parameter `state`: it must be one of ready, delayed, blocked, processing, done, dead"}}
        400 {"error":{"code":"invalid","message":"parameter `namespace`: `A` cannot be a namespace name: use 1 to 63 of a-z, 0-9, `-` and `_`, beginning with a letter or digit"}}
        400 {"error":{"code":"invalid","message":"parameter `limit`: it must be a whole number from 1 to 1000"}}
        400 {"error":{"code":"invalid","message":"parameter `limit`: it must be a whole number from 1 to 1000"}}
        400 {"error":{"code":"invalid","message":"parameter `after`: `msg_00000000000000000000000000000000` is not an event id: expected `evt_` and 32 hex digits"}}
        400 {"error":{"code":"invalid","message":"unknown parameter `colour`"}}
        400 {"error":{"code":"invalid","message":"parameter `limit` is given twice"}}
        400 {"error":{"code":"invalid","message":"the body is malformed: EOF while parsing a value at line 1 column 0"}}
        400 {"error":{"code":"invalid","message":"give either `due_at` or `delay_ms`"}}
        400 {"error":{"code":"invalid","message":"`due_at` must be an RFC 3339 time, like 2030-01-31T08:00:00Z"}}
        400 {"error":{"code":"invalid","message":"the new time must not be before 1970"}}
        400 {"error":{"code":"invalid","message":"the body is malformed: invalid value: integer `-1`, expected u64 at line 1 column 14"}}
        400 {"error":{"code":"invalid","message":"the new time must be less than ten years away"}}
        400 {"error":{"code":"invalid","message":"the body is malformed: unknown field `delay`, expected `due_at` or `delay_ms` at line 1 column 8"}}
    "#]].assert_eq(&answers);
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let desk = Desk::open(None).await;
    let path = "/api/v1/messages/msg_00000000000000000000000000000000/reschedule";
    let answer = desk.post(path, &" ".repeat(super::super::REQUEST_BYTES_MAX + 1)).await;
    assert_eq!(answer.status, 413);
}
