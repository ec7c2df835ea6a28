//! Checks the `config` of a built-in tool or extension against [`goondan_protocol::settings`].

use goondan_protocol::JsonObject;
use goondan_protocol::settings::{
    self, Problem as Wrong, SettingFormat, SettingsSpec, ValuePosition,
};

use crate::codes;
use crate::fields::{Label, one_of};
use crate::report::{Problem, ProblemReport, SourceLocation};
use crate::similar::nearest;
use crate::tree::{MappingEntry, YamlNode, YamlValue, entries_to_json};

/// Reports problems of given settings, but not missing ones, which may be set elsewhere. `label`
/// names the settings, `owner` their resource.
pub(crate) fn check_written(
    settings: &'static SettingsSpec,
    entries: &[MappingEntry],
    label: &Label,
    owner: &str,
    report: &mut ProblemReport,
) {
    for wrong in settings::check_written(settings, &entries_to_json(entries)) {
        let problem = match wrong {
            Wrong::Unknown { name, known } => {
                let Some(entry) = entry_of(entries, &name) else {
                    continue;
                };
                unknown(entry, &known, entries, label, owner)
            }
            Wrong::WrongType { at, expected } => {
                let Some(node) = node_of(entries, &at) else {
                    continue;
                };
                wrong_type(node, &at, expected, settings, label)
            }
            Wrong::WrongValue { at, expected } => {
                let Some(node) = node_of(entries, &at) else {
                    continue;
                };
                let message = format!("{} must be {expected}", label_of(&at, label));
                Problem::new(codes::INVALID_VALUE, node.place, message)
            }
            // Not a problem of a given setting.
            Wrong::Missing { .. } => continue,
        };
        report.add(problem);
    }
}

/// Reports missing required settings, at `place`.
pub(crate) fn check_missing(
    settings: &'static SettingsSpec,
    config: &JsonObject,
    place: SourceLocation,
    owner: &str,
    report: &mut ProblemReport,
) {
    for wrong in settings::check_missing(settings, config) {
        let Wrong::Missing { names } = wrong else {
            continue;
        };
        report.add(
            Problem::new(
                codes::MISSING_FIELD,
                place,
                format!("{owner} needs the setting {}", one_of(&names)),
            )
            .help("write it into its `config`"),
        );
    }
}

fn unknown(
    entry: &MappingEntry,
    known: &[&'static str],
    entries: &[MappingEntry],
    label: &Label,
    owner: &str,
) -> Problem {
    let begin = format!("unknown field `{}` in {label}", entry.key);
    if known.is_empty() {
        let message = format!("{begin}; {owner} has no settings");
        return Problem::new(codes::UNKNOWN_FIELD, entry.key_place, message).help("remove it");
    }
    // Settings that are already present are not likely candidates.
    let free = known.iter().copied();
    let free = free.filter(|name| entry_of(entries, name).is_none());
    Problem::new(
        codes::UNKNOWN_FIELD,
        entry.key_place,
        format!("{begin}; {owner} takes {}", one_of(known)),
    )
    .rename(&entry.key, nearest(&entry.key, free))
}

fn wrong_type(
    node: &YamlNode,
    at: &ValuePosition,
    expected: &str,
    settings: &SettingsSpec,
    label: &Label,
) -> Problem {
    let message = format!(
        "{} must be {expected}, not {}",
        label_of(at, label),
        node.value.noun()
    );
    let problem = Problem::new(codes::WRONG_TYPE, node.place, message);
    let mut all = settings.settings.iter();
    let content = all.find(|it| it.name == at.name).map(|it| it.content);
    let is_text = matches!(
        (content, at.item),
        (Some(SettingFormat::Text), None) | (Some(SettingFormat::Texts), Some(_))
    );
    match node.value {
        YamlValue::Bool(_) | YamlValue::Number(_) if is_text => {
            problem.help("put the value in quotes").quote()
        }
        // Only connectors hold credentials. A tool would receive the mapping itself instead of its
        // value.
        YamlValue::Mapping(ref entries) if entry_of(entries, "valueFrom").is_some() => {
            problem.help("`valueFrom` works only in Connections; write the value itself")
        }
        _ => problem,
    }
}

fn label_of(at: &ValuePosition, label: &Label) -> Label {
    let label = label.field(at.name);
    match at.item {
        Some(item) => label.item(item),
        None => label,
    }
}

fn entry_of<'e>(entries: &'e [MappingEntry], name: &str) -> Option<&'e MappingEntry> {
    entries.iter().find(|entry| entry.key == name)
}

fn node_of<'e>(entries: &'e [MappingEntry], at: &ValuePosition) -> Option<&'e YamlNode> {
    let node = &entry_of(entries, at.name)?.node;
    match (at.item, &node.value) {
        (None, _) => Some(node),
        (Some(item), YamlValue::List(items)) => items.get(item),
        (Some(_), _) => None,
    }
}
