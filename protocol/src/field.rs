//! Declaration of a configuration field, in one form for all places.
//!
//! Fields of resources, built-in tools, extensions and connectors only differ in the type of their
//! values. Parsing, validation, JSON Schemas and lists of effective values are derived from these
//! declarations.

use serde_json::Value;

/// One field of a mapping; `C` is the type of its value.
#[derive(Debug, Clone, Copy)]
pub struct Field<C> {
    /// Its name.
    pub name: &'static str,
    /// The type of its value.
    pub content: C,
    /// True if it is required.
    pub is_required: bool,
    /// Its default.
    pub default: Option<FieldDefault>,
    /// Its description, for people.
    pub about: &'static str,
}

/// Default of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldDefault {
    /// This text.
    Text(&'static str),
    /// This number.
    Number(u64),
    /// This boolean.
    Truth(bool),
    /// Not a single value; this text describes the behavior.
    Meaning(&'static str),
}

impl FieldDefault {
    /// The default as a value.
    ///
    /// # Errors
    ///
    /// The description, if the default is not a single value.
    pub fn value(self) -> Result<Value, &'static str> {
        match self {
            Self::Text(text) => Ok(text.into()),
            Self::Number(number) => Ok(number.into()),
            Self::Truth(truth) => Ok(truth.into()),
            Self::Meaning(words) => Err(words),
        }
    }
}

impl<C: Copy> Field<C> {
    /// A required field.
    pub const fn required(name: &'static str, content: C, about: &'static str) -> Self {
        Self {
            name,
            content,
            is_required: true,
            default: None,
            about,
        }
    }

    /// An optional field.
    pub const fn optional(name: &'static str, content: C, about: &'static str) -> Self {
        Self {
            is_required: false,
            ..Self::required(name, content, about)
        }
    }

    /// Sets the default.
    #[must_use]
    pub const fn or(self, default: FieldDefault) -> Self {
        Self {
            default: Some(default),
            ..self
        }
    }
}
