//! Encoding of any text as a file name, and decoding.
//!
//! Pure and injective.

use sha2::{Digest as _, Sha256};

/// Longest name with a complete encoding, in bytes. File systems allow 255.
pub const PLAIN_NAME_BYTES: usize = 200;
/// Prefix of the two hexadecimal digits that represent a byte in a file name.
const FILE_ESCAPE: char = '%';
/// The same prefix in names of directories in which programs work, because linkers, `make` and
/// `configparser` treat `%` in a path specially, and no program treats `~` within a word specially.
const DIRECTORY_ESCAPE: char = '~';
/// After the escape, separates the readable beginning of a long text from its hash. In a plain
/// name, a hexadecimal digit always follows the escape, so no plain name contains this sequence.
const HASH_MARK: char = '~';

/// File name for `text`, which must not be empty.
///
/// Lower-case letters, digits, `-`, `_` and inner `.` are kept; every other byte becomes `%xx`.
/// Names contain only lower case, so that they stay distinct on a case-insensitive file system. If
/// the name would exceed [`PLAIN_NAME_BYTES`], it keeps the beginning of the text and ends in its
/// SHA-256.
#[must_use]
pub fn encode(text: &str) -> String {
    encode_with(text, FILE_ESCAPE)
}

/// The text that a name encodes; `None` for the shortened name of a long text, and for names that
/// [`encode`] does not produce.
#[must_use]
pub fn decode(name: &str) -> Option<String> {
    decode_with(name, FILE_ESCAPE)
}

/// Name for `text` of a directory in which programs work: like [`encode`], with `~xx` instead of
/// `%xx`.
#[must_use]
pub fn encode_directory(text: &str) -> String {
    encode_with(text, DIRECTORY_ESCAPE)
}

/// The text that the name of a directory encodes, like [`decode`].
#[must_use]
pub fn decode_directory(name: &str) -> Option<String> {
    decode_with(name, DIRECTORY_ESCAPE)
}

/// Current name of a directory with a name of [`encode`]; `None` if the name is unchanged, or
/// [`encode`] does not produce it.
#[must_use]
pub fn renamed_directory(name: &str) -> Option<String> {
    let escape = DIRECTORY_ESCAPE.to_string();
    let renamed = name.replace(FILE_ESCAPE, &escape);
    let is_long = || {
        let (_, hash) = name.rsplit_once(&format!("{FILE_ESCAPE}{HASH_MARK}"))?;
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        (hash.len() == 64 && hash.bytes().all(is_digit)).then_some(())
    };
    let is_ours = decode(name).is_some() || is_long().is_some();
    (renamed != name && is_ours).then_some(renamed)
}

fn encode_with(text: &str, escape: char) -> String {
    let last = text.len().saturating_sub(1);
    let mark = format!("{escape}{HASH_MARK}");
    let mut out = String::new();
    let mut whole = 0;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => out.push(char::from(byte)),
            // A leading dot means a hidden file, `.` or `..`; some systems drop a trailing dot.
            b'.' if at != 0 && at != last => out.push('.'),
            _ => out.push_str(&format!("{escape}{byte:02x}")),
        }
        if out.len() <= PLAIN_NAME_BYTES - mark.len() - 64 {
            whole = out.len();
        }
    }
    if out.len() <= PLAIN_NAME_BYTES {
        return out;
    }
    out.truncate(whole);
    format!(
        "{out}{mark}{}",
        hex::encode(Sha256::digest(text.as_bytes()))
    )
}

fn decode_with(name: &str, escape: char) -> Option<String> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.bytes();
    while let Some(byte) = rest.next() {
        if char::from(byte) == escape {
            let digits = [rest.next()?, rest.next()?];
            let digits = std::str::from_utf8(&digits).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    let text = String::from_utf8(bytes).ok().filter(|t| !t.is_empty())?;
    // Only the spelling of this module is valid.
    (encode_with(&text, escape) == name).then_some(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn encoded_name_is_safe_and_decodes_unless_it_is_long(text in "\\PC{1,90}|[\\x00-\\x7f]{1,90}") {
            let name = encode(&text);
            prop_assert!(name.is_ascii() && name.len() <= PLAIN_NAME_BYTES);
            prop_assert!(!name.starts_with('.') && !name.contains(['/', '\0']));
            let is_long = name.contains("%~");
            prop_assert_eq!(decode(&name), (!is_long).then_some(text.clone()));

            let directory = encode_directory(&text);
            let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.~".contains(c);
            prop_assert!(directory.chars().all(is_plain), "{}", directory);
            prop_assert_eq!(decode_directory(&directory), (!is_long).then_some(text));
            let renamed = (name != directory).then_some(directory.clone());
            prop_assert_eq!(renamed_directory(&name), renamed);
            prop_assert_eq!(renamed_directory(&directory), None);
        }
    }

    #[test]
    fn a_directory_that_is_not_ours_keeps_its_name() {
        for name in ["100%", "a%", "%zz", "a%41%~ab", "%61", "A%2f", ""] {
            assert_eq!(renamed_directory(name), None, "{name}");
        }
    }
}
