//! YAML text as a tree of values with their places.
//!
//! All problems are reported together, each at its own line. Both require a tree, because
//! deserializing directly to types stops at the first error. The tree is limited in depth, size and
//! repetition by aliases (see [`crate::limits`]), so hostile input costs no more than a large valid
//! file.

use std::collections::HashMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Number;
use serde_saphyr::{DuplicateKeyPolicy, Error, Location, MergeKeyPolicy, Spanned};

use crate::codes;
use crate::limits::{MAX_YAML_DEPTH, MAX_YAML_DOCUMENTS, MAX_YAML_NODES, MAX_YAML_TEXT_BYTES};
pub(crate) use crate::node::{MappingEntry, YamlNode, YamlValue, entries_to_json};
use crate::node::{REFERENCE, is_reference, is_token};
use crate::report::{FileId, Problem, ProblemReport, SourceLocation};
use crate::syntax::{ProblemText, explain};

/// Parses all documents of a file. Empty documents are skipped.
///
/// Returns `None` and reports the place if the text is not valid YAML; a file is parsed completely
/// or not at all.
pub(crate) fn parse(file: FileId, text: &str, report: &mut ProblemReport) -> Option<Vec<YamlNode>> {
    let parsed = try_parse(file, text, report);
    parsed
        .map_err(|error| report_syntax(&error, file, text, report))
        .ok()
}

/// As [`parse`], but only returns a syntax error.
pub(crate) fn try_parse(
    file: FileId,
    text: &str,
    report: &mut ProblemReport,
) -> Result<Vec<YamlNode>, Error> {
    let documents = serde_saphyr::from_multiple_with_options::<Spanned<Raw>>(text, options())?;
    let documents = documents.into_iter();
    let nodes = documents.map(|document| settle(document, file, report));
    Ok(nodes.collect())
}

fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_YAML_DEPTH,
            flow_nesting_limit: MAX_YAML_DEPTH,
            max_nodes: MAX_YAML_NODES,
            max_documents: MAX_YAML_DOCUMENTS,
            max_total_scalar_bytes: MAX_YAML_TEXT_BYTES,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_YAML_NODES,
            max_replay_stack_depth: MAX_YAML_DEPTH,
        },
        // `settle` reports all duplicates with their locations.
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        // `settle` handles merges. The parser would copy the content of a merge once for each
        // surrounding merge.
        merge_keys: MergeKeyPolicy::AsOrdinary,
        // YAML 1.2: `on` and `no` are strings, and `012` is not silently 12.
        strict_booleans: true,
        leading_zero_numbers_as_strings: true,
        reject_unsupported_tags: true,
        reject_tagged_field_names: true,
        // Our own diagnostics show the source line.
        with_snippet: false,
    }
}

fn place_of(location: Location, file: FileId) -> SourceLocation {
    let number = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
    SourceLocation {
        file,
        line: number(location.line()).max(1),
        column: number(location.column()).max(1),
        len: number(location.span().len()),
    }
}

/// Assigns places in `file` to all values and reports duplicate keys.
fn settle(raw: Spanned<Raw>, file: FileId, report: &mut ProblemReport) -> YamlNode {
    let place = place_of(raw.referenced, file);
    let value = match raw.value {
        Raw::Null => YamlValue::Null,
        Raw::Bool(value) => YamlValue::Bool(value),
        Raw::Number(value) => YamlValue::Number(value),
        Raw::Text(value) => YamlValue::Text(value),
        Raw::List(items) => YamlValue::List(
            items
                .into_iter()
                .map(|item| settle(item, file, report))
                .collect(),
        ),
        Raw::Mapping(fields) => YamlValue::Mapping(settle_mapping(fields, file, report)),
    };
    YamlNode { value, place }
}

/// Problem of two consecutive resources in one document.
fn missing_separator(place: SourceLocation) -> Problem {
    let message = "another resource begins here in the same document";
    Problem::new(codes::DUPLICATE_FIELD, place, message).help("add a line `---` above it")
}

/// The entries of a mapping, followed by those merged with `<<`.
fn settle_mapping(
    fields: Vec<RawField>,
    file: FileId,
    report: &mut ProblemReport,
) -> Vec<MappingEntry> {
    let mut entries: Vec<MappingEntry> = Vec::with_capacity(fields.len());
    let mut places = HashMap::new();
    let mut merged = Vec::new();
    for (key, raw) in fields {
        let key_place = place_of(key.referenced, file);
        let node = settle(raw, file, report);
        if key.value == MERGE_KEY {
            sources_of(node, key_place, &mut merged, report);
            continue;
        }
        let names_one = key.value == REFERENCE && is_reference(&node);
        if is_secret(&key.value) && !names_one && !is_taken(&node) {
            node.each_line(&mut |line| report.hide_line(file, line));
        }
        if let Some(first) = places.get(&key.value) {
            let is_frame = ["apiVersion", "kind"].contains(&key.value.as_str());
            if is_frame && places.contains_key("apiVersion") && places.contains_key("kind") {
                report.add(missing_separator(key_place));
                report.set_partial();
                break;
            }
            let first = report.locate(*first);
            report.add(
                Problem::new(
                    codes::DUPLICATE_FIELD,
                    key_place,
                    format!("field `{}` is set twice; first at {first}", key.value),
                )
                .help("keep one of the two"),
            );
            continue;
        }
        places.insert(key.value.clone(), key_place);
        entries.push(MappingEntry {
            key: key.value,
            key_place,
            node,
        });
    }
    for entry in merged {
        if !places.contains_key(&entry.key) {
            places.insert(entry.key.clone(), entry.key_place);
            entries.push(entry);
        }
    }
    entries
}

