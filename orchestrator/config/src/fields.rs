//! Reads typed fields from a [`YamlNode`] and reports all problems.
//!
//! Opening a mapping checks it against its [`Shape`]: unknown, missing and conflicting fields. Each
//! getter then checks one value. A reader that requests a field outside its shape, requests a wrong
//! type, or skips a field has a bug, which assertions detect in tests.

use std::collections::HashSet;
use std::fmt;
use std::rc::Rc;

use goondan_protocol::usage::{InvalidAmount, MicroUsd};

use crate::advice;
use crate::codes;
use crate::report::{Problem, ProblemReport, SourceLocation};
use crate::shape::{FieldConstraint, FieldType, Shape};
use crate::similar::nearest;
use crate::tree::{MappingEntry, YamlNode, YamlValue};

/// Name of a value in messages: `spec.prompt.system` of Agent `helper`.
#[derive(Debug, Clone)]
pub(crate) struct Label {
    owner: Rc<str>,
    path: String,
}

impl Label {
    /// Creates the label of a whole document or file.
    pub(crate) fn of(owner: impl AsRef<str>) -> Self {
        Self {
            owner: Rc::from(owner.as_ref()),
            path: String::new(),
        }
    }

    /// The name of the resource, if the value belongs to one.
    pub(crate) fn resource_name(&self) -> Option<&str> {
        self.owner.split('`').nth(1)
    }

    pub(crate) fn last(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or_default()
    }

    /// The label of a nested field.
    pub(crate) fn field(&self, name: &str) -> Self {
        let dot = if self.path.is_empty() { "" } else { "." };
        Self {
            owner: Rc::clone(&self.owner),
            path: format!("{}{dot}{name}", self.path),
        }
    }

    /// The label of a list item, counted from 0 as in YAML paths.
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

/// A value with its place and label for later messages.
#[derive(Debug, Clone)]
pub(crate) struct LocatedValue<T> {
    pub(crate) value: T,
    pub(crate) place: SourceLocation,
}

/// A mapping whose fields are read one by one.
#[derive(Debug)]
pub(crate) struct Fields<'n> {
    pub(crate) label: Label,
    pub(crate) place: SourceLocation,
    entries: &'n [MappingEntry],
    shape: &'static Shape,
    asked: Vec<&'static str>,
}

impl<'n> Fields<'n> {
    /// Opens a mapping and checks its fields. Missing fields are reported at `place`, the mapping's
    /// own key.
    pub(crate) fn open(
        node: &'n YamlNode,
        place: SourceLocation,
        label: Label,
        content: FieldType,
        report: &mut ProblemReport,
    ) -> Option<Self> {
        let entries = mapping(node, &label, report)?;
        let shape = content.shape(entries);
        debug_assert!(shape.is_some(), "{label} is not a mapping of known fields");
        let fields = Self {
            label,
            place,
            entries,
            shape: shape?,
            asked: Vec::new(),
        };
        fields.check_unknown(report);
        fields.check_missing(report);
        fields.check_rules(report);
        Some(fields)
    }

    /// True if the mapping was checked against this shape.
    pub(crate) fn is_of(&self, shape: &'static Shape) -> bool {
        std::ptr::eq(self.shape, shape)
    }

    /// True if the field is present and has a value.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// The place of the field's name, if the field is present and has a value.
    pub(crate) fn place_of(&self, name: &str) -> Option<SourceLocation> {
        self.find(name).map(|entry| entry.key_place)
    }

    /// True if the field is a list; other values were reported when it was read.
    pub(crate) fn is_list(&self, name: &str) -> bool {
        self.find(name)
            .is_some_and(|entry| matches!(entry.node.value, YamlValue::List(_)))
    }

