//! Conversations as readable text.

use std::collections::VecDeque;

use goondan_protocol::control::{InstanceHistory, InstancePage, RewindRecord, ShowInstance};
use goondan_protocol::ids::{InstanceKey, WorkspaceId};
use goondan_protocol::images::Image;
use goondan_protocol::message::{Message, MessageRole};
use goondan_protocol::time::Timestamp;
use serde::Serialize;

use super::rewind::rewind_in_words;
use super::turns::{self, UnansweredTurn};
use crate::client::{CallError, Client};
use crate::output::style::{self, Palette};
use crate::output::text;

/// Messages of a conversation.
#[derive(Debug, Default, Serialize)]
pub(super) struct Transcript {
    /// Confirmed messages: all, or the latest ones.
    pub(super) messages: VecDeque<Message>,
    /// Messages of the turn in progress.
    pub(super) pending: Vec<Message>,
    /// Number of confirmed messages, including those omitted.
    pub(super) total: usize,
    /// Failed turns since the first of these messages. These turns left no messages.
    #[serde(rename = "unansweredTurns")]
    pub(super) unanswered: Vec<UnansweredTurn>,
    /// Rewinds of the conversation, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) rewinds: Vec<RewindRecord>,
}

/// Reads a conversation, or its latest `limit` messages.
pub(super) async fn read(
    client: &mut Client,
    workspace_id: &WorkspaceId,
    instance_key: &InstanceKey,
    limit: Option<usize>,
) -> Result<Transcript, CallError> {
    let conversation = (workspace_id, instance_key);
    let mut transcript = match limit {
        None => read_from(client, conversation, 0).await?,
        Some(limit) => latest(client, conversation, limit).await?,
    };
    if limit != Some(0) {
        let turns = turns::read(client, workspace_id, instance_key, None).await?;
        transcript.unanswered = turns.unanswered();
        let show = ShowInstance {
            workspace_id: workspace_id.clone(),
            instance_key: instance_key.clone(),
        };
        transcript.rewinds = client.query(show).await?.rewinds;
        transcript.leave_out_earlier_turns();
    }
    Ok(transcript)
}

/// Reads all pages from `offset` on.
async fn read_from(
    client: &mut Client,
    (workspace_id, instance_key): (&WorkspaceId, &InstanceKey),
    mut offset: u64,
) -> Result<Transcript, CallError> {
    let mut transcript = Transcript::default();
    loop {
        let page = client
            .query(InstanceHistory {
                workspace_id: workspace_id.clone(),
                instance_key: instance_key.clone(),
                offset,
            })
            .await?;
        transcript.total += page.messages.len();
        transcript.messages.extend(page.messages);
        transcript.pending.extend(page.pending);
        match page.next {
            // Stop at a page that does not advance, which would repeat forever.
            Some(next) if next > offset => offset = next,
            _ => return Ok(transcript),
        }
    }
}

/// Reads pages from the end until there are `limit` messages.
pub(super) async fn latest(
    client: &mut Client,
    (workspace_id, instance_key): (&WorkspaceId, &InstanceKey),
    limit: usize,
) -> Result<Transcript, CallError> {
    let mut transcript = Transcript::default();
    let mut before = None;
    loop {
        let missing = limit.saturating_sub(transcript.messages.len());
        let page = client
            .query(InstancePage {
                workspace_id: workspace_id.clone(),
                instance_key: instance_key.clone(),
                before,
                limit: u64::try_from(missing).unwrap_or(u64::MAX),
                whole: true,
            })
            .await?;
        if before.is_none() {
            transcript.total = usize::try_from(page.total).unwrap_or(usize::MAX);
            transcript.pending = page.history.pending;
            if let Some(next) = page.history.next {
                let rest = read_from(client, (workspace_id, instance_key), next).await?;
                transcript.pending.extend(rest.pending);
            }
        }
        // A page holds at least one message.
        for message in page.history.messages.into_iter().rev().take(missing) {
            transcript.messages.push_front(message);
        }
        match page.previous {
            Some(previous)
                if transcript.messages.len() < limit && before.is_none_or(|b| previous < b) =>
            {
                before = Some(previous);
            }
            _ => return Ok(transcript),
        }
    }
}

impl Transcript {
    /// Drops the failed turns from before the first of the messages.
    fn leave_out_earlier_turns(&mut self) {
        if self.total <= self.messages.len() {
            return;
        }
        match self.messages.front().and_then(written_at) {
            Some(first) => {
                self.unanswered.retain(|turn| turn.started_at >= first);
                self.rewinds.retain(|rewind| rewind.at >= first);
            }
            None => self.unanswered.clear(),
        }
    }

