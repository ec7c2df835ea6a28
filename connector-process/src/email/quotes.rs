//! Separates what a person wrote from the earlier messages below it. Pure.
//!
//! Answers between the lines of a quote need the quote, and stay as they are.

/// Most lines of a sentence such as `On Monday, Ada wrote:`.
const INTRODUCTION_LINES_MAX: usize = 3;

/// Length of a line of dashes or underscores that separates messages, in characters.
const DIVIDER_CHARS_MIN: usize = 5;

/// Splits a reply into the new text and the quoted history, if there is any below or above it.
pub(super) fn split(text: &str) -> (String, Option<String>) {
    let lines: Vec<&str> = text.lines().collect();
    let cut = divider(&lines).or_else(|| quote_below(&lines));
    let (kept, quoted) = match cut {
        Some(at) => lines.split_at(at),
        None => lines.split_at(quote_above(&lines).unwrap_or(0)),
    };
    let (kept, quoted) = match cut {
        Some(_) => (kept, quoted),
        None => (quoted, kept),
    };
    if quoted.is_empty() || kept.iter().all(|line| line.trim().is_empty()) {
        return (text.trim().to_owned(), None);
    }
    let joined = |lines: &[&str]| lines.join("\n").trim().to_owned();
    (joined(kept), Some(joined(quoted)))
}

fn is_quote(line: &str) -> bool {
    line.trim_start().starts_with('>')
}

fn is_blank(line: &str) -> bool {
    line.trim().is_empty()
}

/// The first line of quoted lines that reach to the end, with their introduction.
fn quote_below(lines: &[&str]) -> Option<usize> {
    let mut at = lines.len();
    for (number, line) in lines.iter().enumerate().rev() {
        if is_quote(line) {
            at = number;
        } else if !is_blank(line) {
            break;
        }
    }
    let before = lines.get(..at)?;
    // A quote in the middle shows that the person answered between the lines.
    if at == lines.len() || before.iter().any(|line| is_quote(line)) {
        return None;
    }
    Some(introduction(before).unwrap_or(at))
}

/// The line after quoted lines that begin the text, with their introduction.
fn quote_above(lines: &[&str]) -> Option<usize> {
    let first = lines.iter().position(|line| is_quote(line))?;
    let before = lines.get(..first)?;
    let is_first = before.iter().all(|line| is_blank(line))
        || introduction(before).is_some_and(|at| {
            let above = before.get(..at).unwrap_or_default();
            above.iter().all(|line| is_blank(line))
        });
    let quoted = lines.get(first..)?;
    let length = quoted
        .iter()
        .position(|line| !is_quote(line) && !is_blank(line))?;
    let after = quoted.get(length..)?;
    let is_only = !after.iter().any(|line| is_quote(line));
    (is_first && is_only).then_some(first + length)
}

/// The first line of a sentence such as `On Monday, Ada <ada@example.com> wrote:` at the end, in any
/// language.
fn introduction(lines: &[&str]) -> Option<usize> {
    let end = lines.iter().rposition(|line| !is_blank(line))?;
    let last = lines.get(end)?.trim_end();
    if !last.ends_with([':', '：']) {
        return None;
    }
    let block = lines.get(..=end)?;
    let length = block.iter().rev().take_while(|line| !is_blank(line));
    let length = length.take(INTRODUCTION_LINES_MAX + 1).count();
    let start = (end + 1).checked_sub(length)?;
    let sentence = lines.get(start..=end)?.concat();
    let names_a_message = sentence.contains('@') || sentence.chars().any(char::is_numeric);
    (length <= INTRODUCTION_LINES_MAX && names_a_message).then_some(start)
}

/// A line of dashes or underscores followed by headers of an earlier message, as Outlook writes it.
fn divider(lines: &[&str]) -> Option<usize> {
    lines.iter().enumerate().find_map(|(number, line)| {
        let line = line.trim();
        let is_line = line.chars().count() >= DIVIDER_CHARS_MIN
            && (line.chars().all(|c| c == '_')
                || line.starts_with("-----")
                    && line.ends_with("-----")
                    && !line.to_lowercase().contains("forward"));
        let next = lines.get(number + 1..)?.iter();
        let next = next.filter(|line| !is_blank(line)).take(4);
        let headers = next.filter(|line| is_header(line)).count();
        (is_line && headers >= 2).then_some(number)
    })
}

/// True for a line such as `From: Ada <ada@example.com>`, in any language, or `*From:* Ada`.
fn is_header(line: &str) -> bool {
    let (name, value) = line.trim().split_once(':').unwrap_or_default();
    let name = name.trim_matches(['*', ' ']);
    !name.is_empty()
        && name.chars().count() <= 20
        && name.split_whitespace().count() <= 2
        && !value.trim().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conn_1_history_below_an_answer_is_cut_off() {
        for (text, kept) in [
            (
                "Yes.\n\nOn Mon, 2 Mar 2026, Ada <ada@example.com> wrote:\n> Is it?\n>\n> Ada\n",
                "Yes.",
            ),
            (
                "예.\n\n2026년 3월 2일 (월) Ada <ada@example.com>님이\n작성:\n> 질문\n\n> 더\n",
                "예.",
            ),
            ("Yes.\n> Is it?", "Yes."),
            (
                "Yes.\n\n________________________________\nFrom: Ada <ada@example.com>\nSent: Monday\n\
                 To: Help\nSubject: x\n\nIs it?",
                "Yes.",
            ),
            (
                "Ja.\n\n-----Ursprüngliche Nachricht-----\nVon: Ada\nGesendet: Montag\n\nIst es?",
                "Ja.",
            ),
            (
                "On Mon, 2 Mar 2026, Ada wrote:\n> Is it?\n\nYes.\nAnd no.",
                "Yes.\nAnd no.",
            ),
        ] {
            let (found, quoted) = split(text);
            assert_eq!(found, kept, "{text}");
            assert!(
                quoted.is_some_and(|quoted| !quoted.contains(kept)),
                "{text}"
            );
        }
    }

    #[test]
    fn conn_1_text_without_history_and_answers_between_lines_stay() {
        for text in [
            "Yes.",
            "",
            "> only a quote",
            "> Is it?\nYes.\n> And this?\nNo.",
            "Two things:\n- a\n- b",
            "-----\nA line is no message.",
            "---------- Forwarded message ---------\nFrom: Ada\nDate: Monday\n\nHello",
        ] {
            assert_eq!(split(text), (text.to_owned(), None));
        }
    }
}