    fn find(&self, name: &str) -> Option<&'n MappingEntry> {
        self.entries
            .iter()
            .find(|entry| entry.key == name && !matches!(entry.node.value, YamlValue::Null))
    }

    /// The field and its content type, if it is present and has a value.
    pub(crate) fn ask(&mut self, name: &'static str) -> Option<(&'n MappingEntry, FieldType)> {
        self.asked.push(name);
        let field = self.shape.field(name);
        debug_assert!(field.is_some(), "`{name}` is not a field of {}", self.label);
        Some((self.find(name)?, field?.content))
    }

    /// The raw field, if it is present and has a value.
    pub(crate) fn get(&mut self, name: &'static str) -> Option<&'n MappingEntry> {
        self.ask(name).map(|(entry, _)| entry)
    }

    pub(crate) fn text(
        &mut self,
        name: &'static str,
        report: &mut ProblemReport,
    ) -> Option<LocatedValue<&'n str>> {
        let (entry, content) = self.ask(name)?;
        debug_assert!(
            matches!(content, FieldType::Text | FieldType::Path),
            "`{name}` of {} is not a text field",
            self.label
        );
        text(&entry.node, &self.label.field(name), report)
    }

    /// Reads a string field that must be one of the shape's words.
    pub(crate) fn word(
        &mut self,
        name: &'static str,
        report: &mut ProblemReport,
    ) -> Option<LocatedValue<&'n str>> {
        self.word_or(name, |_unknown| None, report)
    }

    /// Like [`Self::word`]; `advise` suggests fixes for some unknown words.
    pub(crate) fn word_or(
        &mut self,
        name: &'static str,
        advise: fn(&str) -> Option<String>,
        report: &mut ProblemReport,
    ) -> Option<LocatedValue<&'n str>> {
        let (entry, content) = self.ask(name)?;
        let FieldType::Word(words) = content else {
            debug_assert!(false, "`{name}` of {} is not a word field", self.label);
            return None;
        };
        let label = self.label.field(name);
        let written = text(&entry.node, &label, report)?;
        if words.contains(&written.value) {
            return Some(written);
        }
        report.add(
            Problem::new(
                codes::INVALID_VALUE,
                written.place,
                format!("{label} must be {}, not `{}`", one_of(words), written.value),
            )
            .help_if(advise(written.value))
            .rename(written.value, nearest(written.value, words.iter().copied())),
        );
        None
    }

    /// Reads a field that is one of the shape's words, or a mapping to read further.
    pub(crate) fn word_or_mapping(
        &mut self,
        name: &'static str,
        report: &mut ProblemReport,
    ) -> Option<WordOr<'n>> {
        let (entry, content) = self.ask(name)?;
        let label = self.label.field(name);
        let FieldType::WordOr(words, _) = content else {
            debug_assert!(false, "{label} is not a word or a mapping");
            return None;
        };
        if matches!(entry.node.value, YamlValue::Mapping(_)) {
            let fields = Self::open(&entry.node, entry.key_place, label, content, report);
            return fields.map(WordOr::Mapping);
        }
        if let YamlValue::Text(written) = &entry.node.value
            && words.contains(&written.as_str())
        {
            let word = LocatedValue {
                value: written.as_str(),
                place: entry.node.place,
            };
            return Some(WordOr::Word(word));
        }
        let message = format!("{label} must be {}, or a mapping", one_of(words));
        report.add(Problem::new(
            codes::INVALID_VALUE,
            entry.node.place,
            message,
        ));
        None
    }

    /// Reads an integer within the range of its shape.
    pub(crate) fn number(&mut self, name: &'static str, report: &mut ProblemReport) -> Option<u64> {
        let (entry, content) = self.ask(name)?;
        let label = self.label.field(name);
        let FieldType::Number(least, most) = content else {
            debug_assert!(false, "{label} is not a number field");
            return None;
        };
        let YamlValue::Number(number) = &entry.node.value else {
            report.add(wrong_type(&entry.node, &label, "a whole number"));
            return None;
        };
        let value = number
            .as_u64()
            .filter(|value| (least..=most).contains(value));
        if value.is_none() {
            report.add(Problem::new(
                codes::INVALID_VALUE,
                entry.node.place,
                format!("{label} must be a whole number from {least} to {most}"),
            ));
        }
        value
    }

    pub(crate) fn boolean(
        &mut self,
        name: &'static str,
        report: &mut ProblemReport,
    ) -> Option<bool> {
        let (entry, content) = self.ask(name)?;
        let label = self.label.field(name);
        debug_assert!(
            matches!(content, FieldType::Boolean),
            "{label} is not a boolean field"
        );
        if let YamlValue::Bool(value) = entry.node.value {
            return Some(value);
        }
        report.add(wrong_type(&entry.node, &label, "`true` or `false`"));
        None
    }

    /// Reads an amount of money in US dollars. Numbers are parsed from their digits as written.
    pub(crate) fn amount(
        &mut self,
        name: &'static str,
        report: &mut ProblemReport,
    ) -> Option<MicroUsd> {
        let (entry, content) = self.ask(name)?;
        let label = self.label.field(name);
        debug_assert!(
            matches!(content, FieldType::Amount),
            "{label} is not an amount field"
        );
        let written = match &entry.node.value {
            YamlValue::Number(number) => number.to_string(),
            YamlValue::Text(text) => text.clone(),
            YamlValue::Null | YamlValue::Bool(_) | YamlValue::List(_) | YamlValue::Mapping(_) => {
                report.add(wrong_type(&entry.node, &label, "an amount of money"));
                return None;
            }
        };
        let amount = written.parse();
        if let Err(InvalidAmount) = amount {
            let message = format!("{label} must be an amount in US dollars, not `{written}`");
            report.add(
                Problem::new(codes::INVALID_VALUE, entry.node.place, message)
                    .help("write it like `0.25`, with at most six decimals"),
            );
        }
        amount.ok()
    }

    /// A mapping field to read further.
    pub(crate) fn nested(
        &mut self,
        name: &'static str,
        report: &mut ProblemReport,
    ) -> Option<Self> {
        let (entry, content) = self.ask(name)?;
        let label = self.label.field(name);
        Self::open(&entry.node, entry.key_place, label, content, report)
    }

    /// The items of a list field with their labels and content type; empty if it is absent.
    pub(crate) fn items(
        &mut self,
        name: &'static str,
        report: &mut ProblemReport,
    ) -> Vec<(&'n YamlNode, Label, FieldType)> {
        let Some((entry, content)) = self.ask(name) else {
            return Vec::new();
        };
        let label = self.label.field(name);
        let FieldType::List(content) = content else {
            debug_assert!(false, "{label} is not a list field");
            return Vec::new();
        };
        let YamlValue::List(items) = &entry.node.value else {
            report.add(
                wrong_type(&entry.node, &label, "a list")
                    .help("write each item on its own line, starting with `- `"),
            );
            return Vec::new();
        };
        items
            .iter()
            .enumerate()
            .map(|(index, item)| (item, label.item(index), *content))
            .collect()
    }

    /// The mappings of a list field, each to read further; `None` for other values.
    pub(crate) fn mappings(
        &mut self,
        name: &'static str,
        report: &mut ProblemReport,
    ) -> Vec<Option<Self>> {
        self.items(name, report)
            .into_iter()
            .map(|(node, label, content)| Self::open(node, node.place, label, content, report))
            .collect()
    }

    /// The strings of a list field.
    pub(crate) fn texts(
        &mut self,
        name: &'static str,
        report: &mut ProblemReport,
    ) -> Vec<LocatedValue<&'n str>> {
        self.items(name, report)
            .into_iter()
            .filter_map(|(node, label, _)| text(node, &label, report))
            .collect()
    }

    /// The entries of a mapping field with custom names; empty if it is absent.
    pub(crate) fn entries(
        &mut self,
        name: &'static str,
        report: &mut ProblemReport,
    ) -> &'n [MappingEntry] {
        let Some((entry, content)) = self.ask(name) else {
            return &[];
        };
        let label = self.label.field(name);
        debug_assert!(
            content.shape(&[]).is_none(),
            "{label} is a mapping of known fields"
        );
        mapping(&entry.node, &label, report).unwrap_or_default()
    }

    fn check_unknown(&self, report: &mut ProblemReport) {
        if self.shape.is_open {
            return;
        }
        let is_unknown = |entry: &&MappingEntry| self.shape.field(&entry.key).is_none();
        let mut unknown = self.entries.iter().filter(is_unknown).peekable();
        if unknown.peek().is_none() {
            return;
        }
        let mut names: Vec<&str> = self.shape.fields.iter().map(|field| field.name).collect();
        names.sort_unstable();
        let expected = one_of(&names);
        // A field that is already present is not a likely candidate. The set avoids quadratic time
        // for hostile files with many entries.
        let there: HashSet<&str> = self
            .entries
            .iter()
            .map(|entry| entry.key.as_str())
            .collect();
        names.retain(|name| !there.contains(name));
        for entry in unknown {
            let free = names.iter().copied();
            let advice = self.advice(&entry.key, report);
            report.add(
                Problem::new(
                    codes::UNKNOWN_FIELD,
                    entry.key_place,
                    format!(
                        "unknown field `{}` in {}; expected {}",
                        entry.key, self.label, expected
                    ),
                )
                .help_if(advice)
                .rename(&entry.key, nearest(&entry.key, free)),
            );
        }
    }

    /// Suggestion for an unknown field.
    fn advice(&self, key: &str, report: &ProblemReport) -> Option<String> {
        let kind = self.label.owner.split(' ').next();
        let kind = kind.and_then(|name| report.kind(name));
        let is_within = self.label.path.starts_with("spec.");
        let outer = kind.filter(|_| is_within);
        report.advise(self.shape, outer, key)
    }

    fn check_missing(&self, report: &mut ProblemReport) {
        for field in self.shape.fields.iter().filter(|field| field.is_required) {
            self.check_present(field.name, report);
        }
    }

    fn check_present(&self, name: &'static str, report: &mut ProblemReport) {
        if self.has(name) {
            return;
        }
        let written = self.entries.iter().find(|entry| entry.key == name);
        self.check_misspelt(name, report);
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

    /// In a mapping with arbitrary fields, an unknown field may be a misspelled required one.
    fn check_misspelt(&self, required: &'static str, report: &mut ProblemReport) {
        if !self.shape.is_open {
            return;
        }
        for entry in self.entries {
            let is_known = self
                .shape
                .fields
                .iter()
                .any(|field| field.name == entry.key);
            let meant = nearest(&entry.key, [required]);
            if !is_known && meant.is_some() {
                let (key, label) = (&entry.key, &self.label);
                report.add(
                    Problem::new(
                        codes::UNKNOWN_FIELD,
                        entry.key_place,
                        format!("unknown field `{key}` in {label}; expected `{required}`"),
                    )
                    .rename(key, meant),
                );
            }
        }
    }

    fn check_rules(&self, report: &mut ProblemReport) {
        for rule in self.shape.rules {
            match rule {
                FieldConstraint::NotBoth(first, second) => {
                    if let (true, Some(other)) = (self.has(first), self.find(second)) {
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
                FieldConstraint::RequiredWithout(name, others) => {
                    if !others.iter().any(|other| self.has(other)) {
                        self.check_present(name, report);
                    }
                }
                FieldConstraint::AnyOf(names, help) => {
                    if !names.iter().any(|name| self.has(name)) {
                        report.add(
                            Problem::new(
                                codes::MISSING_FIELD,
                                self.place,
                                format!("{} needs {}", self.label, one_of(*names)),
                            )
                            .help(*help),
                        );
                    }
                }
            }
        }
    }

    /// Ends reading. All problems are already reported; tests check that no field was skipped.
    pub(crate) fn close(self) {
        let forgotten = self
            .shape
            .fields
            .iter()
            .find(|field| !self.asked.contains(&field.name));
        debug_assert!(
            forgotten.is_none(),
            "`{}` of {} is never read",
            forgotten.map_or("", |field| field.name),
            self.label
        );
    }
}

/// Reads a string, or reports another type.
pub(crate) fn text<'n>(
    node: &'n YamlNode,
    label: &Label,
    report: &mut ProblemReport,
) -> Option<LocatedValue<&'n str>> {
    if let YamlValue::Text(value) = &node.value {
        return Some(LocatedValue {
            value,
            place: node.place,
        });
    }
    let problem = wrong_type(node, label, "text");
    report.add(match node.value {
        YamlValue::Bool(_) | YamlValue::Number(_) => {
            problem.help("put the value in quotes").quote()
        }
        YamlValue::Null | YamlValue::Text(_) | YamlValue::List(_) | YamlValue::Mapping(_) => {
            problem
        }
    });
    None
}

