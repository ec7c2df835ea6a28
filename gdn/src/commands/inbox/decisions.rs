//! Decides items of the inbox.

use goondan_protocol::JsonObject;
use goondan_protocol::approval::{ApprovalDecision, ApprovalScope};
use goondan_protocol::control::{
    AnswerQuestion, AnswerTask, ApplyProposal, ApproveChangeset, ApproveTask, DecideApproval,
    DeclineQuestion, DropEvent, RejectChangeset, RejectProposal, RetryEvent, ReworkTask,
    SettleCall,
};
use serde_json::Value;

use super::details::Subject;
use super::items::{InboxItem, Target};
use crate::client::Client;
use crate::commands::approval::{FIRST_OF_TWO, scope_words};
use crate::commands::permission;
use crate::context::Context;
use crate::failure::Failure;

/// A decision that a key makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::commands) enum Choice {
    /// Approve, apply, allow, retry or settle it.
    Yes,
    /// Deny, reject, decline or drop it.
    No,
    /// Answer it with fields or a text.
    Answer,
    /// Request changes.
    Rework,
    /// Approve the call with changed arguments.
    Edit,
    /// Approve the call, and the same call from now on.
    Always,
}

/// A key, its decision, and its name.
pub(in crate::commands) type Key = (char, Choice, &'static str);

/// Text that a person enters with a decision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::commands) struct EnteredText {
    /// Reason, note or answer; may be empty.
    pub(in crate::commands) text: String,
    /// Fields of a form.
    pub(in crate::commands) fields: JsonObject,
    /// Changed arguments of a call.
    pub(in crate::commands) input: Option<Value>,
    /// Scope of a standing approval.
    pub(in crate::commands) always: Option<ApprovalScope>,
}

/// Keys that decide an item; none if it is decided elsewhere.
pub(in crate::commands) fn keys(item: &InboxItem, subject: &Subject) -> &'static [Key] {
    match &item.target {
        Target::Approval(_) => &[
            ('y', Choice::Yes, "approve"),
            ('n', Choice::No, "deny"),
            ('e', Choice::Edit, "edit"),
            ('a', Choice::Always, "always"),
        ],
        Target::Question(_) => &[
            ('a', Choice::Answer, "answer"),
            ('n', Choice::No, "decline"),
        ],
        Target::Proposal(_) => &[('y', Choice::Yes, "apply"), ('n', Choice::No, "reject")],
        Target::Changeset(..) => &[('y', Choice::Yes, "approve"), ('n', Choice::No, "reject")],
        Target::UnknownCall(..) => &[('y', Choice::Yes, "settle")],
        Target::ParkedEvent(..) => &[('y', Choice::Yes, "retry"), ('n', Choice::No, "drop")],
        Target::Permission(_) => &[('y', Choice::Yes, "allow"), ('n', Choice::No, "deny")],
        Target::Task(_) => match subject {
            Subject::Task(detail) if detail.review.is_some() => &[
                ('y', Choice::Yes, "approve"),
                ('n', Choice::Rework, "request changes"),
            ],
            Subject::Task(detail) if answerable(detail).is_some() => {
                &[('a', Choice::Answer, "answer")]
            }
            Subject::Task(_)
            | Subject::Other
            | Subject::Call(_)
            | Subject::Form(_)
            | Subject::Proposal(_) => &[],
        },
        Target::Elsewhere => &[],
    }
}

/// First question or permission of a task. Secrets and other dependencies are entered with their own command.
pub(in crate::commands) fn answerable(
    detail: &goondan_protocol::control::TaskDetail,
) -> Option<&goondan_protocol::control::TaskAsk> {
    use goondan_protocol::control::TaskAskKind;
    let mut asks = detail.asks.iter();
    asks.find(|ask| matches!(ask.kind, TaskAskKind::Question | TaskAskKind::Permission))
}

