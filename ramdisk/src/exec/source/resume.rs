//! When to ask again for the rest of an image, and whether an answer is that rest.
//!
//! ```text
//!            ┌───────────── bytes ─────────────┐
//!            ▼                                 │
//!  asking ─ head fits ─► reading ─ all bytes ──┼─► finished
//!    ▲        │             │ broken           │
//!    │        │ does not    ▼                  │
//!    │        ▼          waiting ── pause over ┘
//!    │      refused         │
//!    └──────────────────────┴─ silent too long, or too many breaks ─► given up
//! ```

use std::time::{Duration, Instant};

use http::{HeaderMap, StatusCode, header};

/// How patient a transfer is.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Time for a connection to be made.
    pub connect: Duration,
    /// Time without a byte on an open connection, after which it counts as broken.
    pub read: Duration,
    /// Time without a byte over all attempts, after which the source counts as gone. A site that restarts
    /// needs less.
    pub absence: Duration,
    /// Breaks in all.
    pub breaks: u32,
    /// Pause after a break; doubles while no byte comes.
    pub first_pause: Duration,
    /// Longest pause.
    pub longest_pause: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            read: Duration::from_secs(20),
            absence: Duration::from_secs(150),
            breaks: 100,
            first_pause: Duration::from_millis(250),
            longest_pause: Duration::from_secs(5),
        }
    }
}

/// Why the rest will not come.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GivenUp {
    /// Nothing came for too long.
    #[error("nothing came for {} s: {last}", .silent.as_secs())]
    Absent {
        /// Since the last byte.
        silent: Duration,
        /// How the last attempt failed.
        last: String,
    },
    /// It comes, but breaks and breaks.
    #[error("the connection broke {breaks} times: {last}")]
    Flaky {
        /// Number of breaks.
        breaks: u32,
        /// How the last attempt failed.
        last: String,
    },
}

/// Why an answer is not what was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// May pass: the server is starting, or has no lease at the moment.
    #[error("the server says {0}")]
    Unavailable(StatusCode),
    /// Will not pass by itself.
    #[error("the server says {0}")]
    Refused(StatusCode),
    /// Other bytes than those that control knows.
    #[error("the server has {found} bytes where {expected} are expected")]
    OtherSize {
        /// As the server says.
        found: u64,
        /// As control says.
        expected: u64,
    },
    /// A range that begins elsewhere, or none.
    #[error("the server's answer `{0}` is not the range that was asked for")]
    OtherRange(String),
}

/// The state of one transfer.
#[derive(Debug)]
pub struct Resume {
    patience: Patience,
    total: u64,
    offset: u64,
    breaks: u32,
    /// Breaks since the last byte.
    in_a_row: u32,
    last_byte: Instant,
}

impl Resume {
    /// A transfer of `total` bytes that begins now.
    pub fn new(total: u64, patience: Patience, now: Instant) -> Self {
        Self { patience, total, offset: 0, breaks: 0, in_a_row: 0, last_byte: now }
    }

    /// Bytes that have come.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// All bytes have come.
    pub fn is_finished(&self) -> bool {
        self.offset == self.total
    }

    /// Takes note of `count` bytes more; returns how many of them belong to the image.
    pub fn bytes(&mut self, count: usize, now: Instant) -> usize {
        let taken = u64::try_from(count).unwrap_or(u64::MAX).min(self.total - self.offset);
        self.offset += taken;
        self.in_a_row = 0;
        self.last_byte = now;
        usize::try_from(taken).unwrap_or(count)
    }

    /// A connection broke, or was not made: how long to wait before the next.
    pub fn broken(&mut self, last: String, now: Instant) -> Result<Duration, GivenUp> {
        self.breaks += 1;
        let pause = self.patience.first_pause.saturating_mul(1 << self.in_a_row.min(16));
        self.in_a_row += 1;
        let silent = now.saturating_duration_since(self.last_byte);
        if silent >= self.patience.absence {
            return Err(GivenUp::Absent { silent, last });
        }
        if self.breaks > self.patience.breaks {
            return Err(GivenUp::Flaky { breaks: self.breaks, last });
        }
        Ok(pause.min(self.patience.longest_pause))
    }

    /// Checks the head of an answer to a request from [`Self::offset`]. Returns how many bytes of the body
    /// come before that offset: a server may ignore ranges.
    pub fn check_head(&self, status: StatusCode, headers: &HeaderMap) -> Result<u64, HeadError> {
        let text = |name| headers.get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
        let expect_size = |found: u64| {
            if found == self.total {
                Ok(())
            } else {
                Err(HeadError::OtherSize { found, expected: self.total })
            }
        };
        match status {
            StatusCode::OK => {
                if let Some(length) = text(header::CONTENT_LENGTH).and_then(|text| text.parse().ok()) {
                    expect_size(length)?;
                }
                Ok(self.offset)
            }
            StatusCode::PARTIAL_CONTENT => {
                let range = text(header::CONTENT_RANGE).unwrap_or("");
                let other = || HeadError::OtherRange(range.chars().take(80).collect());
                let (first, size) = content_range(range).ok_or_else(other)?;
                size.map_or(Ok(()), expect_size)?;
                if first == self.offset { Ok(0) } else { Err(other()) }
            }
            _ if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                Err(HeadError::Unavailable(status))
            }
            _ => Err(HeadError::Refused(status)),
        }
    }
}

