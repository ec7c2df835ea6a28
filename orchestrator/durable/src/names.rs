//! How any text becomes the name of a file, and is read back from it.
//!
//! A pure function that never gives two texts the same name.

use sha2::{Digest as _, Sha256};

/// Longest name that spells its text out, in bytes. File systems allow 255.
pub const PLAIN_NAME_BYTES: usize = 200;
/// Separates the readable head of a long text's name from its hash. `%` is always followed by a
/// hexadecimal digit in a plain name, so no plain name holds this.
const HASH_MARK: &str = "%~";

/// The name of a file or directory that stands for `text`, which must not be empty.
///
/// Lower-case letters, digits, `-`, `_` and inner `.` stand for themselves; every other byte becomes
/// `%xx`. Only lower case is written, so that no two names meet on a file system that ignores case. A
/// text whose name would be longer than [`PLAIN_NAME_BYTES`] keeps its head and ends in its SHA-256.
#[must_use]
pub fn encode(text: &str) -> String {
    let last = text.len().saturating_sub(1);
    let mut out = String::new();
    let mut whole = 0;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => out.push(char::from(byte)),
            // Hidden files, `.` and `..` begin with a dot; some systems drop one at the end.
            b'.' if at != 0 && at != last => out.push('.'),
            _ => out.push_str(&format!("%{byte:02x}")),
        }
        if out.len() <= PLAIN_NAME_BYTES - HASH_MARK.len() - 64 {
            whole = out.len();
        }
    }
    if out.len() <= PLAIN_NAME_BYTES {
        return out;
    }
    out.truncate(whole);
    format!(
        "{out}{HASH_MARK}{}",
        hex::encode(Sha256::digest(text.as_bytes()))
    )
}

/// The text that a name spells out; none for a long text's name and for what [`encode`] writes for no text.
#[must_use]
pub fn decode(name: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            let digits = std::str::from_utf8(&digits).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    let text = String::from_utf8(bytes).ok().filter(|t| !t.is_empty())?;
    // Only the one spelling this module writes counts.
    (encode(&text) == name).then_some(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_name_is_safe_and_says_its_text_unless_it_is_long(text in "\\PC{1,90}|[\\x00-\\x7f]{1,90}") {
            let name = encode(&text);
            prop_assert!(name.is_ascii() && name.len() <= PLAIN_NAME_BYTES);
            prop_assert!(!name.starts_with('.') && !name.contains(['/', '\0']));
            let is_long = name.contains(HASH_MARK);
            prop_assert_eq!(decode(&name), (!is_long).then_some(text));
        }
    }
}
