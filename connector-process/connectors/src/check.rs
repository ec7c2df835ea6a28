//! Validates a Connection's settings and secrets, and reports all problems.

use std::collections::BTreeMap;
use std::fmt;

use goondan_protocol::JsonObject;
use goondan_protocol::ids::{InstanceKey, ResourceName};
use serde_json::Value;

use crate::description::{Connector, Setting, SettingType};
use crate::hosts::AllowedHost;
use crate::schedule;
use crate::signatures::{self, SecretFormat, SignatureScheme};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingPathStep {
    /// The setting of this name.
    Field(String),
    /// The item of this index.
    Item(usize),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProblemLocation {
    /// This setting. Empty for the settings as a whole.
    Setting(Vec<SettingPathStep>),
    /// The secret of this name.
    Secret(String),
    Secrets,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProblemKind {
    /// The setting or secret does not exist.
    Unknown { known: Vec<&'static str> },
    /// A required setting or secret is missing.
    Missing { name: &'static str },
    Wrong {
        expected: String,
        /// Description of the value, without secrets.
        found: String,
        /// The valid words, if the value must be one of several.
        words: &'static [&'static str],
    },
    /// Neither or both of two settings are set.
    OneOf { names: [&'static str; 2] },
    /// Two items of a list have the same name.
    Twice { name: String },
    /// The setting requires this secret.
    NeedsSecret { secret: &'static str },
    /// The secret is empty.
    Empty,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub place: ProblemLocation,
    pub kind: ProblemKind,
}

/// `schedules[0].cron`
fn label(path: &[SettingPathStep]) -> String {
    let mut label = String::new();
    for step in path {
        match step {
            SettingPathStep::Field(name) if label.is_empty() => label.push_str(name),
            SettingPathStep::Field(name) => {
                label.push('.');
                label.push_str(name);
            }
            SettingPathStep::Item(index) => label.push_str(&format!("[{index}]")),
        }
    }
    label
}

impl ProblemLocation {
    /// The setting or secret as people write it: `schedules[0].cron`. Empty for a location as a
    /// whole.
    #[must_use]
    pub fn label(&self) -> String {
        match self {
            Self::Setting(path) => label(path),
            Self::Secret(name) => name.clone(),
            Self::Secrets => String::new(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.place.label();
        let what = match &self.place {
            ProblemLocation::Setting(_) => "setting",
            ProblemLocation::Secret(_) | ProblemLocation::Secrets => "secret",
        };
        match &self.kind {
            ProblemKind::Unknown { known } if known.is_empty() => {
                write!(f, "unknown {what} `{name}`; none exist")
            }
            ProblemKind::Unknown { known } => {
                write!(f, "unknown {what} `{name}`; available: {}", listed(known))
            }
            ProblemKind::Missing { name: missing } if name.is_empty() => {
                write!(f, "the {what} `{missing}` is missing")
            }
            ProblemKind::Missing { name: missing } => {
                write!(f, "`{name}` needs the setting `{missing}`")
            }
            ProblemKind::Wrong {
                expected, found, ..
            } => write!(f, "`{name}` must be {expected}, found {found}"),
            ProblemKind::OneOf {
                names: [one, other],
            } => {
                write!(f, "exactly one of `{one}` and `{other}` must be set")
            }
            ProblemKind::Twice { name: twice } => {
                write!(f, "`{name}`: duplicate name `{twice}`")
            }
            ProblemKind::NeedsSecret { secret } => {
                write!(f, "`{name}` is set, but the secret `{secret}` is missing")
            }
            ProblemKind::Empty => {
                write!(f, "the secret `{name}` is empty, so it protects nothing")
            }
        }
    }
}

fn listed(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

/// Validates the settings and secrets of a Connection, and returns all problems in order. If empty,
/// the connector can be created.
#[must_use]
pub fn check(
    connector: &Connector,
    config: &JsonObject,
    secrets: &BTreeMap<String, String>,
) -> Vec<Problem> {
    let preset = if connector.name == "webhook" {
        signatures::preset_of(config)
    } else {
        None
    };
    let is_secretless = preset.is_some_and(|preset| preset.secret == SecretFormat::None);
    let mut checking = SettingsChecker {
        needs: connector
            .needs
            .filter(|(_, secret)| !secrets.contains_key(*secret) && !is_secretless),
        path: Vec::new(),
        problems: Vec::new(),
    };
    checking.map(connector.settings, config);
    if let Some(names) = connector.one_of {
        let [one, other] = names.map(|name| config.contains_key(name));
        if one == other {
            checking.add(ProblemKind::OneOf { names });
        }
    }
    let mut problems = checking.problems;
    if let Some(preset) = preset {
        problems.extend(signature_problems(preset, config, secrets));
    }
    for (name, value) in secrets {
        let place = ProblemLocation::Secret(name.clone());
        if !connector.secrets.iter().any(|secret| secret.name == name) {
            let known = connector.secrets.iter().map(|secret| secret.name).collect();
            let kind = ProblemKind::Unknown { known };
            problems.push(Problem { place, kind });
        } else if value.is_empty() {
            let kind = ProblemKind::Empty;
            problems.push(Problem { place, kind });
        }
    }
    for secret in connector.secrets {
        if secret.is_required && !secrets.contains_key(secret.name) {
            problems.push(Problem {
                place: ProblemLocation::Secrets,
                kind: ProblemKind::Missing { name: secret.name },
            });
        }
    }
    problems
}

/// Names of the secrets that sign requests to a webhook.
const SIGNING_SECRETS: [&str; 2] = ["hmac", "previousHmac"];

/// Problems of a webhook's secrets and topics that depend on its preset.
fn signature_problems(
    preset: &signatures::SignaturePreset,
    config: &JsonObject,
    secrets: &BTreeMap<String, String>,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    let signature = config.get("signature").and_then(Value::as_object);
    let has_topics = signature.is_some_and(|signature| signature.contains_key("topics"));
    // A signature of Amazon SNS only proves that some account's topic sent the message.
    if preset.scheme == SignatureScheme::Sns && !has_topics {
        problems.push(Problem {
            place: ProblemLocation::Setting(vec![SettingPathStep::Field("signature".to_owned())]),
            kind: ProblemKind::Missing { name: "topics" },
        });
    }
    let set = SIGNING_SECRETS.map(|name| secrets.get(name).map(|secret| (name, secret)));
    for (name, secret) in set.into_iter().flatten() {
        // An empty secret is reported with all others.
        if !secret.is_empty() && preset.secret.key(secret).is_none() {
            problems.push(Problem {
                place: ProblemLocation::Secret(name.to_owned()),
                kind: ProblemKind::Wrong {
                    expected: preset.secret.expected(),
                    found: "another text".to_owned(),
                    words: &[],
                },
            });
        }
    }
    if secrets.contains_key("previousHmac") && !secrets.contains_key("hmac") {
        problems.push(Problem {
            place: ProblemLocation::Secrets,
            kind: ProblemKind::Missing { name: "hmac" },
        });
    }
    problems
}

struct SettingsChecker {
    /// The setting that requires a missing secret, and the secret.
    needs: Option<(&'static str, &'static str)>,
    path: Vec<SettingPathStep>,
    problems: Vec<Problem>,
}

impl SettingsChecker {
    fn add(&mut self, kind: ProblemKind) {
        self.problems.push(Problem {
            place: ProblemLocation::Setting(self.path.clone()),
            kind,
        });
    }

    fn map(&mut self, settings: &'static [Setting], given: &JsonObject) {
        for (name, value) in given {
            self.path.push(SettingPathStep::Field(name.clone()));
            match settings.iter().find(|setting| setting.name == name) {
                Some(setting) => self.setting(setting, value),
                None => {
                    let known = settings.iter().map(|setting| setting.name);
                    self.add(ProblemKind::Unknown {
                        known: known.collect(),
                    });
                }
            }
            self.path.pop();
        }
        for setting in settings {
            let is_set = given.contains_key(setting.name);
            if setting.is_required && !is_set {
                self.add(ProblemKind::Missing { name: setting.name });
            }
        }
    }

    fn setting(&mut self, setting: &Setting, value: &Value) {
        if let Some((_, secret)) = self.needs.filter(|(name, _)| *name == setting.name) {
            self.add(ProblemKind::NeedsSecret { secret });
        }
        match (setting.content, value) {
            (SettingType::Map(settings), Value::Object(given)) => {
                self.map(settings, given);
                self.check_hours(given);
            }
            (SettingType::Named(settings), Value::Array(items)) if !items.is_empty() => {
                self.named(settings, items);
            }
            (content, value) => {
                if let Err((expected, found)) = scalar(content, value) {
                    let words = match content {
                        SettingType::Word(words) => words,
                        _ => &[],
                    };
                    self.add(ProblemKind::Wrong {
                        expected,
                        found,
                        words,
                    });
                }
            }
        }
    }

    /// Checks that hours `from` a time `until` another one are not empty.
    fn check_hours(&mut self, given: &JsonObject) {
        let time = |name: &str| given.get(name).filter(|it| is_time_of_day(it));
        let (Some(from), Some(until)) = (time("from"), time("until")) else {
            return;
        };
        if from == until {
            self.path.push(SettingPathStep::Field("until".to_owned()));
            self.add(ProblemKind::Wrong {
                expected: "another time than `from`".to_owned(),
                found: shown(until),
                words: &[],
            });
            self.path.pop();
        }
    }

    fn named(&mut self, settings: &'static [Setting], items: &[Value]) {
        let mut names: Vec<&str> = Vec::new();
        for (index, item) in items.iter().enumerate() {
            self.path.push(SettingPathStep::Item(index));
            match item {
                Value::Object(given) => {
                    self.map(settings, given);
                    if let Some(name) = given.get("name").and_then(Value::as_str) {
                        if names.contains(&name) {
                            let name = name.to_owned();
                            self.add(ProblemKind::Twice { name });
                        }
                        names.push(name);
                    }
                }
                other => self.add(ProblemKind::Wrong {
                    expected: "a map".to_owned(),
                    found: kind_of(other).to_owned(),
                    words: &[],
                }),
            }
            self.path.pop();
        }
    }
}

/// Validates a value without nested settings; the error describes valid values and the actual
/// value.
fn scalar(content: SettingType, value: &Value) -> Result<(), (String, String)> {
    let text = value.as_str();
    let is = |holds: bool, expected: &str, found: String| {
        if holds {
            Ok(())
        } else {
            Err((expected.to_owned(), found))
        }
    };
    let kind = || kind_of(value).to_owned();
    match content {
        SettingType::Text => is(
            text.is_some_and(|text| !text.is_empty()),
            "a text that is not empty",
            kind(),
        ),
        SettingType::AnyText => is(text.is_some(), "a text", kind()),
        SettingType::Name(bytes_max) => is(
            text.is_some_and(|text| text.len() <= bytes_max && ResourceName::new(text).is_ok()),
            &format!("letters, digits, `-`, `_` and `.`, at most {bytes_max}"),
            kind(),
        ),
        SettingType::Word(words) => is(
            text.is_some_and(|text| words.contains(&text)),
            &listed(words),
            shown(value),
        ),
        SettingType::Words(words) => is(
            value.as_array().is_some_and(|items| {
                let is_word = |item: &Value| item.as_str().is_some_and(|it| words.contains(&it));
                !items.is_empty() && items.iter().all(is_word)
            }),
            &format!("a list, not empty, of {}", listed(words)),
            shown(value),
        ),
        SettingType::Number(least, most) => is(
            number(value).is_some_and(|number| (least..=most).contains(&number)),
            &format!("a whole number from {least} to {most}"),
            shown(value),
        ),
        SettingType::Truth => is(truth(value).is_some(), "`true` or `false`", shown(value)),
        SettingType::Hosts => hosts(value),
        SettingType::HeaderName => is(
            text.is_some_and(is_header_name),
            "the name of an HTTP header",
            kind(),
        ),
        SettingType::UrlPath => is(
            text.is_some_and(is_url_path),
            "a URL path that begins with `/`, other characters written as `%XX`",
            shown(value),
        ),
        SettingType::Url => is(
            text.is_some_and(is_url),
            "a URL that begins with `https://` or `http://`, without `?` and `#`",
            kind(),
        ),
        SettingType::Hex(bytes) => is(
            text.is_some_and(|text| {
                text.len() == 2 * bytes && text.bytes().all(|byte| byte.is_ascii_hexdigit())
            }),
            &format!("{} hexadecimal digits", 2 * bytes),
            kind(),
        ),
        SettingType::InstanceKey => match text.map(InstanceKey::new) {
            Some(Ok(_)) => Ok(()),
            Some(Err(error)) => Err((format!("an instance key ({error})"), shown(value))),
            None => Err(("an instance key".to_owned(), kind())),
        },
        SettingType::Cron => grammar(value, "a cron expression", schedule::check_cron),
        SettingType::TimeZone => grammar(
            value,
            "the IANA name of a time zone, such as `Europe/Berlin`",
            schedule::check_time_zone,
        ),
        SettingType::TimeOfDay => is(
            is_time_of_day(value),
            "hour and minute of a day, such as `22:00`",
            shown(value),
        ),
        SettingType::Id => is(
            is_name(value),
            "a text that is not empty, or a whole number",
            kind(),
        ),
        SettingType::Names => is(
            value
                .as_array()
                .is_some_and(|items| !items.is_empty() && items.iter().all(is_name)),
            "a list, not empty, of texts and whole numbers",
            kind(),
        ),
        SettingType::Command => is(
            value
                .as_array()
                .is_some_and(|items| !items.is_empty() && items.iter().all(Value::is_string)),
            "a list of texts: the program and its arguments",
            kind(),
        ),
        SettingType::Variables => is(
            is_map_of(value, is_variable),
            "a map of texts whose names are letters, digits and `_`",
            kind(),
        ),
        SettingType::Headers => is(
            is_map_of(value, is_header_name),
            "a map of texts whose names are names of HTTP headers",
            kind(),
        ),
        SettingType::Map(_) => Err(("a map".to_owned(), kind())),
        SettingType::Named(_) => Err(("a list of maps that is not empty".to_owned(), kind())),
    }
}

fn grammar(
    value: &Value,
    expected: &str,
    check: fn(&str) -> Result<(), String>,
) -> Result<(), (String, String)> {
    let Some(text) = value.as_str() else {
        return Err((expected.to_owned(), kind_of(value).to_owned()));
    };
    check(text).map_err(|reason| {
        let found = shown(value);
        (expected.to_owned(), format!("{found}: {reason}"))
    })
}

fn is_time_of_day(value: &Value) -> bool {
    value.as_str().and_then(minute_of_day).is_some()
}

/// Minutes from midnight until a time such as `07:30`.
pub(crate) fn minute_of_day(text: &str) -> Option<u16> {
    let (hour, minute) = text.split_once(':')?;
    let number = |digits: &str, end: u16| {
        let is_plain = digits.len() == 2 && digits.bytes().all(|it| it.is_ascii_digit());
        let number: u16 = digits.parse().ok().filter(|_| is_plain)?;
        (number < end).then_some(number)
    };
    Some(number(hour, 24)? * 60 + number(minute, 60)?)
}

/// A whole number, or its digits as a string.
pub(crate) fn number(value: &Value) -> Option<u64> {
    match value {
        Value::String(digits) => digits.parse().ok(),
        other => other.as_u64(),
    }
}

/// A string, or a whole number as a string.
pub(crate) fn name(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) if !number.is_f64() => Some(number.to_string()),
        _ => None,
    }
}

fn is_name(value: &Value) -> bool {
    name(value).is_some()
}

fn is_map_of(value: &Value, is_key: fn(&str) -> bool) -> bool {
    let is_text = |value: &Value| value.as_str().is_some_and(|text| !text.contains('\0'));
    let entries = value.as_object();
    entries.is_some_and(|map| map.iter().all(|(key, value)| is_key(key) && is_text(value)))
}

fn is_variable(text: &str) -> bool {
    let is_name = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    !text.is_empty() && !text.starts_with(|c: char| c.is_ascii_digit()) && text.bytes().all(is_name)
}

/// Checks a header name by RFC 9110.
fn is_header_name(text: &str) -> bool {
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !text.is_empty() && text.bytes().all(is_token)
}

/// Checks a URL path: characters that a URL cannot contain would never match a request.
fn is_url_path(text: &str) -> bool {
    let in_url = |b: u8| b.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@%".contains(&b);
    text.starts_with('/') && text.bytes().all(in_url)
}

fn is_url(text: &str) -> bool {
    let rest = text
        .strip_prefix("https://")
        .or_else(|| text.strip_prefix("http://"));
    rest.is_some_and(|rest| {
        !rest.is_empty()
            && !rest.starts_with('/')
            && rest
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && !b"?#".contains(&byte))
    })
}

/// Longest value that a message repeats, in characters.
const SHOWN_CHARS_MAX: usize = 60;

/// The value itself, truncated. Only for settings that plausibly contain no secret.
fn shown(value: &Value) -> String {
    value.to_string().chars().take(SHOWN_CHARS_MAX).collect()
}

/// Type of a value, for settings in which the value itself could be a misplaced secret.
fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(text) if text.is_empty() => "empty",
        Value::String(_) => "another text",
        Value::Array(items) if items.is_empty() => "an empty list",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;

/// Checks that every item is a valid allowed host.
fn hosts(value: &Value) -> Result<(), (String, String)> {
    let expected =
        "a list of hosts such as `example.com`, `*.example.com` or `http://10.0.0.7:8080`";
    let wrong = |found: String| Err((expected.to_owned(), found));
    let Some(items) = value.as_array().filter(|items| !items.is_empty()) else {
        return wrong(kind_of(value).to_owned());
    };
    // An invalid entry is not repeated, because it may contain a password.
    for (number, item) in (1..).zip(items) {
        match item.as_str().map(AllowedHost::parse) {
            None => return wrong(format!("a list whose entry {number} is {}", kind_of(item))),
            Some(Err(reason)) => {
                return wrong(format!("a list whose entry {number} has {reason}"));
            }
            Some(Ok(_)) => {}
        }
    }
    Ok(())
}

/// `true`, `false`, or these words as strings.
pub(crate) fn truth(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(truth) => Some(*truth),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}
