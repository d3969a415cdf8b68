//! `Retry-After`: how long a server wishes to be left alone.

use std::time::Duration;

use http::HeaderValue;
use jiff::fmt::rfc2822;

use crate::model::time::Timestamp;

/// `Retry-After`: whole seconds, or an HTTP date in its one current form (RFC 9110, 10.2.3). Nonsense is no wish. The
/// caller bounds it.
pub(crate) fn retry_after(value: &HeaderValue, now: Timestamp) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(text.parse().map_or(Duration::MAX, Duration::from_secs));
    }
    let date = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    Some(Timestamp::from_millis(date.as_millisecond()).since(now))
}