/// Adds the entries of every mapping that `<<` names to `merged`. Entries are moved, never copied.
/// The parser counts the repetition by aliases, and merges do not add to it, even if nested.
fn sources_of(
    node: YamlNode,
    key_place: SourceLocation,
    merged: &mut Vec<MappingEntry>,
    report: &mut ProblemReport,
) {
    let sources = match node.value {
        YamlValue::List(items) => items,
        value => vec![YamlNode { value, ..node }],
    };
    for source in sources {
        match source.value {
            YamlValue::Mapping(entries) => merged.extend(entries),
            YamlValue::Null => {}
            other => report.add(
                Problem::new(
                    codes::SYNTAX,
                    key_place,
                    format!("`{MERGE_KEY}` must be a mapping, not {}", other.noun()),
                )
                .help("write a mapping or a list of mappings: `<<: *name`"),
            ),
        }
    }
}

/// Reports a syntax error, and hides its line if the line may contain a secret.
pub(crate) fn report_syntax(error: &Error, file: FileId, text: &str, report: &mut ProblemReport) {
    let place = error.location().map_or_else(
        || SourceLocation::start_of(file),
        |location| place_of(location, file),
    );
    let hides = may_be_secret(text, place.line);
    if hides {
        report.hide_line(file, place.line);
    }
    let lines = text.trim_start_matches('\u{feff}').lines();
    let line = lines
        .skip(place.line.saturating_sub(1))
        .take(usize::from(!hides))
        .next();
    let ProblemText { message, help } = explain(error, line);
    report.set_partial();
    report.add(Problem::new(codes::SYNTAX, place, message).help_if(help));
}

/// True if the value of a field with this name is never shown (`SEC-2`). Includes likely typos,
/// because the report of a misspelled `secrets` must not reveal its value.
fn is_secret(key: &str) -> bool {
    const PARTS: [&str; 7] = [
        "secret",
        "apikey",
        "password",
        "passwd",
        "credential",
        "privatekey",
        "accesskey",
    ];
    // `api_key` and `api-key` are likely typos as well. `maxTokens` is a number.
    let letters = key.chars().filter(char::is_ascii_alphanumeric);
    let name = letters.collect::<String>().to_ascii_lowercase();
    let is_whole = name.ends_with("token") || name.ends_with("authorization");
    is_whole || PARTS.iter().any(|part| name.contains(part))
}

/// True for a valid `{valueFrom: {env: NAME}}` or `{valueFrom: {secretRef: …}}`, which can be
/// shown. Anything that does not look like a variable's name may be the secret itself.
fn is_taken(node: &YamlNode) -> bool {
    let [taken] = node.entries() else {
        return false;
    };
    let [source] = taken.node.entries() else {
        return false;
    };
    let is_variable = |name: &str| {
        let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        !name.is_empty() && name.chars().all(is_part)
    };
    taken.key == "valueFrom"
        && match (source.key.as_str(), &source.node.value) {
            (REFERENCE, _) => is_reference(&source.node),
            ("env", YamlValue::Text(name)) => is_variable(name),
            ("oauth", _) => is_token(&source.node),
            _ => false,
        }
}

/// True if a line of an unparsable file may contain a secret, because it or a previous line of the
/// document mentions one. Hiding too many lines is safer than showing too many.
pub(crate) fn may_be_secret(text: &str, line: usize) -> bool {
    text.lines().take(line).fold(false, |after_secret, text| {
        let mut words = text.split([':', '{', ',', ' ', '"', '\'']);
        (after_secret && !text.starts_with("---")) || words.any(is_secret)
    })
}

/// Field that merges the fields of another mapping, unless they are already present.
const MERGE_KEY: &str = "<<";

/// A field of a mapping, as returned by the parser.
type RawField = (Spanned<String>, Spanned<Raw>);

/// A value, as returned by the parser.
#[derive(Debug)]
enum Raw {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Spanned<Raw>>),
    Mapping(Vec<RawField>),
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Raw, E> {
        Ok(Raw::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Raw, E> {
        Ok(Raw::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Raw, E> {
        Ok(Raw::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Raw, E> {
        Number::from_f64(value)
            .map(Raw::Number)
            .ok_or_else(|| E::custom("a number must be finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Raw, E> {
        Ok(Raw::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Raw, E> {
        Ok(Raw::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Raw, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Raw::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Raw, A::Error> {
        let mut mapping = Vec::new();
        while let Some(field) = fields.next_entry()? {
            mapping.push(field);
        }
        Ok(Raw::Mapping(mapping))
    }
}
