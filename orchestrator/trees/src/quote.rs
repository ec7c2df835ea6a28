//! Names in git's format: plain, or quoted with escapes.

/// Formats a name for a patch: quoted if it has a quotation mark, a backslash, a control character
/// or a non-ASCII byte.
pub(crate) fn quote(name: &[u8]) -> String {
    let is_plain = |byte: &u8| (0x20..0x7f).contains(byte) && *byte != b'"' && *byte != b'\\';
    let mut out = String::with_capacity(name.len() + 2);
    if name.iter().all(is_plain) {
        out.extend(name.iter().copied().map(char::from));
        return out;
    }
    out.push('"');
    for byte in name {
        match *byte {
            0x07 => out.push_str("\\a"),
            0x08 => out.push_str("\\b"),
            b'\t' => out.push_str("\\t"),
            b'\n' => out.push_str("\\n"),
            0x0b => out.push_str("\\v"),
            0x0c => out.push_str("\\f"),
            b'\r' => out.push_str("\\r"),
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            plain if is_plain(&plain) => out.push(char::from(plain)),
            other => out.push_str(&format!("\\{other:03o}")),
        }
    }
    out.push('"');
    out
}

/// Parses a quoted name at the start of a text; returns it and the rest.
pub(crate) fn unquote(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut rest = text.strip_prefix(b"\"")?;
    let mut name = Vec::new();
    loop {
        let (byte, after) = rest.split_first()?;
        rest = after;
        match byte {
            b'"' => return Some((name, rest)),
            b'\\' => {
                let (escape, after) = rest.split_first()?;
                rest = after;
                name.push(match escape {
                    b'a' => 0x07,
                    b'b' => 0x08,
                    b't' => b'\t',
                    b'n' => b'\n',
                    b'v' => 0x0b,
                    b'f' => 0x0c,
                    b'r' => b'\r',
                    b'"' => b'"',
                    b'\\' => b'\\',
                    b'0'..=b'3' => {
                        let (low, after) = rest.split_at_checked(2)?;
                        rest = after;
                        let mut value = escape - b'0';
                        for digit in low {
                            let digit = digit.checked_sub(b'0').filter(|digit| *digit < 8)?;
                            value = value * 8 + digit;
                        }
                        value
                    }
                    _ => return None,
                });
            }
            byte if *byte < 0x20 => return None,
            byte => name.push(*byte),
        }
    }
}

/// Formats a name or target as JSON text: unchanged if that is unambiguous, otherwise quoted.
pub fn to_text(name: &[u8]) -> String {
    match std::str::from_utf8(name) {
        Ok(text) if !text.starts_with('"') && !text.chars().any(char::is_control) => {
            text.to_owned()
        }
        _ => quote(name),
    }
}

pub(crate) fn from_text(text: &str) -> Option<Vec<u8>> {
    if text.starts_with('"') {
        let (name, rest) = unquote(text.as_bytes())?;
        rest.is_empty().then_some(name)
    } else {
        Some(text.as_bytes().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives_quoting() {
        let all: Vec<u8> = (1..=255).collect();
        let quoted = quote(&all);
        assert!(quoted.is_ascii() && quoted.starts_with("\"\\001\\002"));
        assert_eq!(unquote(quoted.as_bytes()), Some((all.clone(), &b""[..])));
        assert_eq!(from_text(&to_text(&all)), Some(all));
        assert_eq!(quote(b"a b"), "a b");
        assert_eq!(to_text("\u{e9}".as_bytes()), "\u{e9}");
        assert_eq!(quote("\u{e9}".as_bytes()), "\"\\303\\251\"");
    }

    #[test]
    fn invalid_git_quoting_is_rejected() {
        for bad in [
            "",
            "\"",
            "\"a",
            "\"\\x\"",
            "\"\\400\"",
            "\"\\08\"",
            "\"\\0\"",
            "\"\n\"",
        ] {
            assert_eq!(unquote(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
