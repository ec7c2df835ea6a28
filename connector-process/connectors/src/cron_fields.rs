//! The fields of cron expressions: explains invalid ones, and finds the hours and weekdays that the
//! parser does not report.

use std::borrow::Cow;

/// A field of a cron expression.
struct Field {
    name: &'static str,
    least: u32,
    most: u32,
    /// Names that represent its numbers.
    words: &'static [&'static str],
}

const MONTHS: &[&str] = &[
    "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
];
const WEEKDAYS: &[&str] = &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

const FIELDS: [Field; 5] = [
    Field::of("minute", 0, 59, &[]),
    Field::of("hour", 0, 23, &[]),
    Field::of("day of the month", 1, 31, &[]),
    Field::of("month", 1, 12, MONTHS),
    Field::of("weekday", 0, 7, WEEKDAYS),
];

/// The hour's place among the fields.
const HOUR: usize = 1;

/// The weekday's place among the fields.
const WEEKDAY: usize = 4;

/// True if the hour of a valid expression can be each of the 24, however it is written.
pub(crate) fn names_every_hour(text: &str) -> bool {
    if text.starts_with('@') {
        return text.eq_ignore_ascii_case("@hourly");
    }
    let Some(written) = text.split_whitespace().nth(HOUR) else {
        return false;
    };
    let mut hours = [false; 24];
    for part in written.split(',') {
        let (range, step) = part.split_once('/').unwrap_or((part, "1"));
        let ends = match range.split_once('-') {
            Some((from, to)) => (from.parse().ok(), to.parse().ok()),
            None if range == "*" || range == "?" => (Some(0), Some(23)),
            None if part.contains('/') => (range.parse().ok(), Some(23)),
            None => (range.parse().ok(), range.parse().ok()),
        };
        if let ((Some(from), Some(to)), Ok(step @ 1..)) = (ends, step.parse::<usize>()) {
            let of_part = hours.iter_mut().enumerate().skip(from).step_by(step);
            for (_, hour) in of_part.take_while(|(number, _)| *number <= to) {
                *hour = true;
            }
        }
    }
    hours.iter().all(|is_named| *is_named)
}

/// The expression as the parser knows it: each range of weekdays that goes over the end of the
/// week, such as `FRI-MON`, is written as a list, and a nickname by its other name.
pub(crate) fn known_to_parser(text: &str) -> Cow<'_, str> {
    if text.eq_ignore_ascii_case("@midnight") {
        return Cow::Borrowed("@daily");
    }
    if text.eq_ignore_ascii_case("@annually") {
        return Cow::Borrowed("@yearly");
    }
    let mut written: Vec<&str> = text.split_whitespace().collect();
    let Some(weekdays) = written.get_mut(WEEKDAY) else {
        return Cow::Borrowed(text);
    };
    let parts: Vec<Cow<'_, str>> = weekdays.split(',').map(listed_weekdays).collect();
    let listed = parts.join(",");
    *weekdays = &listed;
    Cow::Owned(written.join(" "))
}

fn listed_weekdays(part: &str) -> Cow<'_, str> {
    let number = |end: &str| {
        let end = end.to_ascii_uppercase();
        let named = WEEKDAYS.iter().position(|word| *word == end);
        named.or_else(|| end.parse().ok().filter(|number| *number <= 7))
    };
    let (range, step) = part.split_once('/').unwrap_or((part, "1"));
    let ends = range.split_once('-');
    let ends = ends.and_then(|(from, to)| Some((number(from)?, number(to)?)));
    match (ends, step.parse::<usize>()) {
        (Some((from, to)), Ok(step @ 1..)) if from > to => {
            let days = (from..=to + 7).step_by(step);
            let days: Vec<String> = days.map(|day| (day % 7).to_string()).collect();
            Cow::Owned(days.join(","))
        }
        _ => Cow::Borrowed(part),
    }
}

