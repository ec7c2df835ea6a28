//! The fields of a block, from its lines.

use super::Problem;
use crate::limits::FIELD_CHARS_MAX;

/// Fields in the order in which they appear.
#[derive(Debug, Default)]
pub(super) struct Fields(Vec<(&'static str, String)>);

impl Fields {
    /// Adds the next line of a block with these known fields. A line that begins with the name of a
    /// missing field starts that field; any other line belongs to the previous field, or is
    /// ignored.
    pub(super) fn line(&mut self, known: &[&'static str], line: &str) {
        let begun = line.split_once(':').and_then(|(name, rest)| {
            let name = name.trim();
            let field = known
                .iter()
                .find(|field| field.eq_ignore_ascii_case(name))?;
            let is_new = !self.0.iter().any(|(name, _)| name == field);
            is_new.then_some((*field, rest.trim()))
        });
        if let Some((field, rest)) = begun {
            self.0.push((field, rest.to_owned()));
        } else if let Some((_, text)) = self.0.last_mut() {
            text.push('\n');
            text.push_str(line.trim_end());
        }
    }

    /// Returns a field's text, trimmed; none if it is missing or empty.
    pub(super) fn text(&self, field: &'static str) -> Result<Option<String>, Problem> {
        let found = self.0.iter().find(|(name, _)| *name == field);
        let text = found.map(|(_, text)| text.trim()).unwrap_or_default();
        if text.chars().count() > FIELD_CHARS_MAX {
            return Err(Problem::FieldTooLong { field });
        }
        Ok((!text.is_empty()).then(|| text.to_owned()))
    }

    /// Returns the text of a required field.
    pub(super) fn needed(&self, field: &'static str) -> Result<String, Problem> {
        self.text(field)?.ok_or(Problem::Missing { field })
    }

    /// Parses a field with one of several values, case-insensitive; none if the field is missing.
    pub(super) fn word<T: Copy>(
        &self,
        field: &'static str,
        words: &[(&str, T)],
        allowed: &'static str,
    ) -> Result<Option<T>, Problem> {
        let Some(text) = self.text(field)? else {
            return Ok(None);
        };
        let word = words
            .iter()
            .find(|(word, _)| word.eq_ignore_ascii_case(&text));
        word.map(|(_, value)| Some(*value))
            .ok_or_else(|| bad_value(field, &text, allowed))
    }
}

/// Error for an invalid value of a field.
pub(super) fn bad_value(field: &'static str, value: &str, allowed: &'static str) -> Problem {
    const SHOWN_CHARS: usize = 60;
    Problem::BadValue {
        field,
        value: value.chars().take(SHOWN_CHARS).collect(),
        allowed,
    }
}

/// The text of a line of a list: `- x`, `* x` or `1. x`.
pub(super) fn item_of(line: &str) -> Option<&str> {
    let line = line.trim();
    if let Some(item) = line.strip_prefix("- ").or_else(|| line.strip_prefix("* ")) {
        return Some(item.trim());
    }
    let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let item = rest
        .strip_prefix(". ")
        .filter(|_| rest.len() < line.len())?;
    Some(item.trim())
}
