//! Explains invalid YAML in terms that a user understands, instead of the parser's.

use std::borrow::Cow;

use serde_saphyr::Error;

use crate::limits::{MAX_YAML_DEPTH, MAX_YAML_NODES, MAX_YAML_TEXT_BYTES};
use crate::unquoted_texts::quoted_line;

/// Longest value to repeat in a suggestion, in characters.
const MAX_QUOTED_CHARS: usize = 80;

/// Converts line ends. YAML treats a lone carriage return as a line end, so lines would otherwise
/// be counted differently in parsing and in display. YAML itself reads every line end as `\n`.
pub(crate) fn with_yaml_line_ends(text: &str) -> Cow<'_, str> {
    if text.contains('\r') {
        Cow::Owned(text.replace("\r\n", "\n").replace('\r', "\n"))
    } else {
        Cow::Borrowed(text)
    }
}

pub(crate) struct ProblemText {
    pub(crate) message: String,
    pub(crate) help: Option<String>,
}

impl ProblemText {
    fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            help: Some(help.into()),
        }
    }
}

/// Explains a parser error. `line` is the text of the line it names; `None` if that may contain a
/// secret (`SEC-2`).
pub(crate) fn explain(error: &Error, line: Option<&str>) -> ProblemText {
    match error.without_snippet() {
        Error::AliasError { error, .. } => explain(error, line),
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayCounterOverflow { .. } => ProblemText::new(
            format!(
                "the YAML is too deep or too large; at most {MAX_YAML_DEPTH} levels, \
                 {MAX_YAML_NODES} values and {MAX_YAML_TEXT_BYTES} bytes of text are allowed, \
                 including repetitions by alias"
            ),
            "split the file into several files below `resources/`, or use fewer aliases",
        ),
        Error::RecursiveReferencesRequireWeakTypes { .. } => ProblemText::new(
            "an alias is part of its own anchor",
            "write the value instead of the alias",
        ),
        Error::NullIntoString { .. } | Error::Unexpected { .. } => {
            let is_braces = line.is_some_and(|line| line.contains("{{"));
            ProblemText::new(
                "a field's name must be text",
                if is_braces {
                    "a text that begins with `{` is parsed as a mapping: put it in quotes"
                } else {
                    "put the name in quotes"
                },
            )
        }
        Error::UnknownAnchor { .. } => ProblemText::new(
            "an alias refers to an undefined anchor",
            "`*name` needs a `&name` before it; put a text that begins with `*` in quotes",
        ),
        other => {
            let message = other.to_string();
            // The diagnostic itself contains the place.
            let message = message
                .split_once(" at line ")
                .map_or(message.as_str(), |(message, _)| message);
            of_words(message, line)
        }
    }
}

/// Explains an error that is only described by the parser's message.
fn of_words(message: &str, line: Option<&str>) -> ProblemText {
    let unclear = || format!("this is not valid YAML: {message}");
    if message.starts_with("tabs disallowed") || indents_by_tab(line) {
        return ProblemText::new(
            "this line is indented with a tab; YAML allows only spaces",
            "replace each tab with two spaces",
        );
    }
    if message.starts_with("mapping values are not allowed") {
        let unquoted = line.and_then(quoted_value).map_or_else(
            || "put the text in quotes".to_owned(),
            |quoted| format!("put the text in quotes: `{quoted}`"),
        );
        return match line {
            Some(line) if line.matches(": ").count() < 2 => ProblemText::new(
                "unexpected field",
                "indent it like the other fields; put a text that contains `: ` in quotes",
            ),
            _ => ProblemText::new(
                "a text without quotes contains `: `, which starts another field",
                unquoted,
            ),
        };
    }
    if message.contains("did not find expected key") {
        return ProblemText::new(
            "the indentation of this line matches no field above it",
            "indent it like the other fields",
        );
    }
    if message.starts_with("unexpected character") {
        let quoted = line.and_then(quoted_value).map_or_else(
            || "put the text in quotes".to_owned(),
            |quoted| format!("put the text in quotes: `{quoted}`"),
        );
        return ProblemText::new(
            "a text without quotes cannot begin with this character",
            quoted,
        );
    }
    if message.contains("trailing content after single-quoted") {
        return ProblemText::new(
            "unexpected text after the closing `'`",
            "write `''` for a `'` within the text, or put the text in `\"`",
        );
    }
    if message.contains("trailing content after double-quoted") {
        return ProblemText::new(
            "unexpected text after the closing `\"`",
            "write `\\\"` for a `\"` within the text, or put the text in `'`",
        );
    }
    if message.contains("quoted scalar") {
        return ProblemText::new(
            unclear(),
            "check the lines above for a missing closing quote",
        );
    }
    if message.starts_with("simple key expected") {
        let is_mark = line.is_some_and(|line| line.trim() == "--" || line.trim_start() == "–");
        return ProblemText::new(
            "this line is not a field: it has no `:`",
            if is_mark {
                "write `---` to begin another document"
            } else {
                "write `name: value`, with a space after the colon"
            },
        );
    }
    ProblemText {
        message: unclear(),
        // Usually `${name}` within `{…}`, where the brace ends the mapping.
        help: message.contains("flow").then(|| {
            "within `{…}` and `[…]`, put a text that contains a brace, bracket or comma in quotes"
                .to_owned()
        }),
    }
}

fn indents_by_tab(line: Option<&str>) -> bool {
    let Some(line) = line else { return false };
    let indent = line.len() - line.trim_start().len();
    line.get(..indent)
        .is_some_and(|indent| indent.contains('\t'))
}

/// `name: value` with its value in quotes. `None` if the line has another form or the value is
/// long.
fn quoted_value(line: &str) -> Option<String> {
    let has_flow = line.contains(['{', '[']);
    if let Some(quoted) = quoted_line(line).filter(|_| has_flow) {
        let quoted = quoted.trim().to_owned();
        return (quoted.chars().count() <= MAX_QUOTED_CHARS).then_some(quoted);
    }
    let (name, value) = line.split_once(": ")?;
    let (name, value) = (name.trim().trim_start_matches("- "), value.trim());
    let is_plain = !name.is_empty()
        && !name.contains(['{', '['])
        && !value.starts_with(['"', '\'', '[', '{', '|', '>']);
    if !is_plain || value.is_empty() || value.chars().count() > MAX_QUOTED_CHARS {
        return None;
    }
    Some(if value.contains(['"', '\\']) {
        format!("{name}: '{}'", value.replace('\'', "''"))
    } else {
        format!("{name}: \"{value}\"")
    })
}
