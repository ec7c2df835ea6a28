//! Items of the inbox as text.

use super::items::InboxItem;
use crate::context::Context;
use crate::output::style::{self, Palette};
use crate::output::text;

/// Words for the kinds of items.
pub(in crate::commands) fn kind_words(kind: &str) -> &str {
    match kind {
        "unknownCall" => "call of unknown outcome",
        "parkedEvent" => "parked event",
        "changeset" => "configuration change",
        other => other,
    }
}

/// An item with what is decided about, cut to `lines_max` lines.
pub(in crate::commands) fn item(
    item: &InboxItem,
    details: Option<&str>,
    lines_max: Option<usize>,
    palette: Palette,
    context: &Context,
) -> String {
    let now = text::now();
    let mut lines = vec![head(item, palette)];
    let mut about = vec![text::one_line(item.workspace_id.as_str())];
    about.extend(
        item.conversation
            .as_ref()
            .map(|key| text::one_line(key.as_str())),
    );
    let from = item.from.as_ref();
    about.extend(from.map(|from| format!("from {}", text::one_line(from))));
    let since = item
        .since
        .map(|at| format!("since {} ({} ago)", text::clock(at), text::age(at, now)));
    about.extend(since);
    lines.push(format!(
        "  {}",
        palette.paint(style::FAINT, &about.join(" · "))
    ));
    let subject = || text::one_line(&item.subject);
    let details = details.map_or_else(subject, str::to_owned);
    let total = details.lines().count();
    let shown = lines_max.unwrap_or(total);
    lines.extend(details.lines().take(shown).map(|line| format!("  {line}")));
    if total > shown {
        let show = format!(
            "--workspace {} inbox show {}",
            item.workspace_id,
            word(&item.id)
        );
        let show = context.daemon_command(&show);
        lines.push(format!(
            "  … {} more: {show}",
            text::count(total - shown, "line")
        ));
    }
    let default = match item.until {
        Some(until) => format!("at {}: {}", text::clock(until), item.default),
        None => item.default.to_owned(),
    };
    lines.push(format!("  Without a decision: {default}"));
    lines.extend(item.commands.iter().map(|command| format!("  {command}")));
    lines.join("\n")
}

/// An item on one line.
pub(in crate::commands) fn line(item: &InboxItem, context: &Context) -> String {
    let now = text::now();
    let since = item
        .since
        .map(|at| format!("  ({} ago)", text::age(at, now)));
    format!(
        "{}: {}{}",
        head(item, context.output.out),
        text::one_line(&item.subject),
        since.unwrap_or_default()
    )
}

fn head(item: &InboxItem, palette: Palette) -> String {
    let kind = palette.paint(style::TITLE, kind_words(item.kind));
    format!("{kind} {}", text::one_line(&item.id))
}

fn word(id: &str) -> String {
    text::shell_quoted(id).unwrap_or_else(|| "ID".to_owned())
}
