use std::io;

use http::HeaderValue;

use super::*;

const NOW: Timestamp = Timestamp::from_millis(784_111_777_000); // Sun, 06 Nov 1994 08:49:37 GMT
const RETRY: RetryPolicy =
    RetryPolicy { initial: Duration::from_secs(2), max: Duration::from_secs(60), failures_max: 3 };

fn answered(status: u16, retry_after: Option<&'static str>) -> Verdict {
    answered_where(status, retry_after, &[])
}

fn answered_where(status: u16, retry_after: Option<&'static str>, retried: &[u16]) -> Verdict {
    let mut headers = HeaderMap::new();
    if let Some(value) = retry_after {
        headers.insert(RETRY_AFTER, HeaderValue::from_static(value));
    }
    Verdict::answered(StatusCode::from_u16(status).unwrap(), &headers, retried, NOW)
}

// TL-6
#[test]
fn every_answer_has_an_outcome() {
    use lanes::Verdict::{Busy, Failed, Healthy};
    let retriable = Outcome::Retriable { retry_after: None };
    for (statuses, outcome, of_destination) in [
        (vec![200, 201, 202, 204, 299], Outcome::Published, Healthy),
        (vec![408, 410, 429], retriable.clone(), Busy),
        (vec![500, 501, 503, 599], retriable, Failed),
        (vec![502, 504], Outcome::Unknown, Failed),
        (vec![101, 301, 302, 303, 307, 308, 400, 401, 403, 404, 413, 422, 499, 600, 999], Outcome::Permanent, Healthy),
    ] {
        for status in statuses {
            let verdict = answered(status, None);
            assert_eq!(verdict.outcome(), outcome, "{status}");
            assert_eq!(verdict.of_destination(), of_destination, "{status}");
            assert_eq!(verdict == Verdict::Gone, status == 410);
            assert_eq!(verdict.status(), Some(status));
            assert_eq!(verdict.error().is_none(), outcome == Outcome::Published, "{status}");
            assert_eq!(verdict.spends(), status != 410);
        }
    }
}

// LAN-3
#[test]
fn what_a_destination_retries_ends_no_message() {
    for status in [401, 404, 302] {
        let verdict = answered_where(status, None, &[401, 404, 302]);
        assert_eq!(verdict.outcome(), Outcome::Retriable { retry_after: None }, "{status}");
        assert_eq!((verdict.of_destination(), verdict.status()), (lanes::Verdict::Busy, Some(status)));
        assert!(verdict.spends(), "it is not tried for ever");
    }
    assert_eq!(answered_where(403, None, &[401, 404]).outcome(), Outcome::Permanent);
    assert_eq!(answered_where(200, None, &[401, 404]).outcome(), Outcome::Published);
}

// LAN-1
#[test]
fn what_is_busy_or_unavailable_is_left_alone_as_long_as_it_wishes_and_what_is_busy_also_without_a_wish() {
    for status in [429, 503] {
        let verdict = answered(status, Some("30"));
        assert_eq!(verdict.lane_delay(&RETRY), Some(Duration::from_secs(30)));
        assert_eq!(verdict.outcome(), Outcome::Retriable { retry_after: Some(Duration::from_secs(30)) });
        assert_eq!(answered(status, Some("120")).lane_delay(&RETRY), Some(RETRY.max));
    }
    for status in [408, 429] {
        assert_eq!(answered(status, None).lane_delay(&RETRY), Some(RETRY.initial), "{status}");
    }
    for status in [200, 301, 404, 500, 502, 410] {
        assert_eq!(answered(status, Some("30")).lane_delay(&RETRY), None, "{status}");
    }
}

#[test]
fn retry_after_is_seconds_or_a_date_and_nonsense_is_no_wish() {
    let wish = |verdict: Verdict| match verdict {
        Verdict::Failed { wish, .. } => wish,
        other => panic!("{other:?}"),
    };
    assert_eq!(wish(answered(503, Some("1"))), Some(Duration::from_secs(1)));
    assert_eq!(wish(answered(503, Some("99999999999999999999999"))), Some(Duration::MAX));
    assert_eq!(wish(answered(503, Some("Sun, 06 Nov 1994 08:50:37 GMT"))), Some(Duration::from_secs(60)));
    for nothing in ["", "0", "-1", "1.5", "soon", "Sun, 06 Nov 1994 08:49:36 GMT", "\u{7f}"] {
        let mut headers = HeaderMap::new();
        if let Ok(value) = HeaderValue::from_bytes(nothing.as_bytes()) {
            headers.insert(RETRY_AFTER, value);
        }
        let verdict = Verdict::answered(StatusCode::SERVICE_UNAVAILABLE, &headers, &[], NOW);
        assert_eq!(wish(verdict), None, "{nothing:?}");
    }
}

// TL-6
#[test]
fn what_was_not_sent_is_tried_again_and_what_may_have_been_is_unknown() {
    let refused = ConnectError::Dial(io::ErrorKind::ConnectionRefused.into());
    for connection in [refused, ConnectError::NoAddress, ConnectError::TimedOut, ConnectError::Tls("bad".into())] {
        let verdict = Verdict::not_connected(&connection);
        assert_eq!(verdict.outcome(), Outcome::Retriable { retry_after: None }, "{connection}");
        assert_eq!((verdict.of_destination(), verdict.spends()), (lanes::Verdict::Failed, true));
    }
    let verdict = Verdict::unanswered("gone");
    assert_eq!((verdict.outcome(), verdict.of_destination()), (Outcome::Unknown, lanes::Verdict::Failed));
}

// LAN-3
#[test]
fn what_is_the_hosts_own_fault_spends_no_attempt() {
    for verdict in [
        Verdict::unfit("no secret"),
        Verdict::overdue(Overdue::Expiry),
        Verdict::overdue(Overdue::Lease),
        Verdict::not_made("no body"),
    ] {
        assert_eq!(verdict.outcome(), Outcome::Retriable { retry_after: None }, "{verdict:?}");
        assert!(!verdict.spends(), "{verdict:?}");
    }
    assert_eq!(Verdict::unfit("no secret").of_destination(), lanes::Verdict::Failed, "it holds the others back");
    assert_eq!(Verdict::overdue(Overdue::Lease).of_destination(), lanes::Verdict::NotCalled);
}

#[test]
fn error_texts_are_cut() {
    let text = Verdict::unfit("x".repeat(10_000)).error().unwrap();
    assert!(text.len() <= failure::FAILURE_TEXT_BYTES_MAX);
}
