//! The last check of an incident before it is written: it must not contain a secret value, in any
//! encoding.
//!
//! The check shares no code with the masking before it, so that a fault there is found here. It
//! looks at each text of the file, and at the whole file.

use std::collections::BTreeSet;

use aho_corasick::AhoCorasick;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use serde_json::Value;

use super::secrets::SecretText;

/// Shortest value that is looked for, in bytes: shorter ones are not masked either, because they
/// occur by chance.
const VALUE_BYTES_MIN: usize = 6;
/// Shortest line of a longer value that is searched alone, in bytes.
const LINE_BYTES_MIN: usize = 16;

/// A value that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Leak {
    /// Place in the file, as a JSON pointer.
    pub(super) place: String,
    /// The encoding.
    pub(super) form: &'static str,
    /// The secret, without its value.
    pub(super) what: String,
}

/// A form of a value.
struct LeakPattern {
    text: String,
    form: &'static str,
    /// Index of the secret.
    secret: usize,
}

/// Looks for the values of some secrets.
pub(super) struct LeakCheck<'s> {
    secrets: &'s [SecretText],
    /// Forms in which the case of letters matters.
    exact: Option<(AhoCorasick, Vec<LeakPattern>)>,
    /// Forms of digits, in lower case.
    digits: Option<(AhoCorasick, Vec<LeakPattern>)>,
}

impl<'s> LeakCheck<'s> {
    /// # Errors
    ///
    /// The values are too large to search for.
    pub(super) fn new(secrets: &'s [SecretText]) -> Result<Self, aho_corasick::BuildError> {
        let (mut exact, mut digits) = (Vec::new(), Vec::new());
        for (secret, SecretText { value, .. }) in secrets.iter().enumerate() {
            for part in parts(value) {
                let pattern = |(form, text)| LeakPattern { text, form, secret };
                exact.extend(exact_forms(part).into_iter().map(pattern));
                digits.extend(digit_forms(part).into_iter().map(pattern));
            }
        }
        Ok(Self {
            secrets,
            exact: finder(exact)?,
            digits: finder(digits)?,
        })
    }

    /// The first value in a file, which is given as text and as JSON.
    pub(super) fn find(&self, text: &str, json: &Value) -> Option<Leak> {
        let found = self.in_value(json, &mut Vec::new());
        found.or_else(|| self.in_text(text, || "the file as a whole".to_owned()))
    }

    fn in_value(&self, value: &Value, path: &mut Vec<String>) -> Option<Leak> {
        let at = |path: &[String]| format!("/{}", path.join("/"));
        match value {
            Value::String(text) => self.in_text(text, || at(path)),
            Value::Number(number) => self.in_text(&number.to_string(), || at(path)),
            Value::Array(items) => items
                .iter()
                .enumerate()
                .find_map(|(index, item)| self.below(item, index.to_string(), path)),
            Value::Object(fields) => fields.iter().find_map(|(name, item)| {
                let of_name = self.in_text(name, || format!("a name of a field in {}", at(path)));
                of_name.or_else(|| self.below(item, name.clone(), path))
            }),
            Value::Null | Value::Bool(_) => None,
        }
    }

    fn below(&self, value: &Value, name: String, path: &mut Vec<String>) -> Option<Leak> {
        path.push(name);
        let found = self.in_value(value, path);
        path.pop();
        found
    }

    fn in_text(&self, text: &str, place: impl Fn() -> String) -> Option<Leak> {
        let found = |finder: &Option<(AhoCorasick, Vec<LeakPattern>)>, text: &str| {
            let (finder, patterns) = finder.as_ref()?;
            let pattern = patterns.get(finder.find(text)?.pattern().as_usize())?;
            let secret = self.secrets.get(pattern.secret)?;
            Some(Leak {
                place: place(),
                form: pattern.form,
                what: secret.what.clone(),
            })
        };
        found(&self.exact, text).or_else(|| found(&self.digits, &text.to_ascii_lowercase()))
    }
}

fn finder(
    mut patterns: Vec<LeakPattern>,
) -> Result<Option<(AhoCorasick, Vec<LeakPattern>)>, aho_corasick::BuildError> {
    patterns.retain(|pattern| pattern.text.len() >= VALUE_BYTES_MIN);
    if patterns.is_empty() {
        return Ok(None);
    }
    let finder = AhoCorasick::new(patterns.iter().map(|pattern| &pattern.text))?;
    Ok(Some((finder, patterns)))
}

/// The value, and its longer lines.
fn parts(value: &str) -> BTreeSet<&str> {
    let lines = value.lines().map(str::trim);
    let lines = lines.filter(|line| line.len() >= LINE_BYTES_MIN);
    let whole = [value, value.trim()].into_iter();
    let whole = whole.filter(|text| text.len() >= VALUE_BYTES_MIN);
    lines.chain(whole).collect()
}

