//! The form of an answer: its fields, and validation of answers.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use crate::JsonObject;
use crate::limits::MAX_ANSWER_BYTES;
use crate::time::Day;

/// Fields of an answer: at most [`crate::limits::MAX_QUESTION_FIELDS`], without nesting. A question
/// without fields only asks for confirmation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct QuestionForm(pub(super) Vec<FormField>);

/// One field of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FormField {
    /// Its name, without `=` and control characters.
    pub name: String,
    /// Label shown to people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Description shown to people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// True if an answer must contain it.
    pub required: bool,
    /// The accepted values.
    pub takes: FieldKind,
    /// The requester's default. It is shown to people but never added to an answer automatically.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
}

/// Accepted values of a field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "lowercase",
    rename_all_fields = "camelCase"
)]
pub enum FieldKind {
    /// A text.
    String {
        /// Minimum length, in characters.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        min_length: Option<u64>,
        /// Maximum length, in characters.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_length: Option<u64>,
        /// The required format.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        format: Option<TextFormat>,
    },
    /// One of several strings.
    Choice {
        /// The choices.
        choices: Vec<FormChoice>,
    },
    /// Any of several strings, each at most once.
    Choices {
        /// The choices.
        choices: Vec<FormChoice>,
        /// Minimum number of chosen strings.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        min_items: Option<u64>,
        /// Maximum number of chosen strings.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_items: Option<u64>,
    },
    /// A number.
    Number {
        /// Minimum value.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        minimum: Option<Number>,
        /// Maximum value.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        maximum: Option<Number>,
    },
    /// An integer.
    Integer {
        /// Minimum value.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        minimum: Option<Number>,
        /// Maximum value.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        maximum: Option<Number>,
    },
    /// `true` or `false`.
    Boolean {},
}

/// A choice of a field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FormChoice {
    /// The value in the answer.
    pub value: String,
    /// Label shown to people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

/// Format of a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TextFormat {
    /// An address such as `ada@example.org`.
    Email,
    /// A URI such as `https://example.org/`.
    Uri,
    /// A date such as `2026-01-31`.
    Date,
    /// A timestamp such as `2026-01-31T12:00:00Z`.
    DateTime,
}

impl TextFormat {
    /// The serialized form.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Email => "email",
            Self::Uri => "uri",
            Self::Date => "date",
            Self::DateTime => "date-time",
        }
    }

    /// An example of this format.
    #[must_use]
    pub fn example(self) -> &'static str {
        match self {
            Self::Email => "ada@example.org",
            Self::Uri => "https://example.org/",
            Self::Date => "2026-01-31",
            Self::DateTime => "2026-01-31T12:00:00Z",
        }
    }

    fn fits(self, text: &str) -> bool {
        let has_gap = text.chars().any(|c| c.is_whitespace() || c.is_control());
        match self {
            Self::Email => match text.rsplit_once('@') {
                Some((local, domain)) => {
                    let is_domain = domain.split('.').all(|label| !label.is_empty());
                    !local.is_empty() && is_domain && !local.contains('@') && !has_gap
                }
                None => false,
            },
            Self::Uri => match text.split_once(':') {
                Some((scheme, rest)) => {
                    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
                    let begins_well = scheme.starts_with(|c: char| c.is_ascii_alphabetic());
                    begins_well && scheme.chars().all(fits) && !rest.is_empty() && !has_gap
                }
                None => false,
            },
            Self::Date => text.parse::<Day>().is_ok(),
            Self::DateTime => text.parse::<jiff::Timestamp>().is_ok(),
        }
    }
}

impl QuestionForm {
    /// Its fields, in order.
    #[must_use]
    pub fn fields(&self) -> &[FormField] {
        &self.0
    }

    /// The field of this name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&FormField> {
        self.0.iter().find(|field| field.name == name)
    }

    /// Validates an answer.
    ///
    /// # Errors
    ///
    /// All problems, as text. The text contains no values, because they may be meant for the
    /// requester alone.
    pub fn check(&self, content: &JsonObject) -> Result<(), String> {
        let bytes = serde_json::to_string(content).map_or(usize::MAX, |text| text.len());
        if bytes > MAX_ANSWER_BYTES {
            return Err(format!(
                "it has {bytes} bytes; at most {MAX_ANSWER_BYTES} are allowed"
            ));
        }
        let missing = self.0.iter().filter(|field| {
            let is_given = content.contains_key(&field.name);
            field.required && !is_given
        });
        let missing = missing.map(|field| format!("`{}` is missing", field.name));
        let unfit = content.iter().filter_map(|(name, value)| {
            let Some(field) = self.field(name) else {
                return Some(format!("`{name}` is not a field of the question"));
            };
            let problem = field.takes.check(value).err()?;
            Some(format!("`{name}` {problem}"))
        });
        let problems: Vec<String> = missing.chain(unfit).collect();
        if problems.is_empty() {
            return Ok(());
        }
        Err(problems.join("; "))
    }
}

impl FormField {
    /// Parses a value from text, as on a command line. Several choices are separated by commas, or
    /// are a JSON array.
    ///
    /// # Errors
    ///
    /// The expected value, as text.
    pub fn read(&self, text: &str) -> Result<Value, String> {
        let value = match &self.takes {
            FieldKind::String { .. } | FieldKind::Choice { .. } => Value::from(text),
            FieldKind::Choices { choices, .. } => chosen(choices, text),
            FieldKind::Boolean {} | FieldKind::Number { .. } | FieldKind::Integer { .. } => {
                serde_json::from_str(text.trim()).unwrap_or_else(|_| Value::from(text))
            }
        };
        self.takes.check(&value)?;
        Ok(value)
    }
}

