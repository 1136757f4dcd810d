//! What people read: tables, sizes, ages; and `--json` for programs.

use std::{borrow::Cow, fmt::Write as _, io::Write};

use serde::Serialize;

/// Prints text as it is. That nobody reads it is an error like any other; `main` knows a closed pipe.
pub(crate) fn text(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Prints a line.
pub(crate) fn line(line: &str) -> anyhow::Result<()> {
    text(&format!("{line}\n"))
}

/// Prints one JSON document.
pub(crate) fn json<T: Serialize>(value: &T) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)?;
    Ok(())
}

/// Prints one JSON document on a line of its own.
pub(crate) fn json_line<T: Serialize>(value: &T) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, value)?;
    writeln!(out)?;
    out.flush()?;
    Ok(())
}

/// Text from outside, which may be a stranger's, made harmless for a terminal: control characters are shown as
/// escapes instead of being obeyed.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let shown = text.chars().fold(String::with_capacity(text.len()), |mut shown, c| {
        if c.is_control() {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
        shown
    });
    Cow::Owned(shown)
}

/// Lays rows out in columns as wide as their widest cell; the last column is not padded.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| plain(cell).into_owned()).collect()).collect();
    let mut widths: Vec<usize> = header.iter().map(|cell| cell.chars().count()).collect();
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let header: Vec<String> = header.iter().map(|cell| (*cell).to_owned()).collect();
    let mut text = String::new();
    for row in std::iter::once(&header).chain(&rows) {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Two columns: what, and its value.
pub(crate) fn fields(rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    rows.iter().fold(String::new(), |mut text, (name, value)| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name:<width$}  {}", plain(value));
        text
    })
}

/// A size with a binary unit: `4.0 GiB`.
#[allow(clippy::cast_precision_loss)] // one decimal is shown
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// Reads `512`, `100M`, `4G`, `2T` (1024-based, an `iB` or `B` may follow).
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let bad = || format!("`{text}` is not a size; write it as 512, 100M, 4G or 2T");
    let trimmed = text.trim_end_matches('B').trim_end_matches('i');
    let split = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
    let (digits, unit) = trimmed.split_at(split);
    let number: u64 = digits.parse().map_err(|_| bad())?;
    let shift = match unit {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(bad()),
    };
    number.checked_mul(1 << shift).ok_or_else(bad)
}

/// A span of time: `850 ms`, `12.3 s`, `4 min 05 s`.
pub(crate) fn span(ms: i64) -> String {
    match ms {
        i64::MIN..1_000 => format!("{} ms", ms.max(0)),
        1_000..60_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        _ => format!("{} min {:02} s", ms / 60_000, ms % 60_000 / 1000),
    }
}

/// A time as RFC 3339 in UTC, to the second.
pub(crate) fn time(unix_ms: i64) -> String {
    let days = unix_ms.div_euclid(86_400_000);
    let secs = unix_ms.rem_euclid(86_400_000) / 1000;
    let (year, month, day) = civil_from_days(days);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", secs / 3600, secs / 60 % 60, secs % 60)
}

/// The proleptic Gregorian date of a day counted from 1970-01-01.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    // Count from 0000-03-01, so that the leap day is the last day of a year of 400-year eras.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Shows a missing value as a dash.
pub(crate) fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_match_date_1() {
        // `date -u -d @N +%FT%TZ`
        assert_eq!(time(0), "1970-01-01T00:00:00Z");
        assert_eq!(time(951_782_400_000), "2000-02-29T00:00:00Z");
        assert_eq!(time(1_796_083_199_999), "2026-11-30T23:59:59Z");
    }

    #[test]
    fn sizes_are_read_and_shown() {
        assert_eq!(parse_size("4G"), Ok(4 << 30));
        assert_eq!(parse_size("100MiB"), Ok(100 << 20));
        assert_eq!(parse_size("512"), Ok(512));
        for bad in ["", "G", "4X", "-1", "99999999T"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
        assert_eq!(size(512), "512 B");
        assert_eq!(size(1536 << 20), "1.5 GiB");
        assert_eq!(span(850), "850 ms");
        assert_eq!(span(12_345), "12.3 s");
        assert_eq!(span(245_000), "4 min 05 s");
    }

    #[test]
    fn a_stranger_s_text_does_not_steer_the_terminal() {
        // ESC ] 0 ; sets the window's title in xterm; U+009B is CSI in one character.
        assert_eq!(plain("a\u{1b}]0;x\u{7}\u{9b}2J\nb"), "a\\u{1b}]0;x\\u{7}\\u{9b}2J\\nb");
        assert_eq!(plain("größe"), "größe");
        assert_eq!(table(&["A"], &[vec!["\u{1b}".into()]]), "A\n\\u{1b}\n");
        assert_eq!(fields(&[("a", "\r".into())]), "a  \\r\n");
    }

    #[test]
    fn tables_line_up() {
        let rows = vec![vec!["a".into(), "x".into()], vec!["long".into(), "y".into()]];
        assert_eq!(table(&["ID", "V"], &rows), "ID    V\na     x\nlong  y\n");
    }
}
