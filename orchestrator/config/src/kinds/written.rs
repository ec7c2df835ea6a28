//! Places of a Connection's settings and secrets, for problems found in later checks.

use std::collections::BTreeMap;

use crate::fields::{Fields, Label};
use crate::place::Place;
use crate::tree::{Entry, Node, Value};

/// Places of a Connection's settings and secrets.
pub(crate) struct Written {
    pub(super) label: Label,
    pub(super) spec: Place,
    /// Places of a setting's name and value, by the setting's label.
    pub(super) settings: BTreeMap<String, (Place, Place)>,
    /// Places of the secrets' names.
    pub(super) secrets: BTreeMap<String, Place>,
    /// True if every value was resolved; if false, the missing ones were reported.
    pub(crate) is_whole: bool,
}

impl Written {
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
    pub(crate) fn place_of(&self, setting: &str) -> Place {
        let places = self.settings.get(setting);
        places.map_or(self.spec, |(_, value)| *value)
    }

    /// Records the places of settings, including nested ones.
    pub(crate) fn note_settings(&mut self, parent: &str, entries: &[Entry]) {
        for entry in entries {
            let dot = if parent.is_empty() { "" } else { "." };
            let label = format!("{parent}{dot}{}", entry.key);
            self.note(label, entry.key_place, &entry.node);
        }
    }

    fn note(&mut self, label: String, name: Place, node: &Node) {
        match &node.value {
            Value::Mapping(entries) => self.note_settings(&label, entries),
            Value::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.note(format!("{label}[{index}]"), item.place, item);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => {}
        }
        self.settings.insert(label, (name, node.place));
    }

    pub(crate) fn note_secret(&mut self, entry: &Entry) {
        self.secrets.insert(entry.key.clone(), entry.key_place);
    }
}
