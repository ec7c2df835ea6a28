//! Declarations of the mappings in a project's files.
//!
//! The loader ([`crate::fields`]), the JSON Schemas ([`crate::schema`]) and `gdn config show`
//! ([`crate::effective`]) all use the same declarations, so they cannot disagree. Readers check
//! everything that a shape cannot express, such as a path that leaves the project, an invalid
//! pattern or a broken reference.

use goondan_protocol::field;
pub(crate) use goondan_protocol::field::FieldDefault;

use crate::kind::ResourceKind;
use crate::node::{MappingEntry, YamlValue};

pub(crate) mod value;

/// A mapping with known fields.
#[derive(Debug)]
pub(crate) struct Shape {
    /// Name in the JSON Schemas.
    pub(crate) name: &'static str,
    /// Description for authors of a configuration.
    pub(crate) about: &'static str,
    pub(crate) fields: &'static [Field],
    pub(crate) rules: &'static [FieldConstraint],
    /// True if unknown fields are ignored because the mapping's fields are not known.
    pub(crate) is_open: bool,
}

impl Shape {
    /// Creates a shape without rules.
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

    pub(crate) const fn with(self, rules: &'static [FieldConstraint]) -> Self {
        Self { rules, ..self }
    }

    /// Ignores unknown fields.
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

pub(crate) type Field = field::Field<FieldType>;

/// Constraint on several fields of a shape.
#[derive(Debug)]
pub(crate) enum FieldConstraint {
    /// At most one of the two is present.
    NotBoth(&'static str, &'static str),
    /// At least one of the fields is present; with a suggestion.
    AnyOf(&'static [&'static str], &'static str),
    /// The first field is present, unless one of the others is.
    RequiredWithout(&'static str, &'static [&'static str]),
}

/// Allowed values.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FieldType {
    Text,
    /// A path within the Project Root.
    Path,
    Word(&'static [&'static str]),
    /// An integer in this inclusive range.
    Number(u64, u64),
    Boolean,
    /// An amount of money in US dollars: a number or a string.
    Amount,
    Mapping(&'static Shape),
    /// One of these words, or a mapping of this shape.
    WordOr(&'static [&'static str], &'static Shape),
    Choice(&'static ShapeChoice),
    List(&'static FieldType),
    /// A mapping with custom names.
    Entries(&'static FieldType),
    Anything,
    /// A mapping of arbitrary values, which may be taken from elsewhere (`valueFrom`).
    Settings,
    /// A mapping of variables: texts, or values taken from elsewhere (`valueFrom`).
    Variables,
    Reference(ResourceKind),
    /// A reference in a list, optionally as a mapping of this shape with the reference in the field
    /// `ref`.
    Listed(&'static Shape),
    /// A value that is given directly or taken from elsewhere, and never shown.
    Secret,
}

/// Several shapes, selected by the value of a field.
#[derive(Debug)]
pub(crate) struct ShapeChoice {
    pub(crate) field: &'static str,
    /// The first matching case applies.
    pub(crate) cases: &'static [(Case, &'static Shape)],
    pub(crate) otherwise: &'static Shape,
}

#[derive(Debug)]
pub(crate) enum Case {
    /// The field has one of these values.
    Is(&'static [&'static str]),
    IsThere,
    /// The field is a mapping that contains this field with one of these values.
    Holds(&'static str, &'static [&'static str]),
}

impl ShapeChoice {
    pub(crate) fn of(&self, entries: &[MappingEntry]) -> &'static Shape {
        let value = entries
            .iter()
            .find(|entry| entry.key == self.field)
            .map(|entry| &entry.node.value);
        let holds = |case: &Case| match (case, value) {
            (_, None | Some(YamlValue::Null)) => false,
            (Case::IsThere, Some(_)) => true,
            (Case::Is(words), Some(value @ YamlValue::Text(_))) => is_one_of(value, words),
            (Case::Holds(field, words), Some(YamlValue::Mapping(entries))) => {
                let mut within = entries.iter();
                within.any(|entry| entry.key == *field && is_one_of(&entry.node.value, words))
            }
            (Case::Is(_) | Case::Holds(..), Some(_)) => false,
        };
        let found = self.cases.iter().find(|(case, _)| holds(case));
        found.map_or(self.otherwise, |(_, shape)| shape)
    }
}

fn is_one_of(value: &YamlValue, words: &[&str]) -> bool {
    matches!(value, YamlValue::Text(text) if words.contains(&text.as_str()))
}

impl FieldType {
    /// The shape of a mapping with these entries; `None` if it may have any names.
    pub(crate) fn shape(self, entries: &[MappingEntry]) -> Option<&'static Shape> {
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
            | Self::Variables
            | Self::Reference(_)
            | Self::Listed(_) => None,
        }
    }
}
