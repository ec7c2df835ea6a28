//! Formats values for people: times, durations, sizes, and untrusted text.

pub(crate) use goondan_protocol::shell::shell_quoted;

use super::invisible::judged;
use goondan_protocol::time::Timestamp;
use goondan_protocol::usage::UsageTotal;
use jiff::tz::TimeZone;
use std::fmt::Display;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

const MS_PER_SECOND: u64 = 1_000;
const MS_PER_MINUTE: u64 = 60 * MS_PER_SECOND;
const MS_PER_HOUR: u64 = 60 * MS_PER_MINUTE;
const MS_PER_DAY: u64 = 24 * MS_PER_HOUR;

/// Escapes text for a terminal: control characters except newline and tab, and characters that reorder or hide text,
/// are written as `\u{1b}` and the like.
pub(crate) fn printable(text: &str) -> String {
    escape(text, |c| c != '\n' && c != '\t')
}

/// Escapes text for one table cell or line: like [`printable`], including newlines and tabs.
pub(crate) fn one_line(text: &str) -> String {
    escape(text, |_| true)
}

fn escape(text: &str, also: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for (c, is_harmful) in judged(text) {
        if is_harmful && also(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// Quotes untrusted text with a mark before each line, so that it cannot be mistaken for output of `gdn`.
pub(crate) fn quoted(text: &str) -> String {
    let lines = printable(text);
    lines.lines().map(|line| format!("  │ {line}\n")).collect()
}

/// Width of the text on a terminal, in columns.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// Truncates the text to at most `columns` columns, with `…` at the cut.
pub(crate) fn fit(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 1;
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used > columns {
            break;
        }
        out.push(c);
    }
    out.push('…');
    out
}

/// Takes the characters that fit into `room` columns.
pub(crate) fn taken_while(chars: impl Iterator<Item = char>, room: usize) -> String {
    let mut used = 0;
    chars
        .take_while(|c| {
            used += c.width().unwrap_or(0);
            used <= room
        })
        .collect()
}

/// Wraps a text to lines of at most `first` columns, then at most `room`, between words if possible.
pub(crate) fn wrapped(text: &str, first: usize, room: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = text;
    loop {
        let room = if lines.is_empty() { first } else { room };
        if width(rest) <= room {
            lines.push(rest.to_owned());
            return lines;
        }
        let fits = taken_while(rest.chars(), room);
        // A character wider than the limit still gets its own line.
        let whole = fits
            .len()
            .max(rest.chars().next().map_or(0, char::len_utf8));
        // A space directly after the limit also ends a word.
        let with_next = rest.get(..=whole).or_else(|| rest.get(..whole));
        let (line, next) = match with_next.and_then(|line| line.rfind(' ')) {
            Some(at) if at > 0 => (rest.get(..at), rest.get(at + 1..)),
            _ => (rest.get(..whole), rest.get(whole..)),
        };
        lines.push(line.unwrap_or_default().to_owned());
        rest = next.unwrap_or_default();
        if rest.is_empty() {
            return lines;
        }
    }
}

/// Wraps a line to at most `columns` columns, and keeps its indentation.
pub(crate) fn folded(line: &str, columns: usize) -> Vec<String> {
    let text = line.trim_start_matches(' ');
    let indent = line.len() - text.len();
    let room = columns.saturating_sub(indent).max(1);
    let parts = wrapped(text, room, room).into_iter();
    parts.map(|part| format!("{:indent$}{part}", "")).collect()
}

/// Number of rows that a text takes on a terminal of this width, including the row after its last newline.
pub(crate) fn rows_of(text: &str, columns: usize) -> usize {
    let rows_of_line = |line: &str| {
        let (mut rows, mut column) = (1, 0);
        for wide in line
            .chars()
            .filter_map(unicode_width::UnicodeWidthChar::width)
        {
            if column + wide > columns {
                (rows, column) = (rows + 1, 0);
            }
            column += wide;
        }
        rows
    };
    text.split('\n').map(rows_of_line).sum()
}

/// Formats a duration in its two largest units: `412ms`, `1.2s`, `3m 05s`, `2h 10m`, `3d 4h`.
pub(crate) fn duration(ms: u64) -> String {
    match ms {
        0..MS_PER_SECOND => format!("{ms}ms"),
        MS_PER_SECOND..MS_PER_MINUTE => {
            format!("{}.{}s", ms / MS_PER_SECOND, ms % MS_PER_SECOND / 100)
        }
        MS_PER_MINUTE..MS_PER_HOUR => format!(
            "{}m {:02}s",
            ms / MS_PER_MINUTE,
            ms % MS_PER_MINUTE / MS_PER_SECOND
        ),
        MS_PER_HOUR..MS_PER_DAY => format!(
            "{}h {:02}m",
            ms / MS_PER_HOUR,
            ms % MS_PER_HOUR / MS_PER_MINUTE
        ),
        _ => format!("{}d {}h", ms / MS_PER_DAY, ms % MS_PER_DAY / MS_PER_HOUR),
    }
}

/// Formats the time from `at` to `now`; `0ms` if `at` is in the future.
pub(crate) fn age(at: Timestamp, now: Timestamp) -> String {
    duration(ms_between(at, now))
}

pub(crate) fn now() -> Timestamp {
    Timestamp::from_unix_millis(jiff::Timestamp::now().as_millisecond())
}

/// Formats a time in the local time zone: `2026-11-21 21:06:00`.
pub(crate) fn clock(at: Timestamp) -> String {
    zoned(at, "%Y-%m-%d %H:%M:%S")
}

/// Formats a time with milliseconds: `2026-11-21 21:06:00.123`.
pub(crate) fn clock_ms(at: Timestamp) -> String {
    zoned(at, "%Y-%m-%d %H:%M:%S%.3f")
}

fn zoned(at: Timestamp, format: &str) -> String {
    jiff::Timestamp::from_millisecond(at.as_unix_millis()).map_or_else(
        |_| at.to_string(),
        |at| at.to_zoned(TimeZone::system()).strftime(format).to_string(),
    )
}

/// Formats the time of day with milliseconds: `21:06:00.123`.
pub(crate) fn time_ms(at: Timestamp) -> String {
    let clock = clock_ms(at);
    clock
        .split_once(' ')
        .map_or("", |(_, time)| time)
        .to_owned()
}

/// Milliseconds between two times; 0 if the clock went back.
pub(crate) fn ms_between(from: Timestamp, to: Timestamp) -> u64 {
    let ms = to.as_unix_millis().saturating_sub(from.as_unix_millis());
    u64::try_from(ms).unwrap_or(0)
}

/// Formats a size: `17 B`, `1.2 KiB`, `3.4 MiB`.
pub(crate) fn bytes(size: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    const UNIT_BYTES: u64 = 1024;
    if size < UNIT_BYTES {
        return format!("{size} B");
    }
    let mut tenths = size.saturating_mul(10) / UNIT_BYTES;
    let mut unit = "KiB";
    for larger in UNITS.iter().skip(1) {
        if tenths < 10 * UNIT_BYTES {
            break;
        }
        tenths /= UNIT_BYTES;
        unit = larger;
    }
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

pub(crate) const UNKNOWN: &str = "unknown";

/// Formats the cost of replies, and notes how many replies of unknown cost it does not include.
pub(crate) fn cost(spending: &UsageTotal) -> String {
    match (spending.replies, spending.unpriced) {
        (_, 0) => spending.cost_micro_usd.to_string(),
        (all, unpriced) if unpriced >= all => UNKNOWN.to_owned(),
        _ => format!("{} and more", spending.cost_micro_usd),
    }
}

/// `1 agent`, `2 agents`.
pub(crate) fn count(number: impl Copy + Display + PartialEq + From<u8>, noun: &str) -> String {
    let ending = match noun {
        _ if number == 1.into() => "",
        _ if noun.ends_with('s') => "es",
        _ => "s",
    };
    format!("{number} {noun}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_show_two_units() {
        let cases = [
            (0, "0ms"),
            (999, "999ms"),
            (1_250, "1.2s"),
            (59_999, "59.9s"),
            (185_000, "3m 05s"),
            (7_800_000, "2h 10m"),
            (273_600_000, "3d 4h"),
        ];
        for (ms, text) in cases {
            assert_eq!(duration(ms), text);
        }
    }

    #[test]
    fn sizes_show_one_decimal() {
        let cases = [
            (0, "0 B"),
            (1_023, "1023 B"),
            (1_024, "1.0 KiB"),
            (1_048_575, "1023.9 KiB"),
            (1_048_576, "1.0 MiB"),
            (3_565_158, "3.3 MiB"),
        ];
        for (size, text) in cases {
            assert_eq!(bytes(size), text);
        }
        assert!(bytes(u64::MAX).ends_with("TiB"));
    }

    #[test]
    fn text_of_others_cannot_steer_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\n\tc\r"), "a\\u{1b}[2Jb\n\tc\\r");
        assert_eq!(one_line("a\nb\u{202e}"), "a\\nb\\u{202e}");
        assert_eq!(printable("가나다 é"), "가나다 é");
    }

    #[test]
    fn foreign_text_is_quoted_and_its_control_codes_escaped() {
        assert_eq!(
            quoted("a\u{1b}[2J\nhint: run it"),
            "  │ a\\u{1b}[2J\n  │ hint: run it\n"
        );
    }

    #[test]
    fn fitting_counts_columns_not_characters() {
        assert_eq!(fit("hello", 5), "hello");
        assert_eq!(fit("hello!", 5), "hell…");
        assert_eq!(fit("가나다", 5), "가나…");
        assert_eq!(width(&fit("가나다라", 6)), 5);
    }

    #[test]
    fn text_is_wrapped_between_words_without_loss() {
        assert_eq!(wrapped("one two three", 20, 20), ["one two three"]);
        assert_eq!(wrapped("one two three", 8, 20), ["one two", "three"]);
        assert_eq!(wrapped("one two three", 7, 20), ["one two", "three"]);
        assert_eq!(wrapped("onetwothree", 4, 5), ["onet", "wothr", "ee"]);
        assert_eq!(wrapped("가나다", 1, 1), ["가", "나", "다"]);
    }

    #[test]
    fn folded_lines_keep_their_indentation() {
        assert_eq!(folded("  one two three", 9), ["  one two", "  three"]);
        assert_eq!(folded("", 9), [""]);
        assert_eq!(folded("    ab", 2), ["    a", "    b"]);
    }

    #[test]
    fn rows_are_counted_as_a_terminal_breaks_lines() {
        assert_eq!(rows_of("", 10), 1);
        assert_eq!(rows_of("0123456789", 10), 1);
        assert_eq!(rows_of("0123456789a\n", 10), 3);
        // A wide character does not fit into the last column.
        assert_eq!(rows_of("가나다", 5), 2);
        assert_eq!(rows_of("012가", 4), 2);
    }

    #[test]
    fn an_age_is_never_negative() {
        let at = |ms| Timestamp::from_unix_millis(ms);
        assert_eq!(age(at(0), at(90_000)), "1m 30s");
        assert_eq!(age(at(5), at(0)), "0ms");
    }
}
