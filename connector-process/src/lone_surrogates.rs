//! Repairs JSON with half of a character (pure): JavaScript and Python write the escape of one half
//! when they cut a text in the middle of a surrogate pair, and JSON does not allow it.

/// The text with `\ufffd` for each escape of a surrogate without its other half; `None` if there is
/// no such escape.
pub(crate) fn without_lone_surrogates(text: &str) -> Option<String> {
    const REPLACEMENT: &str = "\\ufffd";
    if !text.contains("\\ud") && !text.contains("\\uD") {
        return None;
    }
    let mut repaired = String::with_capacity(text.len());
    let mut is_changed = false;
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        repaired.push_str(before);
        let escape = after.strip_prefix('u').and_then(hex_unit);
        let Some((unit, behind)) = escape else {
            // The escaped character can be another backslash.
            let mut chars = after.chars();
            repaired.push('\\');
            repaired.extend(chars.next());
            rest = chars.as_str();
            continue;
        };
        let low = behind.strip_prefix("\\u").and_then(hex_unit);
        rest = behind;
        match (unit, low) {
            (0xD800..=0xDBFF, Some((low @ 0xDC00..=0xDFFF, behind))) => {
                repaired.push_str(&format!("\\u{unit:04x}\\u{low:04x}"));
                rest = behind;
            }
            (0xD800..=0xDFFF, _) => {
                repaired.push_str(REPLACEMENT);
                is_changed = true;
            }
            (unit, _) => repaired.push_str(&format!("\\u{unit:04x}")),
        }
    }
    repaired.push_str(rest);
    is_changed.then_some(repaired)
}

/// The number in the first four hexadecimal digits, and the text behind them.
fn hex_unit(text: &str) -> Option<(u16, &str)> {
    let (digits, rest) = text.split_at_checked(4)?;
    let are_digits = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let unit = u16::from_str_radix(digits, 16).ok()?;
    are_digits.then_some((unit, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prov_1_only_half_of_a_pair_is_replaced() {
        assert_eq!(
            without_lone_surrogates(r#""a\ud83e""#).as_deref(),
            Some(r#""a\ufffd""#)
        );
        for text in [r#""\ud83e\udd86""#, r#""\\ud83e""#, "plain", r"\u00e9"] {
            assert_eq!(without_lone_surrogates(text), None, "{text}");
        }
    }
}
