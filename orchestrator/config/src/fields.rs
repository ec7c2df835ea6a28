//! Reads typed fields out of a [`Node`], reporting every problem on the way.
//!
//! A field is known by being asked for: [`Fields::close`] reports what nobody asked for. So a kind's
//! reader is its schema, and the two cannot disagree.

use std::fmt;
use std::ops::RangeInclusive;
use std::rc::Rc;

use crate::codes;
use crate::report::{Place, Problem, Report};
use crate::similar::nearest;
use crate::tree::{Entry, Node, Value};

/// What a value is called in messages: `spec.prompt.system` of Agent `helper`.
#[derive(Debug, Clone)]
pub(crate) struct Label {
    owner: Rc<str>,
    path: String,
}

impl Label {
    /// The label of a whole document or file.
    pub(crate) fn of(owner: impl AsRef<str>) -> Self {
        Self {
            owner: Rc::from(owner.as_ref()),
            path: String::new(),
        }
    }

    /// The label of a field within.
    pub(crate) fn field(&self, name: &str) -> Self {
        let dot = if self.path.is_empty() { "" } else { "." };
        Self {
            owner: Rc::clone(&self.owner),
            path: format!("{}{dot}{name}", self.path),
        }
    }

    /// The label of a list's item, counted from 0 as everywhere in YAML paths.
    pub(crate) fn item(&self, index: usize) -> Self {
        Self {
            owner: Rc::clone(&self.owner),
            path: format!("{}[{index}]", self.path),
        }
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.owner)
        } else {
            write!(f, "`{}` of {}", self.path, self.owner)
        }
    }
}

/// A value that was read, with its place and name for later messages.
#[derive(Debug, Clone)]
pub(crate) struct Located<T> {
    pub(crate) value: T,
    pub(crate) place: Place,
}

/// A mapping whose fields are read one by one.
#[derive(Debug)]
pub(crate) struct Fields<'n> {
    pub(crate) label: Label,
    pub(crate) place: Place,
    entries: &'n [Entry],
    known: Vec<&'static str>,
}

impl<'n> Fields<'n> {
    /// Opens a mapping. `place` is where a missing field is reported: the mapping's own key.
    pub(crate) fn open(
        node: &'n Node,
        place: Place,
        label: Label,
        report: &mut Report,
    ) -> Option<Self> {
        let entries = mapping(node, &label, report)?;
        Some(Self {
            label,
            place,
            entries,
            known: Vec::new(),
        })
    }

    /// The field, if it is there and has a value.
    pub(crate) fn get(&mut self, name: &'static str) -> Option<&'n Entry> {
        self.known.push(name);
        self.entries
            .iter()
            .find(|entry| entry.key == name && !matches!(entry.node.value, Value::Null))
    }

    /// The field; reports it if it is missing.
    pub(crate) fn require(&mut self, name: &'static str, report: &mut Report) -> Option<&'n Entry> {
        let found = self.get(name);
        if found.is_none() {
            let written = self.entries.iter().find(|entry| entry.key == name);
            report.add(match written {
                Some(entry) => Problem::new(
                    codes::MISSING_FIELD,
                    entry.key_place,
                    format!("{} has no value", self.label.field(name)),
                ),
                None => Problem::new(
                    codes::MISSING_FIELD,
                    self.place,
                    format!("{} needs the field `{name}`", self.label),
                ),
            });
        }
        found
    }

    /// A text field.
    pub(crate) fn text(
        &mut self,
        name: &'static str,
        report: &mut Report,
    ) -> Option<Located<&'n str>> {
        let entry = self.get(name)?;
        text(&entry.node, &self.label.field(name), report)
    }

    /// A text field that must be there.
    pub(crate) fn require_text(
        &mut self,
        name: &'static str,
        report: &mut Report,
    ) -> Option<Located<&'n str>> {
        let entry = self.require(name, report)?;
        text(&entry.node, &self.label.field(name), report)
    }

    /// A whole number within `range`.
    pub(crate) fn integer(
        &mut self,
        name: &'static str,
        range: RangeInclusive<u64>,
        report: &mut Report,
    ) -> Option<u64> {
        let entry = self.get(name)?;
        let label = self.label.field(name);
        let (least, most) = (range.start(), range.end());
        let Value::Number(number) = &entry.node.value else {
            report.add(wrong_type(&entry.node, &label, "a whole number"));
            return None;
        };
        let value = number.as_u64().filter(|value| range.contains(value));
        if value.is_none() {
            report.add(Problem::new(
                codes::INVALID_VALUE,
                entry.node.place,
                format!("{label} must be a whole number from {least} to {most}"),
            ));
        }
        value
    }

