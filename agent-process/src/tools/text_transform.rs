//! The tool `text-transform`: exact text operations that a model alone would have to guess.

use std::collections::HashSet;

use regex_lite::RegexBuilder;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::export::{Export, Output, blocking};
use super::fault::ToolFault;

/// Longest text, in characters.
const MAX_TEXT_CHARS: usize = 1_048_576;
/// Longest result, in bytes.
const MAX_RESULT_BYTES: usize = 16 * 1024 * 1024;
/// Longest pattern, separator or replacement, in characters.
const MAX_PART_CHARS: usize = 10_000;
/// Maximum number of parts to join.
const MAX_PARTS: usize = 100_000;

fn part(about: &str) -> Value {
    json!({"type": "string", "maxLength": MAX_PART_CHARS, "description": about})
}

fn needed(about: &str) -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": MAX_PART_CHARS, "description": about})
}

fn position(about: &str) -> Value {
    let about = format!("{about}; a negative one counts from the text's end");
    json!({"type": "integer", "description": about})
}

fn flag(about: &str) -> Value {
    json!({"type": "boolean", "description": about})
}

pub(crate) fn exports() -> Vec<Export> {
    vec![
        of_text(
            "replace",
            "Replaces every occurrence of a text, or of a regular expression.",
            &replace_arguments(),
            replace,
        ),
        of_text(
            "case",
            "Writes a text in upper case, lower case, or with capital initials.",
            &[("to", true, json!({"enum": ["upper", "lower", "title"]}))],
            case,
        ),
        of_text(
            "trim",
            "Trims white space at the ends of a text, or of each line.",
            &[
                (
                    "side",
                    false,
                    json!({"enum": ["both", "start", "end"], "description": "Default: `both`"}),
                ),
                ("eachLine", false, flag("Each line separately")),
            ],
            trim,
        ),
        of_text(
            "split",
            "Splits a text at a separator. Returns a JSON list.",
            &[("separator", true, needed("The separator"))],
            split,
        ),
        export(
            "join",
            "Joins texts with a separator between them.",
            &json!({
                "parts": {"type": "array", "maxItems": MAX_PARTS, "items": {"type": "string"}},
                "separator": part("The separator"),
            }),
            &["parts", "separator"],
            join,
        ),
        of_text(
            "lines",
            "Picks lines of a text and orders them: first by `match`, then unique, sorted, reversed, and at last `from` to `to`.",
            &lines_arguments(),
            lines,
        ),
        of_text(
            "slice",
            "Returns a part of a text, by characters: from `start` up to but excluding `end`.",
            &slice_arguments(),
            slice,
        ),
        of_text(
            "count",
            "Counts a text's characters, words, lines and bytes, and the occurrences of `find`. Returns JSON.",
            &[(
                "find",
                false,
                needed("A text; its occurrences are counted, without overlaps"),
            )],
            count,
        ),
    ]
}