/// Carries out a decision and returns a sentence about it. The daemon accepts only the first decision about an item.
pub(in crate::commands) async fn decide(
    client: &mut Client,
    item: &InboxItem,
    subject: &Subject,
    choice: Choice,
    entered: EnteredText,
    context: &Context,
) -> Result<String, Failure> {
    let workspace_id = item.workspace_id.clone();
    let is_yes = choice == Choice::Yes;
    let EnteredText {
        text,
        fields,
        input,
        always,
    } = entered;
    let reason = Some(text.clone()).filter(|text| !text.trim().is_empty());
    let id = &item.id;
    Ok(match &item.target {
        Target::Approval(approval_id) => {
            let decision = match choice {
                Choice::Yes | Choice::Edit | Choice::Always => ApprovalDecision::Approved,
                Choice::No | Choice::Answer | Choice::Rework => ApprovalDecision::Denied,
            };
            let decide = DecideApproval {
                workspace_id,
                approval_id: approval_id.clone(),
                decision,
                reason,
                input,
                always,
            };
            let decided = client.change(decide).await?;
            let word = match decided.decision {
                ApprovalDecision::Approved => "Approved",
                ApprovalDecision::Denied => "Denied",
            };
            if decided.needs_another {
                return Ok(format!("{word} {id}. {FIRST_OF_TWO}."));
            }
            match (decided.is_changed, decided.always) {
                (true, _) => format!("{word} {id} with changed arguments."),
                (false, Some(scope)) => format!(
                    "{word} {id}, and the same call in {} from now on. Revoke that: {}",
                    scope_words(scope),
                    context.daemon_command(&format!(
                        "--workspace {} inbox revoke {id}",
                        item.workspace_id
                    )),
                ),
                (false, None) => format!("{word} {id}."),
            }
        }
        Target::Question(question_id) => {
            let question_id = question_id.clone();
            if choice == Choice::Answer {
                let answer = AnswerQuestion {
                    workspace_id,
                    question_id,
                    content: fields,
                };
                client.change(answer).await?;
                format!("Answered {id}.")
            } else {
                let decline = DeclineQuestion {
                    workspace_id,
                    question_id,
                };
                client.change(decline).await?;
                format!("Declined {id}.")
            }
        }
        Target::Proposal(at) if is_yes => {
            let digest = match subject {
                Subject::Proposal(digest) => Some(digest.clone()),
                Subject::Other | Subject::Call(_) | Subject::Form(_) | Subject::Task(_) => None,
            };
            let apply = ApplyProposal {
                at: at.clone(),
                workspace_id,
                digest,
                allow_moved_base: false,
            };
            client.change(apply).await?;
            format!("Applied {id}.")
        }
        Target::Proposal(at) => {
            let reject = RejectProposal {
                at: at.clone(),
                workspace_id,
                reason: text,
            };
            client.change(reject).await?;
            format!("Rejected {id}.")
        }
        Target::Changeset(instance_key, changeset_id) => {
            let instance_key = instance_key.clone();
            let changeset_id = changeset_id.clone();
            let info = if is_yes {
                let approve = ApproveChangeset {
                    instance_key,
                    workspace_id,
                    changeset_id,
                    reason: text,
                };
                client.change(approve).await?
            } else {
                let reject = RejectChangeset {
                    instance_key,
                    workspace_id,
                    changeset_id,
                    reason: text,
                };
                client.change(reject).await?
            };
            format!("Changeset {id} is {}.", info.state.as_str())
        }
        Target::UnknownCall(instance_key, tool_call_id) => {
            let settle = SettleCall {
                workspace_id,
                instance_key: instance_key.clone(),
                tool_call_id: tool_call_id.clone(),
                note: reason,
            };
            client.change(settle).await?;
            format!("Settled {id}.")
        }
        Target::ParkedEvent(instance_key, event_id) if is_yes => {
            let retry = RetryEvent {
                workspace_id,
                instance_key: instance_key.clone(),
                event_id: event_id.clone(),
            };
            client.change(retry).await?;
            format!("Event {id} is queued again.")
        }
        Target::ParkedEvent(instance_key, event_id) => {
            let drop = DropEvent {
                workspace_id,
                instance_key: instance_key.clone(),
                event_id: event_id.clone(),
            };
            client.change(drop).await?;
            format!("Dropped event {id}.")
        }
        Target::Permission(permission) => {
            let there = context.of_workspace(&item.workspace_id);
            let decided = permission::carry_out(*permission, is_yes, &there).await?;
            permission::decided_text(&decided)
        }
        Target::Task(task_id) => {
            let task_id = task_id.clone();
            let (review, ask) = match subject {
                Subject::Task(detail) => (detail.review, answerable(detail)),
                Subject::Other | Subject::Call(_) | Subject::Form(_) | Subject::Proposal(_) => {
                    (None, None)
                }
            };
            match choice {
                Choice::Yes => {
                    let approve = ApproveTask {
                        task_id,
                        workspace_id,
                        phase: review,
                        without_delivery: false,
                        allow_moved_base: false,
                    };
                    client.change(approve).await?;
                    format!("Approved the phase of {id}.")
                }
                Choice::Rework => {
                    let rework = ReworkTask {
                        task_id,
                        workspace_id,
                        phase: review,
                        text,
                    };
                    client.change(rework).await?;
                    format!("Requested changes of {id}.")
                }
                Choice::Answer | Choice::No | Choice::Edit | Choice::Always => {
                    let answer = AnswerTask {
                        task_id,
                        workspace_id,
                        id: ask.map(|ask| ask.id.clone()),
                        text,
                    };
                    client.change(answer).await?;
                    format!("Answered {id}.")
                }
            }
        }
        Target::Elsewhere => format!("{id} is decided elsewhere."),
    })
}