fn exact_forms(value: &str) -> Vec<(&'static str, String)> {
    let escaped = escaped(value);
    let ascii = escaped.chars().map(in_ascii).collect::<String>();
    let mut forms = vec![
        ("plain text", value.to_owned()),
        ("JSON", self::escaped(&escaped)),
        ("JSON", self::escaped(&ascii)),
        ("JSON", ascii),
        ("JSON", escaped),
    ];
    for offset in 0..3 {
        for encoding in [&STANDARD, &URL_SAFE] {
            forms.push(("base64", base64_core(value, offset, encoding)));
        }
    }
    forms
}

/// Forms whose digits are in lower case.
fn digit_forms(value: &str) -> Vec<(&'static str, String)> {
    let hex = value.bytes().map(|byte| format!("{byte:02x}")).collect();
    let percent = value.bytes().map(|byte| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_ascii_lowercase().to_string()
        }
        _ => format!("%{byte:02x}"),
    });
    let percent: String = percent.collect();
    let mut forms = vec![("hex", hex)];
    // Without an escape, it is the plain text, in which the case of letters matters.
    if percent.contains('%') {
        forms.push(("URL encoding", percent.replace("%20", "+")));
        forms.push(("URL encoding", percent));
    }
    forms
}

/// The text within a JSON string.
fn escaped(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    let inner = quoted.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
    inner.unwrap_or(&quoted).to_owned()
}

fn in_ascii(c: char) -> String {
    if c.is_ascii() {
        return c.to_string();
    }
    let mut units = [0; 2];
    let units = c.encode_utf16(&mut units).iter();
    units.map(|unit| format!("\\u{unit:04x}")).collect()
}

/// The digits that depend on the value alone, after `offset` other bytes.
fn base64_core(value: &str, offset: usize, encoding: &impl base64::Engine) -> String {
    let whole = [&vec![0; offset], value.as_bytes()].concat();
    let encoded = encoding.encode(&whole);
    let (first, last) = ((offset * 8).div_ceil(6), whole.len() * 8 / 6);
    encoded.get(first..last).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use goondan_masking::MaskTable;
    use goondan_tests::secret_forms::SecretForms;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn secret(value: &str) -> Vec<SecretText> {
        vec![SecretText {
            what: "secret `key` entry `value`".to_owned(),
            value: value.to_owned(),
        }]
    }

    fn find(secrets: &[SecretText], json: &Value) -> Option<Leak> {
        let check = LeakCheck::new(secrets).unwrap();
        check.find(&json.to_string(), json)
    }

    #[test]
    fn sec_2_a_value_is_found_in_every_form_and_named_by_its_place() {
        let value = "p\"ss w\u{f6}rd/+?1";
        for (name, form) in SecretForms::of(value).forms {
            let json = json!({"turns": [{"a": 1}, {"b": format!("x {form} y")}]});
            let leak = find(&secret(value), &json).unwrap_or_else(|| panic!("{name}: {form}"));
            assert_eq!(leak.place, "/turns/1/b", "{name}");
            assert_eq!(leak.what, "secret `key` entry `value`");
            assert!(!format!("{leak:?}").contains(value));
        }
    }

    #[test]
    fn sec_2_names_of_fields_numbers_and_lines_are_looked_at() {
        let key = "-----BEGIN KEY-----\nMC4CAQAwBQYDK2VwBCIEIBbl\n";
        let found = |value: &str, json: Value| find(&secret(value), &json).map(|leak| leak.place);
        assert_eq!(
            found("hunter2-and-more", json!({"a": {"hunter2-and-more": 1}})).as_deref(),
            Some("a name of a field in /a")
        );
        assert_eq!(
            found("123456", json!({"n": 123_456})).as_deref(),
            Some("/n")
        );
        assert_eq!(
            found(key, json!(["is MC4CAQAwBQYDK2VwBCIEIBbl"])).as_deref(),
            Some("/0")
        );
        assert_eq!(
            found("hunter2", json!({"a": "HUNTER2", "b": "nothing"})),
            None
        );
        assert_eq!(found("8080", json!({"port": "8080"})), None);
        assert_eq!(find(&[], &json!("anything")), None);
    }

    fn any_secret() -> impl Strategy<Value = String> {
        let any = prop::collection::vec(any::<char>(), 8..40);
        any.prop_map(|chars| chars.into_iter().filter(|c| !c.is_control()).collect())
    }

    proptest! {
        #[test]
        fn sec_2_no_masked_text_contains_a_value_in_any_encoding(
            value in any_secret(),
            form in 0..15_usize,
            (before, behind) in ("[ a-z]{0,9}", "[ a-z]{0,9}"),
        ) {
            // `SecretForms` takes a quote at the end for that of JSON.
            prop_assume!(value.trim().len() >= 12 && !value.ends_with('"'));
            let forms = SecretForms::of(&value).forms;
            let (name, form) = forms.get(form % forms.len()).unwrap().clone();
            prop_assume!(form.len() >= 12);
            let text = format!("{before} {form} {behind}");
            let secrets = secret(&value);
            prop_assert!(find(&secrets, &json!(text)).is_some(), "{} is not found", name);
            let mut masks = MaskTable::default();
            masks.add(&[value.as_str()]).unwrap();
            let masked = masks.text(&text);
            prop_assert_eq!(find(&secrets, &json!(masked)), None);
        }
    }
}
