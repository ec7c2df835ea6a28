//! The tool `proposal`: an agent submits the changes in its sandbox (`PROP-1`, `PROP-6`).
//!
//! A person applies a proposal, or an agent with the tool `proposal-review` and a policy for it.

use goondan_protocol::agents::{AgentAnswer, AgentProposal, AgentQuestion};
use goondan_protocol::handoff::{
    ChangedFile, HANDOFF_TEXT_BYTES_MAX, Handoff, HandoffField, HandoffPath, HandoffProblem, List,
    Paragraph, TextLine,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::agents::{answer_to, export};
use super::answers::to_tool_outcome;
use super::export::Export;
use super::fault::ToolFault;
use super::invocation::ToolInvocation;
use super::sandbox::agent_of;
use crate::tool_call::ToolOutcome;

/// Next step of a proposal if its author gives none.
const USUAL_NEXT: &str = "review and apply, or request changes";

pub(crate) fn exports() -> Vec<Export> {
    vec![
        Export {
            run: Box::new(|_, call| {
                Box::pin(async move { submit(&call).await.unwrap_or_else(ToolOutcome::from) })
            }),
            ..export(
                "submit",
                "Submits the changes in your sandbox as a proposal for a person to review and apply. Returns the HANDOFF for the agent or person who gave you the work. A repeated call replaces a proposal that has not been applied.",
                &submit_parameters(),
                &["goal"],
                // The question is derived from the same arguments as the handoff.
                |call| Ok(call.args::<SubmitArgs>()?.question()),
            )
        },
        Export {
            run: Box::new(|_, call| {
                Box::pin(async move { status(&call).await.unwrap_or_else(ToolOutcome::from) })
            }),
            ..export(
                "status",
                "Returns the state of your proposal (open, applied, rejected or reverted) with its review comments. An agent that prepares sandboxes can query those of other agents, and compare a HANDOFF with the proposal.",
                &json!({
                    "agent": {"type": "string", "minLength": 1, "description": "The agent whose proposal to show; default: your own"},
                    "handoff": {
                        "type": "string", "maxLength": HANDOFF_TEXT_BYTES_MAX,
                        "description": "The HANDOFF that the agent gave you, to be compared with its proposal",
                    },
                }),
                &[],
                |call| {
                    Ok(AgentQuestion::ShowProposal {
                        agent: agent_of(call)?,
                    })
                },
            )
        },
    ]
}

fn submit_parameters() -> Value {
    let text = |what: &str| json!({"type": "string", "description": what});
    let list = |what: &str| json!({"type": "array", "maxItems": 100, "items": {"type": "string"}, "description": what});
    json!({
        "goal": text("The task"),
        "context": text("Facts known at the start"),
        "dod": text("Acceptance criteria"),
        "tests": list("Tests you ran, with their results; one line each"),
        "next": list("Next steps; one line each"),
        "summary": text("Your changes and the reasons, as Markdown, for the reviewer; default: `summary.md` of your `proposal` directory"),
        "testLog": text("Test output; default: `test.log` of your `proposal` directory"),
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SubmitArgs {
    goal: String,
    #[serde(default)]
    context: String,
    #[serde(default)]
    dod: String,
    #[serde(default)]
    tests: Vec<String>,
    #[serde(default)]
    next: Vec<String>,
    #[serde(default)]
    summary: Option<String>,
    #[serde(default)]
    test_log: Option<String>,
}

impl SubmitArgs {
    fn question(&self) -> AgentQuestion {
        AgentQuestion::SubmitProposal {
            summary: self.summary.clone(),
            test_log: self.test_log.clone(),
        }
    }

    /// The parts of the handoff that the agent supplies.
    fn proposal_text(&self) -> Result<ProposalText, ToolFault> {
        let lines = |field, lines: &[String]| {
            let lines = lines
                .iter()
                .map(|line| TextLine::new(line))
                .collect::<Result<_, _>>();
            lines
                .and_then(List::new)
                .map_err(|problem| misfit(field, &problem))
        };
        let paragraph =
            |field, text: &str| Paragraph::new(text).map_err(|problem| misfit(field, &problem));
        Ok(ProposalText {
            context: paragraph(HandoffField::Context, &self.context)?,
            goal: paragraph(HandoffField::Goal, &self.goal)?,
            dod: paragraph(HandoffField::Dod, &self.dod)?,
            tests: lines(HandoffField::Tests, &self.tests)?,
            next: if self.next.is_empty() {
                lines(HandoffField::Next, &[USUAL_NEXT.to_owned()])?
            } else {
                lines(HandoffField::Next, &self.next)?
            },
        })
    }
}

fn misfit(field: HandoffField, problem: &HandoffProblem) -> ToolFault {
    ToolFault::new(
        "E_TOOL_INVALID_ARGS",
        format!("invalid `{field}`: {problem}"),
    )
}

struct ProposalText {
    context: Paragraph,
    goal: Paragraph,
    dod: Paragraph,
    tests: List<TextLine>,
    next: List<TextLine>,
}

async fn submit(call: &ToolInvocation) -> Result<ToolOutcome, ToolFault> {
    let args: SubmitArgs = call.args()?;
    let said = args.proposal_text()?;
    match answer_to(call, args.question()).await? {
        AgentAnswer::Proposal { proposal } => {
            let handoff = handoff_of(said, &proposal)?;
            let mut text = format!("{handoff}\n");
            if proposal.more_changed > 0 {
                let more = proposal.more_changed;
                text.push_str(&format!(
                    "\n{more} more changed files are in the proposal.\n"
                ));
            }
            Ok(ToolOutcome::ok(text))
        }
        other => to_tool_outcome(other),
    }
}

fn handoff_of(said: ProposalText, proposal: &AgentProposal) -> Result<Handoff, ToolFault> {
    let path = |field, path: std::path::PathBuf| {
        HandoffPath::new(&path.display().to_string()).map_err(|problem| misfit(field, &problem))
    };
    let changed = proposal
        .changed
        .iter()
        .map(|file| ChangedFile::new(&file.path));
    let changed_files = changed
        .collect::<Result<_, _>>()
        .and_then(List::new)
        .map_err(|problem| misfit(HandoffField::ChangedFiles, &problem))?;
    Ok(Handoff {
        context: said.context,
        goal: said.goal,
        dod: said.dod,
        sandbox_work_dir: path(HandoffField::SandboxWorkDir, proposal.work_dir.clone())?,
        proposal_json: path(HandoffField::ProposalJson, proposal_json(proposal))?,
        changed_files,
        tests: said.tests,
        next: said.next,
    })
}

fn proposal_json(proposal: &AgentProposal) -> std::path::PathBuf {
    proposal.proposal_dir.join("proposal.json")
}

async fn status(call: &ToolInvocation) -> Result<ToolOutcome, ToolFault> {
    #[derive(Deserialize)]
    struct StatusArgs {
        #[serde(default)]
        handoff: Option<String>,
    }
    let StatusArgs { handoff } = call.args()?;
    let handoff: Option<Handoff> = match handoff.as_deref().map(str::parse).transpose() {
        Ok(handoff) => handoff,
        Err(error) => {
            let error: goondan_protocol::handoff::HandoffError = error;
            return Err(ToolFault::new("E_INVALID_HANDOFF", error.to_string()));
        }
    };
    let agent = agent_of(call)?;
    let answer = answer_to(call, AgentQuestion::ShowProposal { agent }).await?;
    let compared = match (&handoff, &answer) {
        (Some(handoff), AgentAnswer::Proposal { proposal }) => Some(compared(handoff, proposal)),
        _ => None,
    };
    let mut outcome = to_tool_outcome(answer)?;
    if let Some(compared) = compared {
        outcome.text = format!("{}\n{compared}", outcome.text);
    }
    Ok(outcome)
}

/// Describes the mismatches between a handoff and its proposal.
fn compared(handoff: &Handoff, proposal: &AgentProposal) -> String {
    let kept = proposal_json(proposal);
    if std::path::Path::new(&*handoff.proposal_json) != kept {
        return format!(
            "the HANDOFF names another proposal: {} instead of {}",
            &*handoff.proposal_json,
            kept.display()
        );
    }
    if std::path::Path::new(&*handoff.sandbox_work_dir) != proposal.work_dir {
        return format!(
            "the HANDOFF names another work directory: {} instead of {}",
            &*handoff.sandbox_work_dir,
            proposal.work_dir.display()
        );
    }
    let is_changed = |path: &str| proposal.changed.iter().any(|file| file.path == path);
    let is_named = |path: &str| handoff.changed_files.iter().any(|file| &**file == path);
    let invented = handoff.changed_files.iter().map(|file| &**file);
    let invented = invented.filter(|path| !is_changed(path) && proposal.more_changed == 0);
    let unnamed = proposal.changed.iter().map(|file| file.path.as_str());
    let unnamed = unnamed.filter(|path| !is_named(path));
    let wrong: Vec<String> = invented
        .map(|path| format!("`{path}` is in the HANDOFF but not in the proposal"))
        .chain(unnamed.map(|path| format!("`{path}` is in the proposal but not in the HANDOFF")))
        .collect();
    if wrong.is_empty() {
        return "the HANDOFF matches the proposal".to_owned();
    }
    wrong.join("\n")
}

#[cfg(test)]
mod tests {
    use goondan_protocol::agents::ProposedFile;
    use goondan_protocol::control::{FileStatus, ProposalState};

    use super::*;

    fn proposal() -> AgentProposal {
        AgentProposal {
            run_id: "main-1f".parse().unwrap(),
            agent: "coder".parse().unwrap(),
            state: ProposalState::Open,
            digest: "00".to_owned(),
            work_dir: "/s/main-1f/coder/work".into(),
            proposal_dir: "/s/main-1f/coder/proposal".into(),
            changed: vec![ProposedFile {
                path: "a.txt".to_owned(),
                status: FileStatus::Modified,
            }],
            more_changed: 0,
            said: String::new(),
            comments: Vec::new(),
        }
    }

    #[test]
    fn prop_6_handoff_that_differs_from_its_proposal_is_reported() {
        let args: SubmitArgs =
            serde_json::from_value(json!({"goal": "fix", "tests": ["ok"]})).unwrap();
        let message = args.proposal_text().ok().unwrap();
        let handoff = handoff_of(message, &proposal()).ok().unwrap();
        let text = handoff.to_string();
        assert!(
            text.contains("ProposalJson: /s/main-1f/coder/proposal/proposal.json"),
            "{text}"
        );
        assert!(text.contains(USUAL_NEXT), "{text}");
        assert_eq!(
            compared(&handoff, &proposal()),
            "the HANDOFF matches the proposal"
        );
        let other: Handoff = text.replace("- a.txt", "- b.txt").parse().unwrap();
        let told = compared(&other, &proposal());
        assert!(
            told.contains("`b.txt` is in the HANDOFF") && told.contains("`a.txt`"),
            "{told}"
        );
        let other: Handoff = text.replace("/coder/work", "/other/work").parse().unwrap();
        assert!(compared(&other, &proposal()).contains("another work directory"));
        let other: Handoff = text.replace("/coder/", "/other/").parse().unwrap();
        assert!(compared(&other, &proposal()).contains("another proposal"));
    }
}