/// First byte and complete length (`None` for `*`) of a `Content-Range` (RFC 9110 §14.4).
fn content_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (range, size) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, _last) = range.split_once('-')?;
    let size = if size == "*" { None } else { Some(size.parse().ok()?) };
    Some((first.parse().ok()?, size))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn head(
        transfer: &Resume,
        status: u16,
        headers: &[(header::HeaderName, &str)],
    ) -> Result<u64, HeadError> {
        let map = headers.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect();
        transfer.check_head(StatusCode::from_u16(status).unwrap(), &map)
    }

    #[test]
    fn pauses_double_while_nothing_comes_and_start_over_after_a_byte() {
        let now = Instant::now();
        let mut transfer = Resume::new(100, Patience::default(), now);
        let mut pauses = || transfer.broken("x".into(), now).unwrap().as_millis();
        assert_eq!(
            [pauses(), pauses(), pauses(), pauses(), pauses(), pauses()],
            [250, 500, 1000, 2000, 4000, 5000]
        );
        assert_eq!(transfer.bytes(10, now), 10);
        assert_eq!(transfer.broken("x".into(), now), Ok(Duration::from_millis(250)));
    }

    #[test]
    fn a_source_that_is_away_for_two_minutes_is_waited_for_and_for_three_is_not() {
        let start = Instant::now();
        let mut transfer = Resume::new(100, Patience::default(), start);
        transfer.bytes(10, start + seconds(5));
        assert!(transfer.broken("refused".into(), start + seconds(125)).is_ok());
        assert_eq!(
            transfer.broken("refused".into(), start + seconds(185)),
            Err(GivenUp::Absent { silent: seconds(180), last: "refused".into() })
        );
    }

    #[test]
    fn a_source_that_breaks_forever_is_given_up() {
        let now = Instant::now();
        let patience = Patience { breaks: 3, ..Patience::default() };
        let mut transfer = Resume::new(100, patience, now);
        for _ in 0..3 {
            transfer.bytes(1, now);
            assert!(transfer.broken("reset".into(), now).is_ok());
        }
        let given_up = GivenUp::Flaky { breaks: 4, last: "reset".into() };
        assert_eq!(transfer.broken("reset".into(), now), Err(given_up));
    }

    #[test]
    fn bytes_beyond_the_total_are_not_taken() {
        let now = Instant::now();
        let mut transfer = Resume::new(100, Patience::default(), now);
        assert_eq!(transfer.bytes(90, now), 90);
        assert!(!transfer.is_finished());
        assert_eq!(transfer.bytes(20, now), 10);
        assert!(transfer.is_finished());
    }

    #[test]
    fn heads_are_checked_against_offset_and_size() {
        let now = Instant::now();
        let mut transfer = Resume::new(100, Patience::default(), now);
        transfer.bytes(40, now);
        let range = header::CONTENT_RANGE;
        assert_eq!(head(&transfer, 206, &[(range.clone(), "bytes 40-99/100")]), Ok(0));
        assert_eq!(head(&transfer, 206, &[(range.clone(), "bytes 40-99/*")]), Ok(0));
        assert_eq!(head(&transfer, 200, &[(header::CONTENT_LENGTH, "100")]), Ok(40), "ranges ignored");
        let other_size = Err(HeadError::OtherSize { found: 99, expected: 100 });
        assert_eq!(head(&transfer, 206, &[(range.clone(), "bytes 40-98/99")]), other_size);
        assert_eq!(head(&transfer, 200, &[(header::CONTENT_LENGTH, "99")]), other_size);
        for bad in ["bytes 41-99/100", "bytes */100", "lines 40-99/100", "bytes x-y/z", ""] {
            let result = head(&transfer, 206, &[(range.clone(), bad)]);
            assert_eq!(result, Err(HeadError::OtherRange(bad.to_owned())));
        }
        assert_eq!(head(&transfer, 503, &[]), Err(HeadError::Unavailable(StatusCode::SERVICE_UNAVAILABLE)));
        assert_eq!(head(&transfer, 404, &[]), Err(HeadError::Refused(StatusCode::NOT_FOUND)));
        assert_eq!(head(&transfer, 302, &[]), Err(HeadError::Refused(StatusCode::FOUND)));
    }
}
