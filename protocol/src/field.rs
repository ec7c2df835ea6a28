//! How a field of what people write is declared: once, wherever it stands.
//!
//! Fields of a resource, settings of a built-in tool or extension and settings of a connector differ in
//! what their values may be, and in nothing else. Reading, checking, JSON Schemas and lists of what holds
//! are made of such declarations.

use serde_json::Value;

/// One field of a mapping; `C` is what its value may be.
#[derive(Debug, Clone, Copy)]
pub struct Field<C> {
    /// Its name.
    pub name: &'static str,
    /// What its value may be.
    pub content: C,
    /// Whether it must be there.
    pub is_required: bool,
    /// What holds if it is not there.
    pub default: Option<Default>,
    /// What it does, for people.
    pub about: &'static str,
}

/// What holds if a field is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Default {
    /// This text.
    Text(&'static str),
    /// This number.
    Number(u64),
    /// Whether it is so.
    Truth(bool),
    /// Not one value, but what these words say.
    Meaning(&'static str),
}

impl Default {
    /// The value, or the words that say what it is.
    ///
    /// # Errors
    ///
    /// The words, if it is not one value.
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
    /// A field that must be there.
    pub const fn required(name: &'static str, content: C, about: &'static str) -> Self {
        Self {
            name,
            content,
            is_required: true,
            default: None,
            about,
        }
    }

    /// A field that need not be there.
    pub const fn optional(name: &'static str, content: C, about: &'static str) -> Self {
        Self {
            is_required: false,
            ..Self::required(name, content, about)
        }
    }

    /// The same with what holds if it is not there.
    #[must_use]
    pub const fn or(self, default: Default) -> Self {
        Self {
            default: Some(default),
            ..self
        }
    }
}