    /// A field that is true or false.
    pub(crate) fn boolean(&mut self, name: &'static str, report: &mut Report) -> Option<bool> {
        let entry = self.get(name)?;
        if let Value::Bool(value) = entry.node.value {
            return Some(value);
        }
        let label = self.label.field(name);
        report.add(wrong_type(&entry.node, &label, "`true` or `false`"));
        None
    }

    /// The items of a list field with their labels; none if the field is absent.
    pub(crate) fn items(
        &mut self,
        name: &'static str,
        report: &mut Report,
    ) -> Vec<(&'n Node, Label)> {
        let Some(entry) = self.get(name) else {
            return Vec::new();
        };
        let label = self.label.field(name);
        let Value::List(items) = &entry.node.value else {
            report.add(
                wrong_type(&entry.node, &label, "a list")
                    .help("write each item on a line of its own that begins with `- `"),
            );
            return Vec::new();
        };
        items
            .iter()
            .enumerate()
            .map(|(index, item)| (item, label.item(index)))
            .collect()
    }

    /// The entries of a mapping field with the field's label; none if the field is absent.
    pub(crate) fn entries(&mut self, name: &'static str, report: &mut Report) -> &'n [Entry] {
        self.get(name).map_or(&[], |entry| {
            mapping(&entry.node, &self.label.field(name), report).unwrap_or_default()
        })
    }

    /// A mapping field to read further.
    pub(crate) fn nested(&mut self, name: &'static str, report: &mut Report) -> Option<Self> {
        let entry = self.get(name)?;
        Self::open(&entry.node, entry.key_place, self.label.field(name), report)
    }

    /// A mapping field to read further that must be there.
    pub(crate) fn require_nested(
        &mut self,
        name: &'static str,
        report: &mut Report,
    ) -> Option<Self> {
        let entry = self.require(name, report)?;
        Self::open(&entry.node, entry.key_place, self.label.field(name), report)
    }

    /// Reports the second of two fields that exclude each other, if both are there.
    pub(crate) fn exclude(
        &mut self,
        first: &'static str,
        second: &'static str,
        report: &mut Report,
    ) {
        if let (Some(_), Some(other)) = (self.get(first), self.get(second)) {
            report.add(
                Problem::new(
                    codes::CONFLICTING_FIELDS,
                    other.key_place,
                    format!("{} has both `{first}` and `{second}`", self.label),
                )
                .help("keep one of the two"),
            );
        }
    }

    /// Reports every field that nobody asked for.
    pub(crate) fn close(mut self, report: &mut Report) {
        self.known.sort_unstable();
        self.known.dedup();
        for entry in self.entries {
            if self.known.contains(&entry.key.as_str()) {
                continue;
            }
            let expected = self.known.iter().map(|name| format!("`{name}`"));
            let expected: Vec<String> = expected.collect();
            report.add(
                Problem::new(
                    codes::UNKNOWN_FIELD,
                    entry.key_place,
                    format!(
                        "unknown field `{}` in {}; expected {}",
                        entry.key,
                        self.label,
                        one_of(&expected)
                    ),
                )
                .did_you_mean(nearest(&entry.key, self.known.iter().copied())),
            );
        }
    }
}

/// Text, or a report that it is none.
pub(crate) fn text<'n>(
    node: &'n Node,
    label: &Label,
    report: &mut Report,
) -> Option<Located<&'n str>> {
    if let Value::Text(value) = &node.value {
        return Some(Located {
            value,
            place: node.place,
        });
    }
    let problem = wrong_type(node, label, "text");
    report.add(match node.value {
        Value::Bool(_) | Value::Number(_) => problem.help("put the value in quotes"),
        Value::Null | Value::Text(_) | Value::List(_) | Value::Mapping(_) => problem,
    });
    None
}

/// A mapping's entries, or a report that it is none.
fn mapping<'n>(node: &'n Node, label: &Label, report: &mut Report) -> Option<&'n [Entry]> {
    if let Value::Mapping(entries) = &node.value {
        return Some(entries);
    }
    report.add(wrong_type(node, label, "a mapping of fields"));
    None
}

fn wrong_type(node: &Node, label: &Label, expected: &str) -> Problem {
    Problem::new(
        codes::WRONG_TYPE,
        node.place,
        format!("{label} must be {expected}, not {}", node.value.noun()),
    )
}

/// `a`, `a or b`, `a, b or c`.
pub(crate) fn one_of<T: AsRef<str>>(words: &[T]) -> String {
    match words {
        [] => "nothing".to_owned(),
        [only] => only.as_ref().to_owned(),
        [init @ .., last] => {
            let init: Vec<&str> = init.iter().map(AsRef::as_ref).collect();
            format!("{} or {}", init.join(", "), last.as_ref())
        }
    }
}