    /// Renders the messages, one paragraph each.
    pub(super) fn render(&self, palette: Palette) -> String {
        let confirmed = self.messages.iter().map(|message| (message, ""));
        let pending = self
            .pending
            .iter()
            .map(|message| (message, "  (turn in progress)"));
        let mut unanswered = self.unanswered.iter().peekable();
        let mut rewinds = self.rewinds.iter().peekable();
        let mut paragraphs: Vec<String> = Vec::new();
        for (message, note) in confirmed.chain(pending) {
            while let (Some(turn), Some(at)) = (unanswered.peek(), written_at(message))
                && turn.started_at < at
            {
                paragraphs.push(without_answer(turn, palette));
                unanswered.next();
            }
            while let (Some(rewind), Some(at)) = (rewinds.peek(), written_at(message))
                && rewind.at < at
            {
                paragraphs.push(rewound(rewind, palette));
                rewinds.next();
            }
            paragraphs.push(paragraph(message, note, palette));
        }
        paragraphs.extend(unanswered.map(|turn| without_answer(turn, palette)));
        paragraphs.extend(rewinds.map(|rewind| rewound(rewind, palette)));
        if paragraphs.is_empty() {
            return "No messages yet.\n".to_owned();
        }
        let left_out = self.total.saturating_sub(self.messages.len());
        let head = if left_out == 0 {
            String::new()
        } else {
            let earlier = text::count(left_out, "earlier message");
            palette.paint(style::FAINT, &format!("({earlier} omitted)")) + "\n\n"
        };
        head + &paragraphs.join("\n")
    }
}

/// Notes a rewind at this point, which removed the messages since the checkpoint.
fn rewound(rewind: &RewindRecord, palette: Palette) -> String {
    let text = format!("(rewound {})\n", rewind_in_words(rewind));
    palette.paint(style::FAINT, &text)
}

fn written_at(message: &Message) -> Option<Timestamp> {
    message.created_at.parse().ok()
}

/// A turn that left only its failure.
pub(super) fn without_answer(turn: &UnansweredTurn, palette: Palette) -> String {
    let mut out = format!(
        "{}  {}\n",
        palette.paint(style::BAD, &format!("turn {}", turn.outcome())),
        palette.paint(style::FAINT, &text::clock(turn.started_at))
    );
    if let Some(input) = &turn.input {
        push_indented(&mut out, "", input);
    }
    push_indented(
        &mut out,
        "✗ ",
        turn.reason.as_deref().unwrap_or("no reason was recorded"),
    );
    out
}

pub(super) fn paragraph(message: &Message, note: &str, palette: Palette) -> String {
    let (name, look) = match message.data.role {
        MessageRole::System => ("system", style::FAINT),
        MessageRole::User => ("user", style::HINT),
        MessageRole::Assistant => ("assistant", style::GOOD),
        MessageRole::Tool => ("tool", style::WARN),
    };
    // An unreadable time is shown unchanged.
    let at = message.created_at.parse::<Timestamp>();
    let at = at.map_or_else(|_| text::one_line(&message.created_at), text::clock);
    let mut out = format!(
        "{}  {}\n",
        palette.paint(look, name),
        palette.paint(style::FAINT, &format!("{at}{note}"))
    );
    let content = &message.data.content;
    push_indented(&mut out, "", &content.to_text());
    for image in content.images() {
        push_indented(&mut out, "", &in_words(&image));
    }
    for call in content.tool_calls() {
        let call = format!("{} {}", call.tool_name, call.input);
        push_indented(&mut out, "→ ", &call);
    }
    for result in content.tool_results() {
        let has_failed = result.is_error || is_failed_command(&result.text);
        let mark = if has_failed { "✗ " } else { "✓ " };
        push_indented(
            &mut out,
            mark,
            &format!("{}\n{}", result.tool_name, result.text),
        );
    }
    out
}

/// True if this is the output of `bash` for a failed command, with `exit code: 2` in its first line. For the model,
/// this is not a tool error.
fn is_failed_command(text: &str) -> bool {
    let code = text.lines().next().unwrap_or_default();
    let code = code.strip_prefix("exit code: ");
    code.is_some_and(|code| code != "0")
}

fn in_words(image: &Image) -> String {
    match &image.media_type {
        Some(kind) if !image.image.starts_with("http") => {
            format!("[{kind}, {} bytes]", image.image.len() / 4 * 3)
        }
        Some(_) | None => format!("[image {}]", image.image),
    }
}

fn push_indented(out: &mut String, mark: &str, text: &str) {
    let text = text::printable(text);
    for (number, line) in text.lines().enumerate() {
        let lead = match (mark, number) {
            ("", _) => "  ",
            (_, 0) => "  ",
            _ => "    ",
        };
        out.push_str(lead);
        if number == 0 {
            out.push_str(mark);
        }
        out.push_str(line);
        out.push('\n');
    }
}