/// Explains why `text` is not a cron expression of five fields. `None` without an explanation.
pub(crate) fn explain(text: &str) -> Option<String> {
    if text.starts_with('@') {
        return None;
    }
    let written: Vec<&str> = text.split_whitespace().collect();
    if written.len() != FIELDS.len() {
        let seconds = if written.len() == FIELDS.len() + 1 {
            "; seconds are not supported, so omit the first"
        } else {
            ""
        };
        return Some(format!(
            "expected minute, hour, day of the month, month, weekday; found {} fields{seconds}",
            written.len()
        ));
    }
    let mut pairs = FIELDS.iter().zip(written);
    pairs.find_map(|(field, written)| written.split(',').find_map(|part| field.explain(part)))
}

impl Field {
    const fn of(name: &'static str, least: u32, most: u32, words: &'static [&'static str]) -> Self {
        Self {
            name,
            least,
            most,
            words,
        }
    }

    /// Explains what is wrong with one part of a list: `*`, `5`, `1-5`, each with an optional
    /// `/step`.
    fn explain(&self, part: &str) -> Option<String> {
        let (range, step) = part
            .split_once('/')
            .map_or((part, None), |(range, step)| (range, Some(step)));
        let name = self.name;
        if step.is_some_and(|step| step.parse::<u32>().map_or(true, |step| step == 0)) {
            return Some(format!(
                "the step of the {name} in `{part}` is a number from 1"
            ));
        }
        let (from, to) = range
            .split_once('-')
            .map_or((range, None), |(from, to)| (from, Some(to)));
        let ends = [Some(from), to];
        let mut ends = ends.into_iter().flatten();
        if let Some(end) = ends.find(|end| !self.allows(end)) {
            let words = match self.words {
                [first, .., last] => format!(", or `{first}` to `{last}`"),
                _ => String::new(),
            };
            return Some(format!(
                "the {name} is a number from {} to {}{words}, not `{end}`",
                self.least, self.most
            ));
        }
        let (first, last) = (from.parse::<u32>().ok()?, to?.parse::<u32>().ok()?);
        (first > last).then(|| format!("the {name} `{range}` ends before it begins"))
    }

    fn allows(&self, end: &str) -> bool {
        let is_special = end.chars().all(|c| "*?LW#".contains(c));
        let is_word = self.words.contains(&end.to_ascii_uppercase().as_str());
        let number = end.parse::<u32>();
        // `15W`, `5L` and `5#2` are numbers with a suffix.
        let is_marked = end.ends_with(['L', 'W']) || end.contains('#');
        is_special
            || is_word
            || is_marked
            || number.is_ok_and(|number| (self.least..=self.most).contains(&number))
    }
}

#[cfg(test)]
mod tests {
    use crate::schedule::check_cron;

    #[test]
    fn the_field_and_its_range_are_named() {
        for (cron, said) in [
            (
                "61 * * * *",
                "the minute is a number from 0 to 59, not `61`",
            ),
            ("0 24 * * *", "the hour is a number from 0 to 23, not `24`"),
            (
                "0 0 32 * *",
                "the day of the month is a number from 1 to 31, not `32`",
            ),
            (
                "0 0 1 13 *",
                "the month is a number from 1 to 12, or `JAN` to `DEC`, not `13`",
            ),
            (
                "0 9 * * 8",
                "the weekday is a number from 0 to 7, or `SUN` to `SAT`, not `8`",
            ),
            (
                "noon * * * *",
                "the minute is a number from 0 to 59, not `noon`",
            ),
            (
                "1,2,99 * * * *",
                "the minute is a number from 0 to 59, not `99`",
            ),
            (
                "*/0 * * * *",
                "the step of the minute in `*/0` is a number from 1",
            ),
            ("5-1 * * * *", "the minute `5-1` ends before it begins"),
            (
                "0 9 * *",
                "expected minute, hour, day of the month, month, weekday; found 4 fields",
            ),
            (
                "0 0 9 * * *",
                "expected minute, hour, day of the month, month, weekday; found 6 fields; \
                 seconds are not supported, so omit the first",
            ),
        ] {
            assert_eq!(check_cron(cron), Err(said.to_owned()), "{cron}");
        }
        for good in [
            "@daily",
            "*/15 8-18 * * MON-FRI",
            "0 0 L * *",
            "0 0 * * 5#2",
        ] {
            assert_eq!(check_cron(good), Ok(()), "{good}");
        }
    }
}
