//! Display of the checkpoints of tasks and conversations.

use goondan_protocol::time::Timestamp;

use crate::output::style::{self, Palette};
use crate::output::table::{Cell, Column, Table};
use crate::output::text;

pub(super) struct CheckpointRow<'a> {
    pub(super) id: &'a str,
    pub(super) why: String,
    /// Value of the kind-specific column: a phase, or the number of messages.
    pub(super) amount: String,
    pub(super) size_bytes: u64,
    /// None if its description is unreadable; then only its id is known.
    pub(super) made_at: Option<Timestamp>,
    pub(super) name: Option<&'a str>,
    pub(super) damaged: Option<&'a str>,
}

/// Table of checkpoints. `amount` is the header of the kind-specific column, `below` its label on a narrow page.
pub(super) fn table_of(
    (amount, below): (&'static str, &'static str),
    listed: Vec<CheckpointRow<'_>>,
    now: Timestamp,
) -> Table {
    let mut table = Table::new([
        Column::new("CHECKPOINT").cut(),
        Column::new("WHY").cut(),
        Column::new(amount).below(3, below),
        Column::new("SIZE").below(1, "size"),
        Column::new("MADE").below(4, "made"),
        Column::new("NAME").below(5, ""),
    ]);
    for one in listed {
        let known = |text: String| Cell::from(one.made_at.map_or_else(|| "-".to_owned(), |_| text));
        let made = one
            .made_at
            .map_or_else(String::new, |at| format!("{} ago", text::age(at, now)));
        let name = match (one.damaged, one.name) {
            (Some(problem), _) => Cell::styled(text::one_line(problem), style::BAD),
            (None, name) => text::one_line(name.unwrap_or_default()).into(),
        };
        table.row([
            one.id.to_owned().into(),
            known(text::one_line(&one.why)),
            known(one.amount),
            known(text::bytes(one.size_bytes)),
            known(made),
            name,
        ]);
    }
    table
}

/// Adds a line about a checkpoint that was skipped because it is damaged.
pub(super) fn push_skipped(out: &mut String, id: &str, damaged: Option<&str>, palette: Palette) {
    let problem = text::one_line(damaged.unwrap_or("damaged"));
    let line = format!("  skipped {id}: {problem}");
    out.push_str(&format!("{}\n", palette.paint(style::WARN, &line)));
}

/// Adds the changed files, each with a mark.
pub(super) fn push_files(
    out: &mut String,
    (added, changed, removed): (&[String], &[String], &[String]),
    palette: Palette,
) {
    for (mark, style, paths) in [
        ("+", style::GOOD, added),
        ("~", style::WARN, changed),
        ("-", style::BAD, removed),
    ] {
        for path in paths {
            let mark = palette.paint(style, mark);
            out.push_str(&format!("  {mark} {}\n", text::one_line(path)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::table::at_three_widths;

    #[test]
    fn ckpt_4_a_checkpoint_without_a_description_has_no_age() {
        let unreadable = || CheckpointRow {
            id: "checkpoint_001",
            why: String::new(),
            amount: "0".to_owned(),
            size_bytes: 0,
            made_at: None,
            name: None,
            damaged: Some("`metadata.json` is missing"),
        };
        let now = Timestamp::from_unix_millis(120_000);
        let shown = at_three_widths(|canvas| {
            table_of(("PHASE", "phase"), vec![unreadable()], now).render(canvas)
        });
        assert!(shown.contains("`metadata.json` is missing"), "{shown}");
        for unknown in ["ago", "0 B"] {
            assert!(!shown.contains(unknown), "{unknown}:\n{shown}");
        }
    }
}
