//! Lists of keywords.

use super::Context;
use crate::codes;
use crate::fields::{Fields, one_of};
use crate::report::Problem;
use crate::similar::nearest;

/// Reads the list `name`, which may contain each word of `known` once. `None` if it is absent or
/// not a list.
pub(crate) fn read<T: PartialEq>(
    fields: &mut Fields<'_>,
    name: &'static str,
    known: &[&'static str],
    of_word: impl Fn(&str) -> Option<T>,
    cx: &mut Context<'_>,
) -> Option<Vec<T>> {
    let place = fields.place_of(name);
    let is_list = fields.is_list(name);
    let words = fields.texts(name, &mut cx.report);
    let place = place.filter(|_| is_list)?;
    let mut read = Vec::new();
    for word in &words {
        let (message, meant) = match of_word(word.value) {
            Some(meaning) if !read.contains(&meaning) => {
                read.push(meaning);
                continue;
            }
            Some(_) => (format!("`{}` is listed twice", word.value), None),
            None => {
                let listed = one_of(known);
                let message = format!("`{name}` must be of {listed}, not `{}`", word.value);
                (message, nearest(word.value, known.iter().copied()))
            }
        };
        let told = Problem::new(codes::INVALID_VALUE, word.place, message);
        cx.report.add(told.did_you_mean(meant));
    }
    if words.is_empty() {
        let message = format!("`{name}` is empty, so it never matches");
        let problem = Problem::new(codes::INVALID_VALUE, place, message);
        let example = known.first().copied().unwrap_or_default();
        cx.report
            .add(problem.help(format!("remove it, or add values: `{name}: [{example}]`")));
    }
    Some(read)
}
