//! What a mapping of a project's files may hold, said once.
//!
//! The loader checks by it ([`crate::fields`]), the JSON Schemas are made of it ([`crate::schema`]),
//! and `gdn config show` walks along it ([`crate::effective`]), so none of them can disagree with
//! another. What a shape cannot say (a path that leaves the project, a pattern that does not compile,
//! a reference to nothing) is the readers' business.

use goondan_protocol::field;
pub(crate) use goondan_protocol::field::Default;

use crate::kind::Kind;
use crate::node::{Entry, Value};

pub(crate) mod value;

/// A mapping with known fields.
#[derive(Debug)]
pub(crate) struct Shape {
    /// Its name in the JSON Schemas.
    pub(crate) name: &'static str,
    /// What it is, for people who write one.
    pub(crate) about: &'static str,
    pub(crate) fields: &'static [Field],
    pub(crate) rules: &'static [Rule],
    /// Whether further fields are left alone, because nothing is known of them yet.
    pub(crate) is_open: bool,
}

impl Shape {
    /// A shape without rules.
    pub(crate) const fn of(
        name: &'static str,
        about: &'static str,
        fields: &'static [Field],
    ) -> Self {
        Self {
            name,
            about,
            fields,
            rules: &[],
            is_open: false,
        }
    }

    /// The same with rules.
    pub(crate) const fn with(self, rules: &'static [Rule]) -> Self {
        Self { rules, ..self }
    }

    /// The same, leaving further fields alone.
    pub(crate) const fn open(self) -> Self {
        Self {
            is_open: true,
            ..self
        }
    }

    pub(crate) fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

/// One field of a shape.
pub(crate) type Field = field::Field<Content>;

/// What a shape demands of several fields together.
#[derive(Debug)]
pub(crate) enum Rule {
    /// At most one of the two is there.
    NotBoth(&'static str, &'static str),
    /// At least one of these is there; then how to mend it.
    AnyOf(&'static [&'static str], &'static str),
}

/// What a value may be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Content {
    Text,
    /// A path within the Project Root.
    Path,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A whole number of this range, both ends included.
    Number(u64, u64),
    Boolean,
    /// An amount of money in US dollars: a number, or the same as text.
    Amount,
    Mapping(&'static Shape),
    /// One of these words, or a mapping of this shape.
    WordOr(&'static [&'static str], &'static Shape),
    /// One of several shapes.
    Choice(&'static Choice),
    List(&'static Content),
    /// A mapping with names of the writer's own.
    Entries(&'static Content),
    /// Whatever YAML can say.
    Anything,
    /// A mapping of anything, in which a value may be taken from elsewhere (`valueFrom`).
    Settings,
    /// A reference to a resource.
    Reference(Kind),
    /// A reference in a list: also as a mapping of this shape, whose field `ref` is the reference.
    Listed(&'static Shape),
    /// A value that is written here or taken from elsewhere, and never shown.
    Secret,
}

/// Several shapes of which one field's value decides.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) field: &'static str,
    /// The first that fits holds.
    pub(crate) cases: &'static [(Case, &'static Shape)],
    pub(crate) otherwise: &'static Shape,
}

/// When a case holds.
#[derive(Debug)]
pub(crate) enum Case {
    /// The field has one of these values.
    Is(&'static [&'static str]),
    /// The field is there.
    IsThere,
    /// The field is a mapping, in which this one has one of these values.
    Holds(&'static str, &'static [&'static str]),
}

impl Choice {
    /// The shape of a mapping with these entries.
    pub(crate) fn of(&self, entries: &[Entry]) -> &'static Shape {
        let value = entries
            .iter()
            .find(|entry| entry.key == self.field)
            .map(|entry| &entry.node.value);
        let holds = |case: &Case| match (case, value) {
            (_, None | Some(Value::Null)) => false,
            (Case::IsThere, Some(_)) => true,
            (Case::Is(words), Some(value @ Value::Text(_))) => is_one_of(value, words),
            (Case::Holds(field, words), Some(Value::Mapping(entries))) => {
                let mut within = entries.iter();
                within.any(|entry| entry.key == *field && is_one_of(&entry.node.value, words))
            }
            (Case::Is(_) | Case::Holds(..), Some(_)) => false,
        };
        let found = self.cases.iter().find(|(case, _)| holds(case));
        found.map_or(self.otherwise, |(_, shape)| shape)
    }
}

fn is_one_of(value: &Value, words: &[&str]) -> bool {
    matches!(value, Value::Text(text) if words.contains(&text.as_str()))
}

impl Content {
    /// The shape of a mapping with these entries; none if any names may be in it.
    pub(crate) fn shape(self, entries: &[Entry]) -> Option<&'static Shape> {
        match self {
            Self::Mapping(shape) | Self::WordOr(_, shape) => Some(shape),
            Self::Secret => Some(&value::VALUE),
            Self::Choice(choice) => Some(choice.of(entries)),
            Self::Text
            | Self::Path
            | Self::Word(_)
            | Self::Number(..)
            | Self::Boolean
            | Self::Amount
            | Self::List(_)
            | Self::Entries(_)
            | Self::Anything
            | Self::Settings
            | Self::Reference(_)
            | Self::Listed(_) => None,
        }
    }
}
