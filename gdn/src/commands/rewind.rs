//! `gdn conversation checkpoint`, `gdn conversation checkpoints` and `gdn conversation rewind`: save and restore a conversation with its
//! files.

use clap::Args;
use goondan_protocol::control::{
    CheckpointInstance, InstanceCheckpoint, InstanceRewound, ListInstanceCheckpoints,
    RewindInstance, RewindRecord, RewoundMessage,
};
use goondan_protocol::ids::InstanceKey;
use goondan_protocol::time::Timestamp;
use serde_json::json;

use super::checkpoints::{self, CheckpointRow, push_files, push_skipped};
use super::confirm::confirm;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::style::{self, Palette};
use crate::output::table::Table;
use crate::output::text::{self, shell_quoted};
use crate::schemas;

#[derive(Debug, Args)]
pub(crate) struct InstanceCheckpointArgs {
    /// The conversation [default: the swarm's `instanceKey`, or `main`]
    #[arg(value_name = "KEY")]
    key: Option<InstanceKey>,
    /// Name, which exempts it from removal by age
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct InstanceCheckpointsArgs {
    /// The conversation [default: the swarm's `instanceKey`, or `main`]
    #[arg(value_name = "KEY")]
    key: Option<InstanceKey>,
}

/// Roll a conversation and its files back to a checkpoint
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn conversation checkpoint            first create a checkpoint of `main`
  gdn conversation rewind --dry-run      show what the newest would change
  gdn conversation rewind ann --to checkpoint_003 --yes
  gdn conversation rewind --cancel --yes  cancel the turn in progress first

Rolls back messages, work directory and extension states together and atomically. First creates a checkpoint of
the current state, so that you can undo a rewind. Spent money stays spent, answered events are not answered
again, and waiting events keep waiting. The configuration does not change.")]
pub(crate) struct RewindArgs {
    /// The conversation [default: the swarm's `instanceKey`, or `main`]
    #[arg(value_name = "KEY")]
    key: Option<InstanceKey>,
    /// Checkpoint, by id or name [default: the newest intact one not created by a rewind]
    #[arg(long, value_name = "CHECKPOINT")]
    to: Option<String>,
    /// Only show what would change
    #[arg(long, conflicts_with = "cancel")]
    dry_run: bool,
    /// Cancel a turn in progress first, like `gdn conversation cancel`
    #[arg(long)]
    cancel: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
}

pub(crate) async fn make(args: InstanceCheckpointArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let checkpoint = CheckpointInstance {
        instance_key: workspace.conversation(args.key),
        workspace_id: workspace.workspace_id,
        name: args.name,
    };
    let made = client.change(checkpoint).await?;
    let output = context.output;
    output.object(schemas::INSTANCE_CHECKPOINT, &made)?;
    let messages = made.pinned.as_ref().map_or(0, |pinned| pinned.messages);
    output.data(format!(
        "{}: {}, {}",
        made.checkpoint_id,
        text::count(messages, "message"),
        text::bytes(made.snapshot_size)
    ))
}

/// Lists the checkpoints of a conversation, or rolls it back to one.
pub(super) async fn in_chat(
    key: InstanceKey,
    to: Option<String>,
    context: &Context,
) -> Result<(), Failure> {
    let key = Some(key);
    if to.is_none() {
        return list(InstanceCheckpointsArgs { key }, context).await;
    }
    let args = RewindArgs {
        key,
        to,
        dry_run: false,
        cancel: false,
        yes: false,
    };
    run(args, context).await
}

pub(crate) async fn list(args: InstanceCheckpointsArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let list = ListInstanceCheckpoints {
        instance_key: workspace.conversation(args.key),
        workspace_id: workspace.workspace_id,
        after: None,
        limit: None,
    };
    let checkpoints = client.all(list).await?;
    let output = context.output;
    output.object(
        schemas::INSTANCE_CHECKPOINTS,
        &json!({ "checkpoints": checkpoints }),
    )?;
    if checkpoints.is_empty() {
        let hint = context.command("conversation checkpoint");
        return output.data(format!("No checkpoints yet. Create one: {hint}"));
    }
    output.data(table_of(&checkpoints, text::now()).render(output.canvas()))
}

fn table_of(checkpoints: &[InstanceCheckpoint], now: Timestamp) -> Table {
    let listed = checkpoints.iter().map(|one| CheckpointRow {
        id: &one.checkpoint_id,
        why: match one.kind.as_str() {
            "pre_restore" => "before a rewind".to_owned(),
            kind => kind.to_owned(),
        },
        amount: one
            .pinned
            .as_ref()
            .map_or_else(String::new, |pinned| pinned.messages.to_string()),
        size_bytes: one.snapshot_size,
        made_at: one.created_at,
        name: one.name.as_deref(),
        damaged: one.damaged.as_deref(),
    });
    checkpoints::table_of(("MESSAGES", "messages"), listed.collect(), now)
}

pub(crate) async fn run(args: RewindArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let key = workspace.conversation(args.key);
    let rewind = |dry_run, checkpoint_id| RewindInstance {
        workspace_id: workspace.workspace_id.clone(),
        instance_key: key.clone(),
        checkpoint_id,
        dry_run,
        cancel: args.cancel,
    };
    let output = context.output;
    let named = shell_quoted(key.as_str()).unwrap_or_else(|| "KEY".to_owned());
    let mut wanted = args.to;
    if args.cancel && !args.yes {
        // While the turn is in progress, its changes are not known yet.
        let to = wanted.as_deref().unwrap_or("the newest checkpoint");
        let shown = text::one_line(key.as_str());
        let question = format!("Cancel the turn of {shown} and roll it back to {to}?");
        let to = wanted.as_ref().map(|id| format!(" --to {id}"));
        let command = format!(
            "conversation rewind {named}{} --cancel --yes",
            to.unwrap_or_default()
        );
        confirm(context, &question, &command)?;
    } else if !args.yes || args.dry_run {
        let would = client.change(rewind(true, wanted.clone())).await?;
        if args.dry_run {
            output.object(schemas::REWIND, &would)?;
            return output.data(changes_of(&would, output.out));
        }
        output.note(changes_of(&would, output.err));
        let id = &would.checkpoint_id;
        let shown = text::one_line(key.as_str());
        let question = format!("Roll {shown} and its files back to {id}?");
        confirm(
            context,
            &question,
            &format!("conversation rewind {named} --to {id} --yes"),
        )?;
        // Roll back to exactly the checkpoint that was shown.
        wanted = Some(would.checkpoint_id);
    }
    let rewound = client.change(rewind(false, wanted)).await?;
    output.object(schemas::REWIND, &rewound)?;
    output.data(changes_of(&rewound, output.out))?;
    if let Some(kept) = &rewound.pre_rewind {
        let back = context.command(&format!("conversation rewind {named} --to {kept}"));
        output.note(format!("To undo this: {back}"));
    }
    Ok(())
}

/// Role and beginning of a message; a message of tool results has no text.
fn said_by(message: &RewoundMessage) -> String {
    let role = text::one_line(&message.role);
    match text::one_line(&message.head) {
        head if head.is_empty() => role,
        head => format!("{role}: {head}"),
    }
}

/// Changes made by a rewind, or by its dry run.
fn changes_of(rewound: &InstanceRewound, palette: Palette) -> String {
    let mut out = format!("{}\n", rewound.checkpoint_id);
    for skipped in &rewound.skipped {
        let damaged = skipped.damaged.as_deref();
        push_skipped(&mut out, &skipped.checkpoint_id, damaged, palette);
    }
    if !rewound.is_changed {
        out.push_str("  no differences\n");
        return out;
    }
    let (gone, back) = (rewound.messages_removed, rewound.messages_restored);
    let stay = rewound.pinned.messages;
    out.push_str(&format!(
        "  Messages: {gone} removed, {back} restored, {stay} unchanged\n"
    ));
    for message in &rewound.removed_messages {
        let mark = palette.paint(style::BAD, "-");
        out.push_str(&format!("  {mark} {}\n", said_by(message)));
    }
    let untold = gone.saturating_sub(rewound.removed_messages.len() as u64);
    if untold > 0 {
        out.push_str(&format!(
            "  … and {}\n",
            text::count(untold, "more message")
        ));
    }
    let files = (&*rewound.added, &*rewound.changed, &*rewound.removed);
    push_files(&mut out, files, palette);
    for name in &rewound.extensions {
        let mark = palette.paint(style::WARN, "~");
        let name = text::one_line(name);
        out.push_str(&format!("  {mark} state of extension {name}\n"));
    }
    if rewound.configuration.is_some() {
        let line =
            "  The configuration differs from the one at the checkpoint. It stays unchanged.";
        out.push_str(&format!("{}\n", palette.paint(style::WARN, line)));
    }
    let spent = rewound.spent_since;
    if !spent.is_nothing() {
        out.push_str(&format!(
            "  Spent since then, not refunded: {} and {}\n",
            text::count(spent.tokens, "token"),
            spent.micro_usd
        ));
    }
    for what in &rewound.not_rewound {
        out.push_str(&format!("  Not rolled back: {}\n", text::one_line(what)));
    }
    out
}

/// Describes a rewind in one line.
pub(super) fn rewind_in_words(rewind: &RewindRecord) -> String {
    format!(
        "to {}, {}: from {} to {}; previous state: {}",
        text::one_line(&rewind.checkpoint_id),
        text::clock(rewind.at),
        text::count(rewind.messages_before, "message"),
        rewind.messages_after,
        text::one_line(&rewind.pre_rewind)
    )
}
