//! The thing that a decision is about: the arguments of a call, a form, a patch, or what a task asks for.

use goondan_protocol::control::{
    ApprovalDetail, QuestionDetail, ShowApproval, ShowChangeset, ShowQuestion, ShowTask, TaskDetail,
};
use goondan_protocol::question::QuestionForm;
use serde_json::{Value, json};

use super::items::{InboxItem, Target};
use crate::client::Client;
use crate::commands::{approval, proposal, question};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::table::Canvas;
use crate::output::text;

/// The subject of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::commands) struct Details {
    /// For people, with control characters escaped.
    pub(in crate::commands) text: String,
    /// For programs.
    pub(in crate::commands) json: Value,
    pub(in crate::commands) subject: Subject,
}

/// Parts of the details that a decision needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::commands) enum Subject {
    Other,
    /// The tool call that waits.
    Call(Box<ApprovalDetail>),
    /// Fields of the answer.
    Form(QuestionForm),
    /// Digest of the proposal that was shown.
    Proposal(String),
    Task(Box<TaskDetail>),
}

/// Reads the details of an item.
pub(in crate::commands) async fn read(
    client: &mut Client,
    item: &InboxItem,
    canvas: Canvas,
    context: &Context,
) -> Result<Details, Failure> {
    let workspace_id = item.workspace_id.clone();
    Ok(match &item.target {
        Target::Approval(approval_id) => {
            let show = ShowApproval {
                workspace_id,
                approval_id: approval_id.clone(),
            };
            let detail = client.query(show).await?;
            let warning = match detail.approval.may_have_begun {
                true => "\nA process that ended may have started this call already.",
                false => "",
            };
            let tool = text::one_line(&detail.approval.tool_name);
            let approved = match detail.approval.needs_two {
                true => format!("\nApproved: {}", approval::approved_by(&detail.approval)),
                false => String::new(),
            };
            let arguments = approval::arguments(&detail.input);
            Details {
                text: format!("{tool}\n{arguments}{approved}{warning}"),
                json: json!({ "toolName": detail.approval.tool_name, "input": detail.input }),
                subject: Subject::Call(Box::new(detail)),
            }
        }
        Target::Question(question_id) => {
            let show = ShowQuestion {
                workspace_id,
                question_id: question_id.clone(),
            };
            let detail = client.query(show).await?;
            let json = json!(detail);
            let QuestionDetail { question, form } = detail;
            let mut shown = text::quoted(&question.message);
            if !form.fields().is_empty() {
                shown.push('\n');
                shown.push_str(&question::table_of_form(&form).render(canvas));
            }
            Details {
                text: shown,
                json,
                subject: Subject::Form(form),
            }
        }
        Target::Proposal(at) => {
            let (detail, patch) = proposal::read(client, &workspace_id, at).await?;
            Details {
                text: proposal::shown(&detail, &patch, canvas),
                json: json!({
                    "detail": detail,
                    "patch": String::from_utf8_lossy(&patch),
                }),
                subject: Subject::Proposal(detail.info.digest),
            }
        }
        Target::Changeset(instance_key, changeset_id) => {
            let show = ShowChangeset {
                instance_key: instance_key.clone(),
                workspace_id,
                changeset_id: changeset_id.clone(),
            };
            let shown = client.query(show).await?;
            Details {
                text: text::printable(&shown.diff),
                json: json!({ "diff": shown.diff }),
                subject: Subject::Other,
            }
        }
        Target::Task(task_id) => {
            let show = ShowTask {
                workspace_id,
                task_id: task_id.clone(),
            };
            let detail = client.query(show).await?;
            Details {
                text: task(&detail, item, context),
                json: json!(detail),
                subject: Subject::Task(Box::new(detail)),
            }
        }
        Target::UnknownCall(..)
        | Target::ParkedEvent(..)
        | Target::Permission(_)
        | Target::Elsewhere => Details {
            text: text::printable(&item.subject),
            json: json!({}),
            subject: Subject::Other,
        },
    })
}

/// The reason why a task waits: its questions, or the phase in review with its documents and files.
fn task(detail: &TaskDetail, item: &InboxItem, context: &Context) -> String {
    let id = &detail.info.task_id;
    let mut lines = Vec::new();
    for ask in &detail.asks {
        lines.push(text::quoted(&ask.text));
        if !ask.description.is_empty() {
            lines.push(text::quoted(&ask.description));
        }
        if !ask.options.is_empty() {
            let options: Vec<String> = ask.options.iter().map(|it| text::one_line(it)).collect();
            lines.push(format!("Answers: {}", options.join(", ")));
        }
        if let (Some(default), Some(until)) = (&ask.default, ask.until) {
            lines.push(format!(
                "Without an answer: {} at {}",
                text::one_line(default),
                text::clock(until)
            ));
        }
        let several = detail.asks.len() > 1;
        let command = ask.command(id, several);
        let command = format!("--workspace {} {command}", item.workspace_id);
        lines.push(format!("Answer it: {}", context.daemon_command(&command)));
    }
    if let Some(phase) = detail.review {
        let total = detail.info.total_phases;
        lines.push(format!("Phase {phase} of {total} is in review."));
        if let Some(problem) = &detail.proposal_problem {
            lines.push(text::quoted(problem));
        }
        for document in &detail.documents {
            lines.push(format!("Document: {}", text::one_line(document)));
        }
        if let Some(proposal) = &detail.proposal {
            for file in &proposal.files {
                lines.push(format!("Changed: {}", text::one_line(&file.path)));
            }
            if proposal.more_files > 0 {
                lines.push(format!(
                    "and {} more",
                    text::count(proposal.more_files, "file")
                ));
            }
        }
        for about in ["approve", "rework"] {
            let command = format!("--workspace {} task {about} {id}", item.workspace_id);
            lines.push(format!("{about}: {}", context.daemon_command(&command)));
        }
    }
    if lines.is_empty() {
        lines.push(text::printable(&item.subject));
    }
    lines.join("\n")
}
