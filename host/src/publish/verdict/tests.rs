use std::io;

use http::HeaderValue;

use super::*;

const NOW: Timestamp = Timestamp::from_millis(784_111_777_000); // Sun, 06 Nov 1994 08:49:37 GMT

fn answered(status: u16, retry_after: Option<&'static str>) -> Verdict {
    let mut headers = HeaderMap::new();
    if let Some(value) = retry_after {
        headers.insert(RETRY_AFTER, HeaderValue::from_static(value));
    }
    Verdict::answered(StatusCode::from_u16(status).unwrap(), &headers, NOW)
}

#[test]
fn every_answer_has_an_outcome() {
    let retriable = Outcome::Retriable { retry_after: None };
    for (statuses, outcome, destination_failed) in [
        (vec![200, 201, 202, 204, 299], Outcome::Published, false),
        (vec![408, 410, 429], retriable.clone(), false),
        (vec![500, 502, 503, 504, 599], retriable, true),
        (vec![101, 301, 302, 303, 307, 308, 400, 401, 403, 404, 413, 422, 499, 600, 999], Outcome::Permanent, false),
    ] {
        for status in statuses {
            let verdict = answered(status, None);
            assert_eq!(verdict.outcome, outcome, "{status}");
            assert_eq!(verdict.destination_failed, destination_failed, "{status}");
            assert_eq!(verdict.destination_gone, status == 410);
            assert_eq!(verdict.status, Some(status));
            assert_eq!(verdict.error.is_none(), outcome == Outcome::Published, "{status}");
            assert_eq!(verdict.lane_delay, None);
        }
    }
}

#[test]
fn only_throttled_and_unavailable_answers_delay_the_lane() {
    for status in [429, 503] {
        let verdict = answered(status, Some("120"));
        assert_eq!(verdict.lane_delay, Some(Duration::from_secs(120)));
        assert_eq!(verdict.outcome, Outcome::Retriable { retry_after: Some(Duration::from_secs(120)) });
    }
    for status in [200, 301, 404, 408, 500] {
        assert_eq!(answered(status, Some("120")).lane_delay, None, "{status}");
    }
}

#[test]
fn retry_after_is_seconds_or_a_date_and_nonsense_is_no_wish() {
    let wish = |text| answered(503, Some(text)).lane_delay;
    assert_eq!(wish("1"), Some(Duration::from_secs(1)));
    assert_eq!(wish("99999999999999999999999"), Some(Duration::MAX));
    assert_eq!(wish("Sun, 06 Nov 1994 08:50:37 GMT"), Some(Duration::from_secs(60)));
    for nothing in ["", "0", "-1", "1.5", "soon", "Sun, 06 Nov 1994 08:49:36 GMT", "\u{7f}"] {
        let mut headers = HeaderMap::new();
        if let Ok(value) = HeaderValue::from_bytes(nothing.as_bytes()) {
            headers.insert(RETRY_AFTER, value);
        }
        assert_eq!(Verdict::answered(StatusCode::SERVICE_UNAVAILABLE, &headers, NOW).lane_delay, None, "{nothing:?}");
    }
}

// TL-6
#[test]
fn what_was_not_sent_is_tried_again_and_what_may_have_been_is_unknown() {
    let refused = ConnectError::Dial(io::ErrorKind::ConnectionRefused.into());
    for connection in [refused, ConnectError::NoAddress, ConnectError::TimedOut, ConnectError::Tls("bad".into())] {
        let verdict = Verdict::not_connected(&connection);
        assert_eq!(verdict.outcome, Outcome::Retriable { retry_after: None }, "{connection}");
        assert!(verdict.destination_failed && !verdict.denied);
    }
    let verdict = Verdict::unanswered("gone");
    assert_eq!((verdict.outcome, verdict.destination_failed), (Outcome::Unknown, true));
}

#[test]
fn error_texts_are_cut() {
    let text = Verdict::host_failed("x".repeat(10_000)).error.unwrap();
    assert!(text.len() <= failure::FAILURE_TEXT_BYTES_MAX);
}
