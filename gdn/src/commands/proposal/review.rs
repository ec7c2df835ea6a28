//! Renders a proposal for review: author, changes and test results.

use anstyle::Style;
use goondan_protocol::control::{
    CommentState, EntryStanding, FileStatus, GitCheck, ProposalComment, ProposalDetail,
    ProposalFile, ProposalRefusal, ProposalState,
};

use super::patch::{self, sizes_of};
use crate::output::page::PageWriter;
use crate::output::style::{self, Palette};
use crate::output::table::{Canvas, Cell, Column, Table};
use crate::output::text;

pub(super) fn style_of(state: ProposalState) -> Style {
    match state {
        ProposalState::Open => style::WARN,
        ProposalState::Applied => style::GOOD,
        ProposalState::Rejected | ProposalState::Reverted => style::FAINT,
    }
}

/// Renders the complete review.
pub(super) fn review_of(detail: &ProposalDetail, patch: &[u8], canvas: Canvas) -> String {
    let palette = canvas.palette;
    let mut page = PageWriter::new(&fields_of(detail), canvas);
    page.part("Summary", &text::quoted(&detail.summary));
    page.part("Files", &files_of(detail, palette));
    page.part("Changes", &patch::colored(patch, &detail.files, palette));
    page.part("Comments", &comments_of(detail, palette));
    page.part(
        "Tests",
        &text::quoted(detail.test_log.as_deref().unwrap_or_default()),
    );
    for (title, left) in [
        ("Not given to the worker", &detail.not_given),
        (
            "In the worker's directory, but not in the proposal",
            &detail.left_out,
        ),
    ] {
        let lines = left.iter().map(|left| {
            let reason = palette.paint(style::FAINT, &text::one_line(&left.reason));
            format!("  {}  {reason}\n", text::one_line(&left.path))
        });
        page.part(title, &lines.collect::<String>());
    }
    let history = detail.history.iter().map(|event| {
        let at = palette.paint(style::FAINT, &text::clock(event.at));
        let kind = event.kind.as_str().trim_start_matches("proposal_");
        format!("  {at}  {kind}  {}\n", text::one_line(&event.detail))
    });
    page.part("History", &history.collect::<String>());
    page.into_text()
}

fn fields_of(detail: &ProposalDetail) -> Table {
    let info = &detail.info;
    let mut table = Table::of_fields();
    table.field("Proposal of", Cell::from(&info.at.agent_id));
    table.field("Run", Cell::from(&info.at.run_id));
    table.field(
        "State",
        Cell::styled(info.state.as_str(), style_of(info.state)),
    );
    if !info.notes.is_empty() {
        table.field("Notes", text::one_line(&info.notes));
    }
    table.field("Submitted", text::clock(info.created_at));
    let head = detail.base.git_head.as_deref().unwrap_or("no git commit");
    table.field("Based on", head.to_owned());
    if let Some(repository) = &detail.repository {
        table.field("Repository", text::one_line(repository));
    }
    if let Some(delivered_as) = &detail.delivered_as {
        table.field("Delivered as", text::one_line(delivered_as));
    }
    if let Some(from) = &detail.merged_from {
        table.field(
            "Merged from",
            format!("{} in run {}, {}", from.agent_id, from.run_id, from.digest),
        );
        if !from.files.is_empty() {
            let paths: Vec<String> = from.files.iter().map(|path| text::one_line(path)).collect();
            table.field("Lines of both", Cell::styled(paths.join(", "), style::WARN));
        }
    }
    let checked = match detail.git {
        GitCheck::Agreed => "verified, also with git",
        GitCheck::NotInstalled => "verified; git is not installed",
    };
    table.field("Patch", checked.to_owned());
    table.field("Digest", info.digest.clone());
    table
}

/// Warns of files in a merged proposal that contain lines of both sides.
pub(super) fn lines_of_both(detail: &ProposalDetail, palette: Palette) -> String {
    let files = detail.merged_from.iter().flat_map(|from| &from.files);
    let paths: Vec<String> = files.map(|path| text::one_line(path)).collect();
    if paths.is_empty() {
        return String::new();
    }
    let line = format!(
        "  lines of the worker and of the project: {}",
        paths.join(", ")
    );
    format!("{}\n", palette.paint(style::WARN, &line))
}

