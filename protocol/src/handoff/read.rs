//! Parses a handoff from a model's message.

use std::str::FromStr;

use super::{
    ChangedFile, HANDOFF_MARK, HANDOFF_TEXT_BYTES_MAX, Handoff, HandoffField, HandoffPath,
    HandoffProblem, List, Paragraph, TextLine,
};

/// Reason why a text contains no valid handoff.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HandoffError {
    /// The text is too long to search.
    #[error("the text has more than {HANDOFF_TEXT_BYTES_MAX} bytes; give the handoff alone")]
    TooLong,
    /// No line marks the start of a handoff.
    #[error("the line `{HANDOFF_MARK}` is missing; begin with it")]
    NoMark,
    /// A field that locates the work is missing.
    #[error("the field `{0}` is missing; write `{0}: …` on a separate line")]
    Missing(HandoffField),
    /// A field occurs twice.
    #[error("the field `{0}` is set twice; remove one")]
    Repeated(HandoffField),
    /// The value of a field is invalid.
    #[error("the field `{field}` is invalid: {problem}")]
    Field {
        /// The field.
        field: HandoffField,
        /// The problem.
        problem: HandoffProblem,
    },
}

impl FromStr for Handoff {
    type Err = HandoffError;

    /// Finds the first complete handoff in a text. Fields may be in any order and letter case;
    /// written as list items, headings or bold text; and inside a code fence. Fields that do not
    /// locate the work are optional.
    fn from_str(text: &str) -> Result<Self, HandoffError> {
        if text.len() > HANDOFF_TEXT_BYTES_MAX {
            return Err(HandoffError::TooLong);
        }
        let lines: Vec<&str> = text.lines().collect();
        let mut problem = HandoffError::NoMark;
        for (at, line) in lines.iter().enumerate() {
            if !is_mark(line) {
                continue;
            }
            let before = lines.get(..at).unwrap_or_default();
            let is_fenced = before.last().is_some_and(|line| is_fence(line));
            match block(lines.get(at + 1..).unwrap_or_default(), is_fenced) {
                Ok(handoff) => return Ok(handoff),
                Err(error) => problem = error,
            }
        }
        Err(problem)
    }
}

fn is_mark(line: &str) -> bool {
    let is_ornament = |character| matches!(character, '#' | '*' | '_' | '=' | ':' | '-' | ' ');
    let word = line.trim().trim_matches(is_ornament);
    word.eq_ignore_ascii_case(HANDOFF_MARK) && bullet(line).is_none()
}

fn is_fence(line: &str) -> bool {
    line.trim_start().starts_with("```")
}

/// Indentation of a line.
fn indent(line: &str) -> usize {
    let width = |character| match character {
        '\t' => 4,
        _ => 1,
    };
    line.chars()
        .take_while(|character| character.is_whitespace())
        .map(width)
        .sum()
}

/// Formatting of a block's fields, as detected from the first field.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Style {
    indent: usize,
    is_bullet: bool,
}

/// Lines of a field: the text after its name, then the following lines without their indentation.
type FieldLines<'t> = Vec<&'t str>;

