//! Sentences about events, shared by connectors of code hosts: templates that are filled with values
//! of a payload. Pure.
//!
//! * `{name}`: a phrase of the connector, such as `{who}` or `{issue}`.
//! * `{/a/b}`: the text, number or truth at a JSON Pointer, on one line. `{/a|/b}`: the first that
//!   is not empty.
//! * `{/a:form}`: in another form, such as `short` for a commit; see [`Form`].
//! * `[…]`: only if all its values exist. Not nested.
//!
//! `values`: values of a payload; `texts`: texts of people and programs.

pub(crate) mod texts;
pub(crate) mod values;

use serde_json::Value;

use self::values::{ref_name, scalar};

/// The payload of an event, with phrases about it.
pub(crate) trait PhraseSource {
    fn body(&self) -> &Value;

    /// The phrase with this name, if there is one, and its text, if the payload has a value for it.
    fn phrase(&self, name: &str) -> Option<Option<String>>;
}

/// The sentences of one kind of event.
#[derive(Debug)]
pub(crate) struct EventSentences {
    /// The name of the event.
    pub(crate) event: &'static str,
    /// JSON Pointers of the texts of a person or a program that follow the sentence.
    pub(crate) texts: &'static [&'static str],
    /// Sentences by variant: the action, or a more exact one. The empty variant is for all others.
    pub(crate) sentences: &'static [(&'static str, &'static str)],
}

impl EventSentences {
    /// The sentence of a variant.
    pub(crate) fn of(&self, variant: &str) -> Option<&'static str> {
        let named = |wanted: &str| {
            let mut sentences = self.sentences.iter();
            let found = sentences.find(|(of, _)| *of == wanted);
            found.map(|(_, sentence)| *sentence)
        };
        named(variant).or_else(|| named(""))
    }
}

/// Displayed characters of a commit's ID.
const COMMIT_ID_CHARS: usize = 7;

/// Text for a value that is missing outside of brackets.
const MISSING: &str = "?";

/// Format of a value.
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
pub(crate) fn fill(sentence: &str, phrases: &impl PhraseSource) -> String {
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
fn fill_part(part: &str, phrases: &impl PhraseSource) -> (String, bool) {
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

fn value(name: &str, phrases: &impl PhraseSource) -> Option<String> {
    if !name.starts_with('/') {
        return phrases.phrase(name).flatten();
    }
    let (pointers, form) = name.split_once(':').unwrap_or((name, ""));
    let mut pointers = pointers.split('|');
    let found = pointers.find_map(|pointer| scalar(phrases.body(), pointer))?;
    Some(Form::find(form)?.apply(&found))
}

/// Mistakes in a sentence of a connector with these phrases.
#[cfg(test)]
pub(crate) fn faults(sentence: &str, phrases: &impl PhraseSource) -> Vec<String> {
    let mut faults = Vec::new();
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
            None => phrases.phrase(name).is_some(),
        };
        if !is_known {
            faults.push(format!("unknown `{name}`: {sentence}"));
        }
    }
    faults
}

/// Mistakes in a table of sentences of a connector with these phrases.
#[cfg(test)]
pub(crate) fn table_faults(table: &[EventSentences], phrases: &impl PhraseSource) -> Vec<String> {
    let mut found = Vec::new();
    if !table.is_sorted_by(|one, other| one.event < other.event) {
        found.push("the events are not sorted, or not unique".to_owned());
    }
    for entry in table {
        let mut variants: Vec<&str> = entry.sentences.iter().map(|(of, _)| *of).collect();
        if variants.last() != Some(&"") {
            found.push(format!("{} needs a default", entry.event));
        }
        variants.sort_unstable();
        variants.dedup();
        if variants.len() != entry.sentences.len() {
            found.push(format!("{} has a variant twice", entry.event));
        }
        for (_, sentence) in entry.sentences {
            found.extend(faults(sentence, phrases));
        }
        let mut texts = entry.texts.iter();
        if !texts.all(|pointer| pointer.starts_with('/')) {
            found.push(format!("{}: a text is not a JSON Pointer", entry.event));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::limits::EVENT_NAME_CHARS_MAX;

    struct Sender(Value);

    impl PhraseSource for Sender {
        fn body(&self) -> &Value {
            &self.0
        }

        fn phrase(&self, name: &str) -> Option<Option<String>> {
            (name == "who").then(|| scalar(&self.0, "/sender/login"))
        }
    }

    #[test]
    fn conn_1_sentences_are_filled_with_values_of_the_payload() {
        let body = json!({"sender": {"login": "ada"}, "x": {"name": "a\n b", "empty": "",
            "code": "not_planned", "sha": "0123456789abcdef", "ref": "refs/heads/f/x"}, "n": 7});
        let phrases = Sender(body);
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
            assert!(faults(sentence, &phrases).is_empty(), "{sentence}");
        }
        for wrong in ["{whom}", "{/a:b}", "[a", "{a", "a]", "[[a]]"] {
            assert!(!faults(wrong, &phrases).is_empty(), "{wrong}");
        }
    }

    #[test]
    fn conn_1_long_names_are_shortened_between_characters() {
        let body = json!({"n": "가".repeat(EVENT_NAME_CHARS_MAX + 1)});
        let found = scalar(&body, "/n").unwrap();
        assert_eq!(found.chars().count(), EVENT_NAME_CHARS_MAX + 1);
        assert!(found.ends_with("가…"));
    }
}
