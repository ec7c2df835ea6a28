//! Characters that control a terminal or are invisible: control characters, and those that reorder or hide text.
//! Untrusted text can contain any of them.

use std::borrow::Cow;

/// Characters that are not displayed, or that reorder the text around them.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
        | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Joiners and variation selectors are valid between two visible characters of scripts and emoji; elsewhere, or in
/// sequence, they only hide text.
fn belongs_behind(before: Option<char>, c: char) -> bool {
    let joins = matches!(c, '\u{200c}' | '\u{200d}' | '\u{fe0e}' | '\u{fe0f}');
    // A variation selector may precede a joiner.
    let is_visible = |before: char| {
        (!before.is_ascii() && !is_invisible(before))
            || (c == '\u{200d}' && before == '\u{fe0f}')
            || (c == '\u{fe0f}' && matches!(before, '0'..='9' | '#' | '*'))
    };
    joins && before.is_some_and(is_visible)
}

/// Characters of a text, each with a flag for whether it is harmful on a terminal.
pub(super) fn judged(text: &str) -> impl Iterator<Item = (char, bool)> {
    let mut before = None;
    text.chars().map(move |c| {
        let is_harmful = c.is_control() || (is_invisible(c) && !belongs_behind(before, c));
        before = Some(c);
        (c, is_harmful)
    })
}

/// Prefix of every color sequence.
const COLOR_START: &str = "\u{1b}[";

/// Escapes a text for a terminal: keeps lines, tabs and the colors of this program, and writes every other control or
/// invisible character as `\u{1b}` and the like. This is the last line of defense, for text that was not escaped
/// before.
pub(super) fn harmless(text: &str) -> Cow<'_, str> {
    if !judged(text).any(|(c, is_harmful)| is_harmful && c != '\n' && c != '\t') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut color_end = 0;
    for ((at, _), (c, is_harmful)) in text.char_indices().zip(judged(text)) {
        if at >= color_end {
            let rest = text.get(at..).unwrap_or_default();
            color_end = at + color_length(rest).unwrap_or(0);
        }
        if is_harmful && at >= color_end && c != '\n' && c != '\t' {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Length of this program's color sequence at the start of the text, in bytes.
fn color_length(text: &str) -> Option<usize> {
    let parameter = text.strip_prefix(COLOR_START)?;
    let (parameter, _) = parameter.split_once('m')?;
    let is_ours = match parameter.as_bytes() {
        // Reset, bold, dimmed, underlined.
        [b'0'..=b'2' | b'4'] => true,
        // Foreground colors.
        [b'3' | b'9', b'0'..=b'7'] => true,
        _ => false,
    };
    is_ours.then_some(COLOR_START.len() + parameter.len() + 1)
}

/// Escapes every such character in the strings of a JSON text as `\u…`. Line ends and tabs between values are kept.
pub(crate) fn harmless_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for (c, is_harmful) in judged(json) {
        if is_harmful && c != '\n' && c != '\t' && c != '\r' {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn harmful(text: &str) -> usize {
        judged(text).filter(|(_, is_harmful)| *is_harmful).count()
    }

    #[test]
    fn invisible_characters_are_harmful_unless_script_or_emoji() {
        for hidden in [
            "a\u{9b}b",
            "a\u{7f}b",
            "a\u{202e}b",
            "a\u{2066}b",
            "a\u{200e}b",
            "a\u{61c}b",
            "a\u{200b}b",
            "a\u{200d}b",
            "a\u{feff}b",
            "a\u{e0041}b",
            "a\u{ad}b",
            "a\u{fe0f}b",
            "ü\u{200d}\u{200d}",
            "☎\u{fe0f}\u{fe0f}",
        ] {
            assert_eq!(harmful(hidden), 1, "{}", hidden.escape_unicode());
        }
        for fine in [
            "grün ☎\u{fe0f} 1\u{fe0f}",
            "👩\u{200d}👧",
            "❤\u{fe0f}\u{200d}🔥",
            "می\u{200c}خواهم",
        ] {
            assert_eq!(harmful(fine), 0, "{}", fine.escape_unicode());
        }
    }

    #[test]
    fn of_all_that_steers_a_terminal_only_our_colours_pass() {
        use crate::output::style::{self, Palette};
        let colors = Palette::new(true);
        let styles = [
            style::ERROR,
            style::HINT,
            style::GOOD,
            style::WARN,
            style::BAD,
            style::TITLE,
            style::FAINT,
            style::marked(style::BAD),
        ];
        for style in styles {
            let painted = colors.paint(style, "grün\tx\n");
            assert_eq!(harmless(&painted), painted);
        }
        // Conceal, swap colors, clear, set the window title, C1, an unterminated sequence.
        for hostile in [
            "\u{1b}[8m",
            "\u{1b}[7m",
            "\u{1b}[2J",
            "\u{1b}[31;8m",
            "\u{1b}]0;x\u{7}",
            "\u{9b}2J",
            "\u{1b}[",
            "\r",
            "\u{202e}",
            "\u{e0041}",
        ] {
            let shown = harmless(hostile);
            assert!(
                judged(&shown).all(|(_, is_harmful)| !is_harmful),
                "{shown:?}"
            );
            let beside = format!("{}{hostile}", colors.paint(style::GOOD, "fine"));
            assert_eq!(
                harmless(&beside),
                format!("{}{shown}", colors.paint(style::GOOD, "fine"))
            );
        }
    }

    #[test]
    fn json_with_harmful_characters_escaped_keeps_its_value() {
        let value = serde_json::json!({"k\u{9b}": ["a\u{202e}\u{e0041}\n", "\u{7f}ü👩\u{200d}👧"]});
        let json = serde_json::to_string(&value).unwrap();
        let harmless = harmless_json(&json);
        assert_eq!(harmful(&harmless), 0, "{harmless}");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&harmless).unwrap(),
            value
        );
    }
}