/// Additional arguments of `replace`: name, required flag, schema.
fn replace_arguments() -> [(&'static str, bool, Value); 4] {
    [
        ("find", true, needed("The text to replace")),
        (
            "with",
            true,
            part("The replacement; `$1` or `${name}` is a group if `regex`"),
        ),
        ("regex", false, flag("`find` is a regular expression")),
        (
            "ignoreCase",
            false,
            flag("Upper and lower case are the same; for `regex` only"),
        ),
    ]
}

/// Additional arguments of `lines`: name, required flag, schema.
fn lines_arguments() -> [(&'static str, bool, Value); 6] {
    [
        (
            "match",
            false,
            needed("A regular expression; only lines it matches stay"),
        ),
        ("unique", false, flag("Omits repeated lines")),
        ("sort", false, flag("By the order of their characters")),
        ("reverse", false, flag("The last line first")),
        (
            "from",
            false,
            json!({"type": "integer", "minimum": 1, "description": "First line, from 1"}),
        ),
        (
            "to",
            false,
            json!({"type": "integer", "minimum": 1, "description": "Last line"}),
        ),
    ]
}

/// Additional arguments of `slice`: name, required flag, schema.
fn slice_arguments() -> [(&'static str, bool, Value); 2] {
    let start = position("Start position, from 0; default 0");
    let end = position("End position; default: the end of the text");
    [("start", false, start), ("end", false, end)]
}

/// Creates an export that takes a text and additional arguments: name, required flag, schema.
fn of_text<A: DeserializeOwned + 'static>(
    name: &'static str,
    description: &'static str,
    arguments: &[(&str, bool, Value)],
    work: fn(&A) -> Result<String, ToolFault>,
) -> Export {
    let text = json!({"type": "string", "maxLength": MAX_TEXT_CHARS});
    let mut properties = serde_json::Map::new();
    properties.insert("text".to_owned(), text);
    let mut required = vec!["text"];
    for (name, is_required, schema) in arguments {
        properties.insert((*name).to_owned(), schema.clone());
        if *is_required {
            required.push(name);
        }
    }
    export(name, description, &properties.into(), &required, work)
}

fn export<A: DeserializeOwned + 'static>(
    name: &'static str,
    description: &'static str,
    properties: &Value,
    required: &[&str],
    work: fn(&A) -> Result<String, ToolFault>,
) -> Export {
    Export {
        name: name.into(),
        description: description.into(),
        parameters: json!({
            "type": "object",
            "required": required,
            "additionalProperties": false,
            "properties": properties,
        }),
        is_idempotent: true,
        output: Output::MayBeLong,
        run: Box::new(move |_, call| Box::pin(blocking(move || work(&call.args()?)))),
    }
}

fn regex(pattern: &str, ignore_case: bool) -> Result<regex_lite::Regex, ToolFault> {
    RegexBuilder::new(pattern)
        .case_insensitive(ignore_case)
        .build()
        .map_err(|error| ToolFault::new("E_INVALID_PATTERN", format!("`{pattern}`: {error}")))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Replace {
    text: String,
    find: String,
    with: String,
    #[serde(default)]
    regex: bool,
    #[serde(default)]
    ignore_case: bool,
}

fn replace(args: &Replace) -> Result<String, ToolFault> {
    if args.regex {
        return replace_pattern(args);
    }
    if args.ignore_case {
        return Err(ToolFault::new(
            "E_TOOL_INVALID_ARGS",
            "`ignoreCase` needs `regex: true`",
        ));
    }
    let places = args.text.matches(&args.find).count();
    let result_bytes = places.saturating_mul(args.with.len());
    if result_bytes.saturating_add(args.text.len()) > MAX_RESULT_BYTES {
        return Err(too_large());
    }
    Ok(args.text.replace(&args.find, &args.with))
}

fn replace_pattern(args: &Replace) -> Result<String, ToolFault> {
    let pattern = regex(&args.find, args.ignore_case)?;
    let group_count = args.with.matches('$').count();
    let (mut replaced, mut copied_to) = (String::new(), 0);
    for groups in pattern.captures_iter(&args.text) {
        let Some(whole) = groups.get(0) else { continue };
        let before = args.text.get(copied_to..whole.start()).unwrap_or_default();
        replaced.push_str(before);
        // No group is longer than the entire match.
        let added_max = group_count.saturating_mul(whole.len()) + args.with.len();
        if replaced.len().saturating_add(added_max) > MAX_RESULT_BYTES {
            return Err(too_large());
        }
        groups.expand(&args.with, &mut replaced);
        copied_to = whole.end();
    }
    replaced.push_str(args.text.get(copied_to..).unwrap_or_default());
    Ok(replaced)
}

fn too_large() -> ToolFault {
    ToolFault::new(
        "E_TOO_LARGE",
        format!("the result has more than {MAX_RESULT_BYTES} bytes; do less at a time"),
    )
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum LetterCase {
    Upper,
    Lower,
    Title,
}

#[derive(Deserialize)]
struct Case {
    text: String,
    to: LetterCase,
}

fn case(args: &Case) -> Result<String, ToolFault> {
    Ok(match args.to {
        LetterCase::Upper => args.text.to_uppercase(),
        LetterCase::Lower => args.text.to_lowercase(),
        LetterCase::Title => {
            let mut is_inside = false;
            let mut titled = String::with_capacity(args.text.len());
            for c in args.text.chars() {
                if is_inside {
                    titled.extend(c.to_lowercase());
                } else {
                    titled.extend(c.to_uppercase());
                }
                is_inside = c.is_alphanumeric() || (is_inside && matches!(c, '\'' | '’'));
            }
            titled
        }
    })
}

#[derive(Deserialize, Default, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum TrimSide {
    #[default]
    Both,
    Start,
    End,
}

impl TrimSide {
    fn of(self, text: &str) -> &str {
        match self {
            Self::Both => text.trim(),
            Self::Start => text.trim_start(),
            Self::End => text.trim_end(),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Trim {
    text: String,
    #[serde(default)]
    side: TrimSide,
    #[serde(default)]
    each_line: bool,
}

fn trim(args: &Trim) -> Result<String, ToolFault> {
    if !args.each_line {
        return Ok(args.side.of(&args.text).to_owned());
    }
    let lines: Vec<&str> = args.text.lines().map(|line| args.side.of(line)).collect();
    let end = if args.text.ends_with('\n') { "\n" } else { "" };
    Ok(lines.join("\n") + end)
}

#[derive(Deserialize)]
struct SplitArgs {
    text: String,
    separator: String,
}

fn split(args: &SplitArgs) -> Result<String, ToolFault> {
    let parts: Vec<&str> = args.text.split(&args.separator).collect();
    Ok(json!(parts).to_string())
}

#[derive(Deserialize)]
struct JoinArgs {
    parts: Vec<String>,
    separator: String,
}

fn join(args: &JoinArgs) -> Result<String, ToolFault> {
    let between = args.separator.len().saturating_mul(args.parts.len());
    if between > MAX_RESULT_BYTES {
        return Err(too_large());
    }
    Ok(args.parts.join(&args.separator))
}

#[derive(Deserialize)]
struct LineFilterArgs {
    text: String,
    #[serde(default, rename = "match")]
    pattern: Option<String>,
    #[serde(default)]
    unique: bool,
    #[serde(default)]
    sort: bool,
    #[serde(default)]
    reverse: bool,
    #[serde(default)]
    from: Option<usize>,
    #[serde(default)]
    to: Option<usize>,
}

fn lines(args: &LineFilterArgs) -> Result<String, ToolFault> {
    let mut lines: Vec<&str> = args.text.lines().collect();
    if let Some(pattern) = &args.pattern {
        let pattern = regex(pattern, false)?;
        lines.retain(|line| pattern.is_match(line));
    }
    if args.unique {
        let mut seen = HashSet::new();
        lines.retain(|line| seen.insert(*line));
    }
    if args.sort {
        lines.sort_unstable();
    }
    if args.reverse {
        lines.reverse();
    }
    let first = args.from.unwrap_or(1).saturating_sub(1);
    let past_last = args.to.unwrap_or(lines.len()).min(lines.len());
    Ok(lines.get(first..past_last).unwrap_or_default().join("\n"))
}

#[derive(Deserialize)]
struct Slice {
    text: String,
    #[serde(default)]
    start: i64,
    #[serde(default)]
    end: Option<i64>,
}

fn slice(args: &Slice) -> Result<String, ToolFault> {
    let count = args.text.chars().count();
    let place = |position: i64| {
        let distance = usize::try_from(position.unsigned_abs()).unwrap_or(usize::MAX);
        match position {
            0.. => distance.min(count),
            ..0 => count.saturating_sub(distance),
        }
    };
    let (start, end) = (place(args.start), args.end.map_or(count, place));
    let piece = args.text.chars().skip(start);
    Ok(piece.take(end.saturating_sub(start)).collect())
}

#[derive(Deserialize)]
struct Count {
    text: String,
    #[serde(default)]
    find: Option<String>,
}

fn count(args: &Count) -> Result<String, ToolFault> {
    let mut counts = json!({
        "characters": args.text.chars().count(),
        "words": args.text.split_whitespace().count(),
        "lines": args.text.lines().count(),
        "bytes": args.text.len(),
    });
    if let (Some(find), Some(counts)) = (&args.find, counts.as_object_mut()) {
        let occurrences = args.text.matches(find.as_str()).count();
        counts.insert("occurrences".to_owned(), json!(occurrences));
    }
    Ok(counts.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<A: DeserializeOwned>(work: fn(&A) -> Result<String, ToolFault>, args: Value) -> String {
        let args: A = serde_json::from_value(args).unwrap();
        work(&args).unwrap_or_else(|fault| fault.to_string())
    }

    #[test]
    fn texts_are_replaced_to_the_letter_or_by_pattern() {
        assert_eq!(
            run(replace, json!({"text": "a.b.c", "find": ".", "with": "$1"})),
            "a$1b$1c"
        );
        assert_eq!(
            run(
                replace,
                json!({"text": "Kim Lee", "find": "(k)(i)", "with": "${2}$1", "regex": true, "ignoreCase": true})
            ),
            "iKm Lee"
        );
        assert!(
            run(
                replace,
                json!({"text": "a", "find": "(", "with": "", "regex": true})
            )
            .starts_with("E_INVALID_PATTERN: `(`: ")
        );
    }

    #[test]
    fn a_piece_is_cut_out_by_characters_from_either_end() {
        let cut = |start: Option<i64>, end: Option<i64>| {
            let mut args = json!({"text": "한국어 text"});
            let places = [("start", start), ("end", end)];
            for (name, place) in places {
                if let Some(place) = place {
                    args[name] = json!(place);
                }
            }
            run(slice, args)
        };
        assert_eq!(cut(None, None), "한국어 text");
        assert_eq!(cut(Some(1), Some(3)), "국어");
        assert_eq!(cut(Some(-4), None), "text");
        assert_eq!(cut(None, Some(-5)), "한국어");
        assert_eq!(cut(Some(-4), Some(-2)), "te");
        for (start, end) in [(5, 2), (8, 9), (-2, -4), (i64::MAX, i64::MAX)] {
            assert_eq!(cut(Some(start), Some(end)), "", "{start} to {end}");
        }
        assert_eq!(cut(Some(i64::MIN), Some(i64::MAX)), "한국어 text");
    }

    #[test]
    fn a_replacement_cannot_grow_without_limit() {
        let (text, with) = ("x".repeat(10_000), "y".repeat(10_000));
        let args = |is_regex: bool, with: &str| json!({"text": text, "find": "(x)", "with": with, "regex": is_regex});
        assert!(run(replace, args(true, &with)).starts_with("E_TOO_LARGE: "));
        let plain = json!({"text": text, "find": "x", "with": with});
        assert!(run(replace, plain).starts_with("E_TOO_LARGE: "));
        assert_eq!(run(replace, args(false, &with)), text);
        let all = json!({"text": text, "find": "x+", "with": "$0".repeat(2_000), "regex": true});
        assert!(run(replace, all).starts_with("E_TOO_LARGE: "));
    }

    #[test]
    fn case_trim_split_and_join() {
        assert_eq!(
            run(case, json!({"text": "it's ÉTÉ, 가나", "to": "title"})),
            "It's Été, 가나"
        );
        assert_eq!(
            run(case, json!({"text": "straße", "to": "upper"})),
            "STRASSE"
        );
        assert_eq!(run(trim, json!({"text": " a \n b "})), "a \n b");
        assert_eq!(
            run(
                trim,
                json!({"text": " a \n b \n", "side": "end", "eachLine": true})
            ),
            " a\n b\n"
        );
        assert_eq!(
            run(split, json!({"text": "a,b,", "separator": ","})),
            r#"["a","b",""]"#
        );
        assert_eq!(
            run(join, json!({"parts": ["a", "b"], "separator": "; "})),
            "a; b"
        );
    }

    #[test]
    fn lines_are_picked_ordered_and_counted() {
        let text = "b\na\nb\nc\n";
        let picked = |more: Value| {
            let mut args = more;
            args["text"] = json!(text);
            run(lines, args)
        };
        assert_eq!(picked(json!({"unique": true, "sort": true})), "a\nb\nc");
        assert_eq!(
            picked(json!({"match": "^[bc]$", "reverse": true})),
            "c\nb\nb"
        );
        assert_eq!(picked(json!({"from": 2, "to": 3})), "a\nb");
        assert_eq!(picked(json!({"from": 9})), "");
        assert_eq!(
            run(count, json!({"text": "가나 x\ny", "find": "x"})),
            r#"{"characters":6,"words":3,"lines":2,"bytes":10,"occurrences":1}"#
        );
    }
}