impl FieldKind {
    /// Validates a value of the field.
    ///
    /// # Errors
    ///
    /// `must be …`, as text.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        let fits = match self {
            Self::String {
                min_length,
                max_length,
                format,
            } => value.as_str().is_some_and(|text| {
                let length = text.chars().count() as u64;
                min_length.is_none_or(|least| length >= least)
                    && max_length.is_none_or(|most| length <= most)
                    && format.is_none_or(|format| format.fits(text))
            }),
            Self::Choice { choices } => {
                let text = value.as_str();
                choices.iter().any(|choice| Some(&*choice.value) == text)
            }
            Self::Choices {
                choices,
                min_items,
                max_items,
            } => value.as_array().is_some_and(|items| {
                let is_choice = |item: &Value| {
                    let text = item.as_str();
                    choices.iter().any(|choice| Some(&*choice.value) == text)
                };
                let mut seen = HashSet::new();
                let is_new =
                    |item: &Value| seen.insert(item.as_str().unwrap_or_default().to_owned());
                let count = items.len() as u64;
                min_items.is_none_or(|least| count >= least)
                    && max_items.is_none_or(|most| count <= most)
                    && items.iter().all(is_choice)
                    && items.iter().all(is_new)
            }),
            Self::Number { minimum, maximum } => {
                value.is_number() && is_within(value, minimum.as_ref(), maximum.as_ref())
            }
            Self::Integer { minimum, maximum } => {
                is_whole(value) && is_within(value, minimum.as_ref(), maximum.as_ref())
            }
            Self::Boolean {} => value.is_boolean(),
        };
        if fits {
            Ok(())
        } else {
            Err(format!("must be {}", self.in_words()))
        }
    }

    /// Describes the accepted values: `a whole number of at least 1`.
    #[must_use]
    pub fn in_words(&self) -> String {
        match self {
            Self::String {
                min_length,
                max_length,
                format,
            } => {
                let what = match format {
                    Some(format) => {
                        format!(
                            "a text of the format {} such as {}",
                            format.as_str(),
                            format.example()
                        )
                    }
                    None => "a text".to_owned(),
                };
                match (min_length, max_length) {
                    (None, None) => what,
                    (Some(least), None) => format!("{what}, at least {least} characters long"),
                    (None, Some(most)) => format!("{what}, at most {most} characters long"),
                    (Some(least), Some(most)) => {
                        format!("{what}, {least} to {most} characters long")
                    }
                }
            }
            Self::Choice { choices } => {
                let values: Vec<&str> = choices.iter().map(|choice| &*choice.value).collect();
                format!("one of: {}", values.join(", "))
            }
            Self::Choices {
                choices,
                min_items,
                max_items,
            } => {
                let values: Vec<&str> = choices.iter().map(|choice| &*choice.value).collect();
                let count = match (min_items, max_items) {
                    (None | Some(0), None) => "any".to_owned(),
                    (Some(least), None) => format!("at least {least}"),
                    (None | Some(0), Some(most)) => format!("at most {most}"),
                    (Some(least), Some(most)) if least == most => least.to_string(),
                    (Some(least), Some(most)) => format!("{least} to {most}"),
                };
                format!("a list with {count} of: {}", values.join(", "))
            }
            Self::Number { minimum, maximum } => bounded("a number", minimum, maximum),
            Self::Integer { minimum, maximum } => bounded("a whole number", minimum, maximum),
            Self::Boolean {} => "true or false".to_owned(),
        }
    }
}

/// The list that a text means: a JSON array, one choice, or several separated by commas.
fn chosen(choices: &[FormChoice], text: &str) -> Value {
    let text = text.trim();
    if let Ok(list @ Value::Array(_)) = serde_json::from_str(text) {
        return list;
    }
    if text.is_empty() {
        return Value::Array(Vec::new());
    }
    if choices.iter().any(|choice| choice.value == text) {
        return Value::from(vec![text]);
    }
    text.split(',').map(str::trim).collect()
}

fn bounded(what: &str, minimum: &Option<Number>, maximum: &Option<Number>) -> String {
    match (minimum, maximum) {
        (None, None) => what.to_owned(),
        (Some(least), None) => format!("{what} of at least {least}"),
        (None, Some(most)) => format!("{what} of at most {most}"),
        (Some(least), Some(most)) => format!("{what} from {least} to {most}"),
    }
}

fn is_whole(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
}

fn is_within(value: &Value, minimum: Option<&Number>, maximum: Option<&Number>) -> bool {
    let Value::Number(number) = value else {
        return false;
    };
    minimum.is_none_or(|least| !is_less(number, least))
        && maximum.is_none_or(|most| !is_less(most, number))
}

/// True if `a < b`. Integers are compared exactly, other numbers as floating point.
pub(super) fn is_less(a: &Number, b: &Number) -> bool {
    match (a.as_i128(), b.as_i128()) {
        (Some(a), Some(b)) => a < b,
        _ => a.as_f64() < b.as_f64(),
    }
}

#[cfg(test)]
#[path = "form_tests.rs"]
mod tests;
