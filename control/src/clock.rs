//! The one place where control asks for the time; deciding code gets it as a parameter.

use time::OffsetDateTime;

/// Milliseconds since the Unix epoch.
pub(crate) fn unix_ms() -> i64 {
    // In range until the year 292 million.
    i64::try_from(OffsetDateTime::now_utc().unix_timestamp_nanos() / 1_000_000).unwrap_or(i64::MAX)
}
