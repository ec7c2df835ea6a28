//! Typed access to validated settings, with defaults.

use goondan_protocol::JsonObject;
use goondan_protocol::field::FieldDefault;
use serde_json::Value;

use crate::check::{name, number, truth};
use crate::description::Setting;

/// Settings with their descriptions. Only for settings that passed [`crate::check()`]; a value of
/// another type counts as missing.
#[derive(Debug, Clone, Copy)]
pub struct Values<'v> {
    settings: &'static [Setting],
    given: Option<&'v JsonObject>,
}

impl<'v> Values<'v> {
    /// The settings of this built-in connector; empty if it does not exist.
    #[must_use]
    pub fn of(name: &str, config: &'v JsonObject) -> Self {
        Self {
            settings: crate::find(name).map_or(&[], |connector| connector.settings),
            given: Some(config),
        }
    }

    fn find(&self, name: &str) -> (Option<&'static Setting>, Option<&'v Value>) {
        let setting = self.settings.iter().find(|setting| setting.name == name);
        debug_assert!(setting.is_some(), "`{name}` is not described");
        (setting, self.given.and_then(|given| given.get(name)))
    }

    #[must_use]
    pub fn text(&self, name: &str) -> Option<&'v str> {
        let (setting, value) = self.find(name);
        let default = || match setting?.default? {
            FieldDefault::Text(text) => Some(text),
            FieldDefault::Number(_) | FieldDefault::Truth(_) | FieldDefault::Meaning(_) => None,
        };
        value.and_then(Value::as_str).or_else(default)
    }

    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        let (setting, value) = self.find(name);
        let default = || match setting?.default? {
            FieldDefault::Number(number) => Some(number),
            FieldDefault::Text(_) | FieldDefault::Truth(_) | FieldDefault::Meaning(_) => None,
        };
        value.and_then(number).or_else(default)
    }

    /// A boolean; `false` if it is not set.
    #[must_use]
    pub fn truth(&self, name: &str) -> bool {
        let (setting, value) = self.find(name);
        let default = || match setting?.default? {
            FieldDefault::Truth(truth) => Some(truth),
            FieldDefault::Text(_) | FieldDefault::Number(_) | FieldDefault::Meaning(_) => None,
        };
        value.and_then(truth).or_else(default).unwrap_or(false)
    }

    /// An id; `None` if it is not set.
    #[must_use]
    pub fn id(&self, setting: &str) -> Option<String> {
        let (_, value) = self.find(setting);
        name(value?)
    }

    /// Names; `None` if not set.
    #[must_use]
    pub fn names(&self, setting: &str) -> Option<Vec<String>> {
        let (_, value) = self.find(setting);
        Some(value?.as_array()?.iter().filter_map(name).collect())
    }

    /// Strings in order; `None` if not set.
    #[must_use]
    pub fn texts(&self, setting: &str) -> Option<Vec<String>> {
        let (_, value) = self.find(setting);
        let texts = value?.as_array()?.iter().filter_map(Value::as_str);
        Some(texts.map(str::to_owned).collect())
    }

    /// Strings by name; empty if not set.
    #[must_use]
    pub fn text_map(&self, setting: &str) -> Vec<(&'v str, &'v str)> {
        let (_, value) = self.find(setting);
        let entries = value.and_then(Value::as_object).into_iter().flatten();
        entries
            .filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)))
            .collect()
    }

    /// Nested settings; if not set, all have their defaults.
    #[must_use]
    pub fn map(&self, name: &str) -> Self {
        let (setting, value) = self.find(name);
        Self {
            settings: setting.map_or(&[], inner),
            given: value.and_then(Value::as_object),
        }
    }

    /// The items of a list of nested settings.
    #[must_use]
    pub fn list(&self, name: &str) -> Vec<Self> {
        let (setting, value) = self.find(name);
        let settings = setting.map_or(&[][..], inner);
        let items = value.and_then(Value::as_array).into_iter().flatten();
        items
            .map(|item| Self {
                settings,
                given: item.as_object(),
            })
            .collect()
    }
}

fn inner(setting: &'static Setting) -> &'static [Setting] {
    match setting.content {
        crate::SettingType::Map(settings) | crate::SettingType::Named(settings) => settings,
        _ => &[],
    }
}