fn block(lines: &[&str], is_fenced: bool) -> Result<Handoff, HandoffError> {
    let mut fields: [Option<FieldLines<'_>>; HandoffField::ALL.len()] = Default::default();
    let mut style = None;
    let mut current: Option<HandoffField> = None;
    for line in lines {
        if (is_fenced && is_fence(line) && indent(line) < 2) || (is_mark(line) && indent(line) < 2)
        {
            break;
        }
        if let Some((field, value, found)) = label(line)
            && style.is_none_or(|style: Style| {
                style.is_bullet == found.is_bullet && found.indent <= style.indent
            })
        {
            style.get_or_insert(found);
            let lines = fields.get_mut(field as usize);
            if lines.as_ref().is_some_and(|lines| lines.is_some()) {
                return Err(HandoffError::Repeated(field));
            }
            if let Some(lines) = lines {
                *lines = Some(vec![value]);
            }
            current = Some(field);
            continue;
        }
        let Some(field) = current else { continue };
        let Some(Some(below)) = fields.get_mut(field as usize) else {
            continue;
        };
        if ends_list(field, below, line) {
            break;
        }
        below.push(outdented(line, style.map_or(0, |style| style.indent) + 2));
    }
    whole(&fields)
}

/// True if a list has ended: prose after an empty line.
fn ends_list(field: HandoffField, so_far: &[&str], line: &str) -> bool {
    let is_list = matches!(
        field,
        HandoffField::ChangedFiles | HandoffField::Tests | HandoffField::Next
    );
    let is_after_gap = so_far.len() > 2 && so_far.last().is_some_and(|line| line.trim().is_empty());
    let is_prose = !line.trim().is_empty() && indent(line) == 0 && bullet(line).is_none();
    is_list && is_after_gap && is_prose
}

fn outdented(line: &str, most: usize) -> &str {
    let spaces = line.bytes().take_while(|byte| *byte == b' ').count();
    line.get(spaces.min(most)..).unwrap_or_default()
}

/// The text after a list marker, if the line starts with one.
pub(super) fn bullet(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let rest = ["- ", "* ", "+ ", "• "]
        .iter()
        .find_map(|sign| line.strip_prefix(sign));
    rest.or_else(|| {
        let digits = line.bytes().take_while(u8::is_ascii_digit).count();
        let rest = line.get(digits..).filter(|_| (1..4).contains(&digits))?;
        rest.strip_prefix(". ").or_else(|| rest.strip_prefix(") "))
    })
}

/// The field that a line starts, and the text after its name.
fn label(line: &str) -> Option<(HandoffField, &str, Style)> {
    let (rest, is_bullet) = match bullet(line) {
        Some(rest) => (rest, true),
        None => (line, false),
    };
    let style = Style {
        indent: indent(line),
        is_bullet,
    };
    let rest = rest.trim();
    let heading = rest.trim_start_matches('#');
    let is_heading = heading.len() < rest.len();
    let named = heading.trim_start();
    let bare = named.trim_start_matches(['*', '_']);
    let emphasis = named.get(..named.len() - bare.len()).unwrap_or_default();
    let (name, value) = match bare.split_once(':') {
        Some((name, value)) => (name, value),
        None if is_heading => (bare, ""),
        None => return None,
    };
    let field = field_of(name.trim_end_matches(['*', '_']))?;
    // In `**Goal:** text` the bold part ends here.
    let value = match value.strip_prefix(emphasis) {
        Some(rest) if !name.ends_with(['*', '_']) => rest,
        _ => value,
    };
    Some((field, value, style))
}

fn field_of(name: &str) -> Option<HandoffField> {
    let is_letter = |character: &char| !matches!(character, ' ' | '_' | '-');
    let letters: String = name.chars().take(64).filter(is_letter).collect();
    let letters = letters.to_ascii_lowercase();
    if letters == "definitionofdone" {
        return Some(HandoffField::Dod);
    }
    let mut fields = HandoffField::ALL.into_iter();
    fields.find(|field| field.name().to_ascii_lowercase() == letters)
}

fn whole(fields: &[Option<FieldLines<'_>>]) -> Result<Handoff, HandoffError> {
    use HandoffField as F;
    let lines = |field: F| fields.get(field as usize).and_then(Option::as_deref);
    let wrong = |field: F| move |problem| HandoffError::Field { field, problem };
    let paragraph = |field: F| {
        let text = lines(field).unwrap_or_default().join("\n");
        Paragraph::new(text.trim()).map_err(wrong(field))
    };
    let path = |field: F| {
        let lines = lines(field).ok_or(HandoffError::Missing(field))?;
        let text = lines
            .iter()
            .map(|line| line.trim())
            .find(|line| !line.is_empty());
        let text = text.ok_or(HandoffError::Missing(field))?;
        HandoffPath::new(code_span(bullet(text).unwrap_or(text))).map_err(wrong(field))
    };
    let list = |field: F| {
        let items = items(lines(field).unwrap_or_default()).into_iter();
        let items = items.map(TextLine::new).collect::<Result<_, _>>();
        items.and_then(List::new).map_err(wrong(field))
    };
    let proposal_json = path(F::ProposalJson)?;
    if proposal_json.rsplit('/').next() != Some("proposal.json") {
        return Err(wrong(F::ProposalJson)(HandoffProblem::NotProposalJson));
    }
    let changed = items(lines(F::ChangedFiles).unwrap_or_default());
    let changed = changed
        .into_iter()
        .map(|item| ChangedFile::new(code_span(item)));
    Ok(Handoff {
        context: paragraph(F::Context)?,
        goal: paragraph(F::Goal)?,
        dod: paragraph(F::Dod)?,
        sandbox_work_dir: path(F::SandboxWorkDir)?,
        proposal_json,
        changed_files: changed
            .collect::<Result<_, _>>()
            .and_then(List::new)
            .map_err(wrong(F::ChangedFiles))?,
        tests: list(F::Tests)?,
        next: list(F::Next)?,
    })
}

/// The items of a list: one per line, or separated by commas on the line of the field's name.
fn items<'t>(lines: &[&'t str]) -> Vec<&'t str> {
    let Some((inline, below)) = lines.split_first() else {
        return Vec::new();
    };
    let below = below.iter().map(|line| bullet(line).unwrap_or(line));
    let items = inline.split(", ").chain(below).map(str::trim);
    items.filter(|item| !item.is_empty()).collect()
}

/// The content of a code span at the start of a text; otherwise the whole text.
fn code_span(text: &str) -> &str {
    let inner = text.trim_start_matches('`');
    let (fence, _) = text.split_at(text.len() - inner.len());
    if fence.is_empty() {
        return text;
    }
    let Some(end) = inner.find(fence) else {
        return text;
    };
    let inner = inner.get(..end).unwrap_or_default();
    let padded = inner
        .strip_prefix(' ')
        .and_then(|inner| inner.strip_suffix(' '));
    padded.unwrap_or(inner)
}
