//! Encodings of a secret in which programs may write it. Implemented separately here, because the
//! check must not share code with the redaction.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use serde_json::Value;

#[derive(Debug, Clone)]
pub struct SecretForms {
    pub secret: String,
    /// Each form, with its name.
    pub forms: Vec<(String, String)>,
}

impl SecretForms {
    #[must_use]
    pub fn of(secret: &str) -> Self {
        let quoted = Value::from(secret).to_string();
        let escaped = quoted.trim_start_matches('"').trim_end_matches('"');
        let twice = Value::from(escaped).to_string();
        let ascii: String = escaped.chars().map(ascii_escaped).collect();
        let mut forms = vec![
            ("plain".to_owned(), secret.to_owned()),
            ("escaped".to_owned(), escaped.to_owned()),
            ("escaped to ASCII".to_owned(), ascii),
            (
                "escaped twice".to_owned(),
                twice.trim_matches('"').to_owned(),
            ),
            (
                "hex".to_owned(),
                secret.bytes().map(|byte| format!("{byte:02x}")).collect(),
            ),
            (
                "HEX".to_owned(),
                secret.bytes().map(|byte| format!("{byte:02X}")).collect(),
            ),
            ("percent".to_owned(), percent(secret, false)),
            ("Percent".to_owned(), percent(secret, true)),
            (
                "a form".to_owned(),
                percent(secret, true).replace("%20", "+"),
            ),
        ];
        for offset in 0..3 {
            for (name, encoding) in [("base64", &STANDARD), ("base64url", &URL_SAFE)] {
                let whole = [&vec![b'x'; offset], secret.as_bytes()].concat();
                let encoded = encoding.encode(&whole);
                // Characters that also encode bits of adjacent bytes differ in each text.
                let first = (offset * 8).div_ceil(6);
                let last = whole.len() * 8 / 6;
                let core = encoded.get(first..last).unwrap_or_default();
                forms.push((format!("{name} at {offset}"), core.to_owned()));
            }
        }
        Self {
            secret: secret.to_owned(),
            forms,
        }
    }

    /// Name of the form that occurs in these bytes, if any.
    #[must_use]
    pub fn found_in(&self, bytes: &[u8]) -> Option<&str> {
        let text = String::from_utf8_lossy(bytes);
        let found = self.forms.iter().find(|(_, form)| text.contains(form));
        found.map(|(name, _)| name.as_str())
    }
}

fn ascii_escaped(c: char) -> String {
    if c.is_ascii() {
        return c.to_string();
    }
    let mut units = [0; 2];
    let units = c.encode_utf16(&mut units).iter();
    units.map(|unit| format!("\\u{unit:04x}")).collect()
}

fn percent(text: &str, is_upper: bool) -> String {
    let bytes = text.bytes();
    let encoded = bytes.map(|byte| {
        let is_plain = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        match (is_plain, is_upper) {
            (true, _) => char::from(byte).to_string(),
            (false, true) => format!("%{byte:02X}"),
            (false, false) => format!("%{byte:02x}"),
        }
    });
    encoded.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_found_where_another_program_wrote_it() {
        let forms = SecretForms::of("p\"ss w\u{f6}rd/+?1");
        // Encoded by Python's json, base64, binascii and urllib.
        for text in [
            r#"{"k": "p\"ss wörd/+?1"}"#,
            r#"{"k": "p\"ss w\u00f6rd/+?1"}"#,
            "cCJzcyB3w7ZyZC8rPzE=",
            "YTpwInNzIHfDtnJkLys/MQ==",
            "YWI6cCJzcyB3w7ZyZC8rPzE6eA==",
            "YTpwInNzIHfDtnJkLys_MQ==",
            "t=p%22ss%20w%C3%B6rd%2F%2B%3F1&x",
            "t=p%22ss+w%C3%B6rd%2F%2B%3F1",
            "x702273732077c3b672642f2b3f31x",
        ] {
            assert!(forms.found_in(text.as_bytes()).is_some(), "{text}");
        }
        assert_eq!(forms.found_in(b"p\"ss w\xc3\xb6rd/+?2"), None);
    }
}