/// Reads a mapping's entries, or reports another type.
fn mapping<'n>(
    node: &'n YamlNode,
    label: &Label,
    report: &mut ProblemReport,
) -> Option<&'n [MappingEntry]> {
    if let YamlValue::Mapping(entries) = &node.value {
        return Some(entries);
    }
    let help = match &node.value {
        YamlValue::Text(text) => advice::text_for_mapping(&label.path, text),
        _ => None,
    };
    report.add(wrong_type(node, label, "a mapping of fields").help_if(help));
    None
}

fn wrong_type(node: &YamlNode, label: &Label, expected: &str) -> Problem {
    Problem::new(
        codes::WRONG_TYPE,
        node.place,
        format!("{label} must be {expected}, not {}", node.value.noun()),
    )
}

pub(crate) enum WordOr<'n> {
    Word(LocatedValue<&'n str>),
    Mapping(Fields<'n>),
}

/// Formats quoted names as `a`, `a or b`, `a, b or c`.
pub(crate) fn one_of(names: impl IntoIterator<Item: fmt::Display>) -> String {
    let quoted = names.into_iter().map(|name| format!("`{name}`"));
    match quoted.collect::<Vec<String>>().as_slice() {
        [] => "nothing".to_owned(),
        [only] => only.clone(),
        [init @ .., last] => format!("{} or {last}", init.join(", ")),
    }
}
