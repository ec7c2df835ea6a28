//! Fills the sentences of the table with values of a payload. Pure.
//!
//! * `{name}`: a phrase of [`Phrases`], such as `{who}` or `{issue}`.
//! * `{/a/b}`: the text, number or truth at a JSON Pointer, on one line. `{/a|/b}`: the first that
//!   is not empty.
//! * `{/a:form}`: in another form, such as `short` for a commit; see [`Form`].
//! * `[…]`: only if all its values exist. Not nested.

use super::phrases::Phrases;
use super::values::{ref_name, scalar};

/// Displayed characters of a commit's ID.
const COMMIT_ID_CHARS: usize = 7;

/// Text for a value that is missing outside of brackets.
const MISSING: &str = "?";

/// How a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Plain,
    /// In double quotes.
    Quoted,
    /// A code such as `not_planned` as words.
    Words,
    /// A commit's ID.
    Short,
    /// The name of a branch or tag, without `refs/heads/`.
    Ref,
    /// The last part of a path.
    File,
    /// A date without the time.
    Date,
}

impl Form {
    fn find(name: &str) -> Option<Self> {
        Some(match name {
            "" => Self::Plain,
            "quoted" => Self::Quoted,
            "words" => Self::Words,
            "short" => Self::Short,
            "ref" => Self::Ref,
            "file" => Self::File,
            "date" => Self::Date,
            _ => return None,
        })
    }

    fn apply(self, text: &str) -> String {
        match self {
            Self::Plain => text.to_owned(),
            Self::Quoted => format!("\"{text}\""),
            Self::Words => {
                let words = text.replace(['_', '-'], " ");
                let is_code = !words.chars().any(char::is_lowercase);
                if is_code { words.to_lowercase() } else { words }
            }
            Self::Short => text.chars().take(COMMIT_ID_CHARS).collect(),
            Self::Ref => ref_name(text).to_owned(),
            Self::Date => text.split('T').next().unwrap_or(text).to_owned(),
            Self::File => text.rsplit('/').next().unwrap_or(text).to_owned(),
        }
    }
}

/// Fills a sentence.
pub(super) fn fill(sentence: &str, phrases: &Phrases<'_>) -> String {
    let mut filled = String::new();
    let mut rest = sentence;
    while let Some(start) = rest.find('[') {
        let (before, after) = rest.split_at(start);
        filled.push_str(&fill_part(before, phrases).0);
        let after = after.strip_prefix('[').unwrap_or(after);
        let (group, behind) = after.split_once(']').unwrap_or((after, ""));
        let (text, is_whole) = fill_part(group, phrases);
        if is_whole {
            filled.push_str(&text);
        }
        rest = behind;
    }
    filled.push_str(&fill_part(rest, phrases).0);
    filled
}

/// Fills a part without brackets; false if a value is missing.
fn fill_part(part: &str, phrases: &Phrases<'_>) -> (String, bool) {
    let mut filled = String::new();
    let mut is_whole = true;
    let mut rest = part;
    while let Some((before, after)) = rest.split_once('{') {
        filled.push_str(before);
        let (name, behind) = after.split_once('}').unwrap_or((after, ""));
        match value(name, phrases) {
            Some(text) => filled.push_str(&text),
            None => {
                is_whole = false;
                filled.push_str(MISSING);
            }
        }
        rest = behind;
    }
    filled.push_str(rest);
    (filled, is_whole)
}

fn value(name: &str, phrases: &Phrases<'_>) -> Option<String> {
    if !name.starts_with('/') {
        return phrases.find(name);
    }
    let (pointers, form) = name.split_once(':').unwrap_or((name, ""));
    let mut pointers = pointers.split('|');
    let found = pointers.find_map(|pointer| scalar(phrases.body, pointer))?;
    Some(Form::find(form)?.apply(&found))
}

#[cfg(test)]
pub(super) fn faults(sentence: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let body = serde_json::Value::Null;
    let phrases = Phrases::of("", &body);
    let brackets = |open: char, close: char| {
        let mut depth = 0_i32;
        for character in sentence.chars() {
            depth += i32::from(character == open) - i32::from(character == close);
            if !(0..=1).contains(&depth) {
                return false;
            }
        }
        depth == 0
    };
    if !brackets('[', ']') || !brackets('{', '}') {
        faults.push(format!("unbalanced: {sentence}"));
    }
    for part in sentence.split('{').skip(1) {
        let name = part.split('}').next().unwrap_or_default();
        let is_known = match name.strip_prefix('/') {
            Some(_) => {
                let (pointers, form) = name.split_once(':').unwrap_or((name, ""));
                pointers.split('|').all(|pointer| pointer.starts_with('/'))
                    && Form::find(form).is_some()
            }
            None => phrases.is_known(name),
        };
        if !is_known {
            faults.push(format!("unknown `{name}`: {sentence}"));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::limits::GITHUB_NAME_CHARS_MAX;

    #[test]
    fn conn_1_sentences_are_filled_with_values_of_the_payload() {
        let body = json!({"sender": {"login": "ada"}, "x": {"name": "a\n b", "empty": "",
            "code": "not_planned", "sha": "0123456789abcdef", "ref": "refs/heads/f/x"}, "n": 7});
        let phrases = Phrases::of("", &body);
        for (sentence, filled) in [
            ("{who}: {/x/name}, {/n}", "ada: a b, 7"),
            ("{/x/empty|/x/name:quoted}", "\"a b\""),
            (
                "{/x/code:words} {/x/sha:short} {/x/ref:ref}",
                "not planned 0123456 f/x",
            ),
            ("{/x/ref:file}[ as {/none}][ by {who}].", "x by ada."),
            ("{/none}", "?"),
        ] {
            assert_eq!(fill(sentence, &phrases), filled);
            assert!(faults(sentence).is_empty(), "{sentence}");
        }
        for wrong in ["{whom}", "{/a:b}", "[a", "{a", "a]", "[[a]]"] {
            assert!(!faults(wrong).is_empty(), "{wrong}");
        }
    }

    #[test]
    fn conn_1_long_names_are_shortened_between_characters() {
        let body = json!({"n": "가".repeat(GITHUB_NAME_CHARS_MAX + 1)});
        let found = scalar(&body, "/n").unwrap();
        assert_eq!(found.chars().count(), GITHUB_NAME_CHARS_MAX + 1);
        assert!(found.ends_with("가…"));
    }
}