/// Lists the files with the status of each.
pub(super) fn files_of(detail: &ProposalDetail, palette: Palette) -> String {
    let moved: Vec<&str> = detail
        .files
        .iter()
        .filter_map(|file| file.renamed_from.as_deref())
        .collect();
    let mut out = String::new();
    for file in &detail.files {
        // A moved file is listed under its new name.
        if file.change.status == FileStatus::Deleted && moved.contains(&file.change.path.as_str()) {
            continue;
        }
        out.push_str(&file_line(file, palette));
    }
    for change in &detail.directories {
        let (mark, style) = if change.is_made {
            ("+", style::GOOD)
        } else {
            ("-", style::BAD)
        };
        let mark = palette.paint(style, mark);
        out.push_str(&format!("  {mark} {}/\n", text::one_line(&change.path)));
    }
    for change in &detail.modes {
        let mark = palette.paint(style::WARN, "m");
        let (path, old, new) = (text::one_line(&change.path), &change.old, &change.new);
        out.push_str(&format!("  {mark} {path}  mode {old} → {new}\n"));
    }
    out
}

fn file_line(file: &ProposalFile, palette: Palette) -> String {
    let (mark, style) = match (file.change.status, &file.renamed_from) {
        (_, Some(_)) => ("→", style::HINT),
        (FileStatus::Added, _) => ("+", style::GOOD),
        (FileStatus::Modified, _) => ("~", style::WARN),
        (FileStatus::Deleted, _) => ("-", style::BAD),
        (FileStatus::TypeChanged, _) => ("!", style::WARN),
    };
    let sizes = sizes_of(file);
    let from = file.renamed_from.as_deref();
    let from = from.map_or_else(String::new, |from| format!("{} → ", text::one_line(from)));
    format!(
        "  {} {from}{}  {}\n",
        palette.paint(style, mark),
        text::one_line(&file.change.path),
        palette.paint(style::FAINT, &sizes)
    )
}

/// Lists the comments; the state says which proposal had to address them.
pub(super) fn comments_of(detail: &ProposalDetail, palette: Palette) -> String {
    let digest = &detail.info.digest;
    let comments = detail.comments.iter();
    let blocks = comments.map(|comment| {
        let about = match (comment.state, &comment.addressed_by) {
            (CommentState::Open, _) if comment.digest == *digest => "open",
            (CommentState::Open, _) => "open, on an earlier proposal",
            (CommentState::Sent, None) => "sent to the agent",
            (CommentState::Sent, Some(by)) if by == digest => "sent; this proposal addresses it",
            (CommentState::Sent, Some(_)) => "sent; an earlier proposal addressed it",
        };
        let lines = comment_lines(comment, palette);
        format!("{lines}      {}\n", palette.paint(style::FAINT, about))
    });
    blocks.collect()
}

/// One comment: its number, its place, the line and its text.
pub(super) fn comment_lines(comment: &ProposalComment, palette: Palette) -> String {
    let place = text::one_line(&comment.place());
    let mut out = format!(
        "  {:>2}  {}\n",
        comment.number,
        palette.paint(style::HINT, &place)
    );
    if let Some(line) = &comment.line_text {
        let line = format!("> {}", text::printable(line));
        out.push_str(&format!("      {}\n", palette.paint(style::FAINT, &line)));
    }
    for line in comment.text.lines() {
        out.push_str(&format!("      {}\n", text::printable(line)));
    }
    out
}

/// Explains refused files, with the given, proposed and current contents.
pub(super) fn refusals_of(refusals: &[ProposalRefusal], canvas: Canvas) -> String {
    let palette = canvas.palette;
    let mut out = String::new();
    for refusal in refusals {
        let path = refusal.path.as_deref().unwrap_or("the base");
        let path = palette.paint(style::BAD, &text::one_line(path));
        out.push_str(&format!("{path}: {}\n", text::one_line(&refusal.reason)));
        let mut table = Table::new([Column::new(""), Column::new(""), Column::new("")]);
        let mut is_empty = true;
        for (name, standing) in [
            ("given", &refusal.given),
            ("proposed", &refusal.proposed),
            ("found", &refusal.found),
        ] {
            if let Some(standing) = standing {
                is_empty = false;
                table.row([
                    String::new().into(),
                    name.to_owned().into(),
                    standing_text(standing).into(),
                ]);
            }
        }
        if !is_empty {
            out.push_str(table.render(canvas).trim_start_matches('\n'));
        }
    }
    out
}

fn standing_text(standing: &EntryStanding) -> String {
    match standing {
        EntryStanding::Missing => "nothing".to_owned(),
        EntryStanding::File { sha256, mode } => format!("file {sha256} {mode}"),
        EntryStanding::Link { sha256 } => format!("link {sha256}"),
        EntryStanding::Directory => "directory".to_owned(),
        EntryStanding::Other => "neither file, directory nor link".to_owned(),
    }
}
