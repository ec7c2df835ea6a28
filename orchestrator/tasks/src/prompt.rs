//! Prompts of runs.

use goondan_protocol::task::PlanStepState;

use crate::fact::{InputOutcome, Origin, Provision};
use crate::preamble::Preamble;
use crate::state::{HandOver, Note, PersonInputKind, State};

/// Prompt text after a run was lost.
const OUTCOME_UNKNOWN: &str = "Your last run ended without a result. Check the current state \
    before you repeat anything, and ask unanswered questions again.";

/// Prompt text after the program lost its session.
const SESSION_LOST: &str = "Work on this has started, in a session that no longer exists. Check \
    the contents of this directory and continue from there.";

/// Prompt text for an agent without memory of earlier work.
const BEGUN: &str = "Work on this has started, but you do not remember it. Check the contents of \
    this directory and continue from there.";

/// Indentation of quoted text, because a tag of a block counts only at the start of a line.
const QUOTED: &str = "    ";

/// Prompt of the next run. A resumed session receives the changes since its last run; any other
/// receives the whole task (`AGENT-3`): description, answers, provided dependencies, approved
/// phases, requested rework, and messages.
pub(crate) fn prompt_of(state: &State, preamble: &Preamble, is_resumed: bool) -> String {
    let mut prompt = String::new();
    let is_retold = !is_resumed && state.has_begun;
    if !is_resumed {
        prompt.push_str(&state.task.description);
        prompt.push('\n');
        let task = &state.task;
        prompt.push_str(&preamble.text(task.total_phases, !task.source.is_none()));
    }
    if is_retold {
        prompt.push_str(&progress_so_far(state));
    }
    let settled = if is_retold {
        settled_before(state)
    } else {
        Vec::new()
    };
    for note in settled.iter().chain(&state.notes) {
        if let Some(text) = note_text(state, note) {
            prompt.push_str(&text);
            prompt.push('\n');
        }
    }
    let (phase, phases) = (state.current_phase, state.task.total_phases);
    if phase > 0 {
        prompt.push_str(&format!("You are in phase {phase} of {phases}.\n"));
    } else if prompt.is_empty() {
        prompt.push_str("Go on.\n");
    }
    prompt
}

/// Progress of the task, for an agent without memory of it.
fn progress_so_far(state: &State) -> String {
    let mut text = match &state.hand_over {
        _ if state.is_session_lost => format!("{SESSION_LOST}\n"),
        None => format!("{BEGUN}\n"),
        Some(before) => format!(
            "Another agent, `{}`, worked on this until it reached its usage limit. You continue \
             its work. Check the contents of this directory and continue from there.\n",
            before.from
        ),
    };
    if state.current_phase > 1 {
        let approved = state.current_phase - 1;
        text.push_str(&format!("Phases approved so far: {approved}.\n"));
    }
    if !state.documents.is_empty() {
        text.push_str("Documents so far:\n");
        for document in &state.documents {
            text.push_str(&format!("- {document}\n"));
        }
    }
    if let Some(before) = &state.hand_over {
        text.push_str(&work_before(state, before));
    }
    text
}

/// Work of the agent before, for the agent that continues it (`AGENT-8`).
fn work_before(state: &State, before: &HandOver) -> String {
    let mut text = String::new();
    if !state.changed_files.is_empty() {
        text.push_str("Files changed so far:\n");
        for file in &state.changed_files {
            text.push_str(&format!("- {file}\n"));
        }
    }
    if !state.plan.is_empty() {
        text.push_str("The plan so far:\n");
        for step in &state.plan {
            let done = match step.state {
                PlanStepState::Completed => "done",
                PlanStepState::InProgress => "in progress",
                PlanStepState::Pending => "pending",
            };
            text.push_str(&format!("- {} ({done})\n", step.title));
        }
    }
    let said = [
        ("Its HANDOFF", state.handed_off.as_deref()),
        ("Its last message", Some(before.last_words.as_str())),
    ];
    for (what, said) in said {
        let said = said.filter(|said| !said.trim().is_empty());
        if let Some(said) = said {
            text.push_str(&format!("{what}:\n"));
            for line in said.lines() {
                text.push_str(&format!("{QUOTED}{line}\n"));
            }
        }
    }
    text
}

/// Notes of earlier runs that this run does not remember.
fn settled_before(state: &State) -> Vec<Note> {
    let is_agents = |id: &&String| {
        let ask = state.asks.get(*id).map(|ask| &ask.what);
        matches!(
            ask,
            Some(PersonInputKind::Dependency(..) | PersonInputKind::Question(Origin::Agent, ..))
        )
    };
    let asked = state.asks.keys().filter(is_agents);
    let asked = asked.map(|id| Note::Asked(id.clone()));
    let reworks = state.reworks.iter();
    let reworks = reworks.map(|(phase, text)| Note::Rework(*phase, text.clone()));
    let messages = state.messages.iter().cloned().map(Note::Message);
    let settled = asked.chain(reworks).chain(messages);
    settled.filter(|note| !state.notes.contains(note)).collect()
}

fn note_text(state: &State, note: &Note) -> Option<String> {
    Some(match note {
        Note::Asked(id) => match state.asks.get(id).map(|ask| &ask.what) {
            Some(PersonInputKind::Question(_, asked, Some(answer))) => {
                let answer = match answer {
                    InputOutcome::Person(text) | InputOutcome::TimedOut(Some(text)) => text,
                    InputOutcome::TimedOut(None) | InputOutcome::Withdrawn => {
                        "no answer; decide yourself"
                    }
                };
                format!("Answer {id} to \"{}\": {answer}", asked.question)
            }
            Some(PersonInputKind::Dependency(needed, Some(provision))) => {
                let name = &needed.name;
                match provision {
                    Provision::Secret(_) => {
                        format!("Provided {id}: `{name}` is in your environment.")
                    }
                    Provision::Ready(text) => format!("Provided {id}: `{name}`: {text}"),
                    Provision::TimedOut(Some(text)) => {
                        format!("Not provided {id}: for `{name}` use {text}")
                    }
                    Provision::TimedOut(None) => {
                        format!("Not provided {id}: continue without `{name}`.")
                    }
                }
            }
            _ => return None,
        },
        Note::Error(message, recovery) => {
            let recovery = recovery
                .as_deref()
                .unwrap_or("try again, or ask for what you need");
            format!("Your error \"{message}\": recover from it: {recovery}")
        }
        Note::Approved(phase) => format!("Phase {phase} is approved."),
        Note::Rework(phase, text) => format!("Phase {phase} is not approved: {text}"),
        Note::Message(text) => format!("Message from a person: {text}"),
        Note::Unverified(output) => {
            format!("The command that verifies your work failed. End of its output:\n{output}")
        }
        Note::OutcomeUnknown => OUTCOME_UNKNOWN.to_owned(),
        Note::Failed(why) => format!("Your last run failed: {why}"),
        Note::Moved(before) => format!(
            "This task ran on another machine until now, `{before}`. The files here may be older \
             or incomplete. Check them before you continue."
        ),
        Note::Interrupted => "Your last run was interrupted. Continue where it stopped.".to_owned(),
        Note::Restored(checkpoint) => format!(
            "The files here were restored to {checkpoint}; later changes are gone. Check the files \
             before you continue."
        ),
        Note::Refused(protocol, problem) => {
            format!("Your block {protocol} was refused: {problem}")
        }
    })
}
