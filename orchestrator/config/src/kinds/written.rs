//! Places of a Connection's settings and secrets, for problems found in later checks.

use std::collections::BTreeMap;

use crate::fields::{Fields, Label};
use crate::place::SourceLocation;
use crate::tree::{MappingEntry, YamlNode, YamlValue};

/// Places of a Connection's settings and secrets.
pub(crate) struct ConnectionLocations {
    pub(crate) label: Label,
    pub(super) spec: SourceLocation,
    /// Places of a setting's name and value, by the setting's label.
    pub(super) settings: BTreeMap<String, (SourceLocation, SourceLocation)>,
    /// Places of the secrets' names.
    pub(super) secrets: BTreeMap<String, SourceLocation>,
    /// True if every value was resolved; if false, the missing ones were reported.
    pub(crate) is_whole: bool,
}

impl ConnectionLocations {
    pub(crate) fn new(spec: &Fields<'_>) -> Self {
        Self {
            label: spec.label.clone(),
            spec: spec.place,
            settings: BTreeMap::new(),
            secrets: BTreeMap::new(),
            is_whole: true,
        }
    }

    /// Place of a setting's value; the place of all settings if it is absent.
    pub(crate) fn place_of(&self, setting: &str) -> SourceLocation {
        let places = self.settings.get(setting);
        places.map_or(self.spec, |(_, value)| *value)
    }

    /// Records the places of settings, including nested ones.
    pub(crate) fn note_settings(&mut self, parent: &str, entries: &[MappingEntry]) {
        for entry in entries {
            let dot = if parent.is_empty() { "" } else { "." };
            let label = format!("{parent}{dot}{}", entry.key);
            self.note(label, entry.key_place, &entry.node);
        }
    }

    fn note(&mut self, label: String, name: SourceLocation, node: &YamlNode) {
        match &node.value {
            YamlValue::Mapping(entries) => self.note_settings(&label, entries),
            YamlValue::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.note(format!("{label}[{index}]"), item.place, item);
                }
            }
            YamlValue::Null | YamlValue::Bool(_) | YamlValue::Number(_) | YamlValue::Text(_) => {}
        }
        self.settings.insert(label, (name, node.place));
    }

    pub(crate) fn note_secret(&mut self, entry: &MappingEntry) {
        self.secrets.insert(entry.key.clone(), entry.key_place);
    }
}
