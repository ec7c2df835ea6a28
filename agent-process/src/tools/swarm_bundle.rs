//! The tool `swarm-bundle`: an agent changes the configuration of its own conversation
//! (`BUNDLE-8`).
//!
//! The daemon checks and applies changes. A call repeated after a crash is the same call and
//! changes nothing twice.

use goondan_protocol::agents::AgentQuestion;
use goondan_protocol::bundle::{BundleAsk, CHANGESET_FILE_BYTES_MAX};
use goondan_protocol::ids::{ChangesetId, RevisionId};
use serde::Deserialize;
use serde_json::json;

use super::agents::export;
use super::export::Export;
use super::fault::ToolFault;
use super::invocation::ToolInvocation;

pub(crate) fn exports() -> Vec<Export> {
    let changeset = json!({"type": "string", "minLength": 1, "description": "The changeset; default: the one opened last"});
    vec![
        export(
            "open",
            "Starts a change of your own configuration, such as your prompt. Returns the changeset, its working copy and the files in it. Nothing takes effect before `commit`.",
            &json!({"revision": {"type": "string", "minLength": 1, "description": "The revision to begin with; default: the newest"}}),
            &[],
            |call| {
                #[derive(Deserialize)]
                struct Args {
                    #[serde(default)]
                    revision: Option<RevisionId>,
                }
                let Args { revision } = call.args()?;
                Ok(asking(BundleAsk::Open { revision }))
            },
        ),
        export(
            "write",
            "Writes a file of the working copy, whole. Without `content` the file is removed.",
            &json!({
                "changeset": changeset,
                "path": {"type": "string", "minLength": 1, "description": "The file, as `open` names it, or a new one"},
                "content": {"type": "string", "maxLength": CHANGESET_FILE_BYTES_MAX, "description": "Its new text"},
            }),
            &["path"],
            |call| {
                #[derive(Deserialize)]
                struct Args {
                    #[serde(default)]
                    changeset: Option<ChangesetId>,
                    path: String,
                    #[serde(default)]
                    content: Option<String>,
                }
                let args: Args = call.args()?;
                Ok(asking(BundleAsk::Write {
                    changeset_id: args.changeset,
                    path: args.path,
                    content: args.content,
                }))
            },
        ),
        export(
            "diff",
            "Shows what a changeset changes.",
            &json!({"changeset": changeset}),
            &[],
            |call| {
                Ok(asking(BundleAsk::Diff {
                    changeset_id: named(call)?,
                }))
            },
        ),
        export(
            "commit",
            "Validates a changeset: it may change only what you are permitted to change, and the whole configuration must load. It then takes effect from your next step on, on probation, or waits for a person. It is rolled back if you fail with it.",
            &json!({
                "changeset": changeset,
                "message": {"type": "string", "minLength": 1, "description": "Purpose of the change"},
            }),
            &["message"],
            |call| {
                #[derive(Deserialize)]
                struct Args {
                    message: String,
                }
                let Args { message } = call.args()?;
                Ok(asking(BundleAsk::Commit {
                    changeset_id: named(call)?,
                    message,
                }))
            },
        ),
        export(
            "status",
            "Returns the active revision of your configuration and the results of your changesets.",
            &json!({}),
            &[],
            |_| Ok(asking(BundleAsk::Status {})),
        ),
        export(
            "revert",
            "Goes back to the last revision that proved itself, from your next step on; or, if that is active, to the project as a person wrote it.",
            &json!({"reason": {"type": "string", "minLength": 1, "description": "Why"}}),
            &["reason"],
            |call| {
                #[derive(Deserialize)]
                struct Args {
                    reason: String,
                }
                let Args { reason } = call.args()?;
                Ok(asking(BundleAsk::Revert { reason }))
            },
        ),
    ]
}

fn asking(ask: BundleAsk) -> AgentQuestion {
    AgentQuestion::Bundle { ask }
}

fn named(call: &ToolInvocation) -> Result<Option<ChangesetId>, ToolFault> {
    #[derive(Deserialize)]
    struct Args {
        #[serde(default)]
        changeset: Option<ChangesetId>,
    }
    let Args { changeset } = call.args()?;
    Ok(changeset)
}
