//! Finds the differences between the new side and the current one.

use goondan_protocol::definition::AgentDefinition;
use goondan_protocol::observe::detail_of;
use goondan_protocol::rehearsal::{Finding, FindingKind, Part, RehearsedStep, RehearsedTurn};

use super::Side;
use super::playback::{self, Call, End, Fate, Request};
use super::recorded_turns::RecordedTurn;

/// Maximum number of findings per turn; a turn has few unless nothing matches.
const FINDINGS_MAX: usize = 32;

/// Compares how two sides played a turn.
pub(super) fn compare<T>(
    (before, was): (&Side<'_, T>, &playback::Part),
    (after, is): (&Side<'_, T>, &playback::Part),
    turn: &RecordedTurn<'_>,
) -> RehearsedTurn {
    let constant = constant_parts(before.agent, after.agent);
    let steps = is.requests.iter().map(|request| {
        let mut requests = was.requests.iter();
        let other = requests.find(|it| it.step == request.step);
        RehearsedStep {
            step: request.step,
            differs: differs(&constant, other, request),
        }
    });
    let mut findings = calls_differ(was, is);
    findings.extend(end_differs(&was.end, &is.end));
    findings.truncate(FINDINGS_MAX);
    let stopped = match &is.end {
        End::Lacks(what) => Some(what.clone()),
        End::Unplayable => Some("failed to replay the recording".to_owned()),
        End::Replied(_) | End::Failed { .. } | End::GoesOn(_) => None,
    };
    RehearsedTurn {
        turn_id: turn.id.clone(),
        at: turn.first.created_at.clone(),
        input: detail_of(&turn.first.data.content.to_text()),
        steps: steps.collect(),
        findings,
        stopped,
    }
}

/// Differences that affect every request, regardless of its messages.
fn constant_parts(before: &AgentDefinition, after: &AgentDefinition) -> Vec<Part> {
    let mut parts = Vec::new();
    if before.system_prompt != after.system_prompt {
        parts.push(Part::Prompt);
    }
    if before.model != after.model {
        parts.push(Part::Model);
    }
    parts
}

fn differs(constant: &[Part], was: Option<&Request>, is: &Request) -> Vec<Part> {
    let mut parts = constant.to_vec();
    // A call that the current side would not have made is reported as a turn that ends at another
    // point.
    if let Some(was) = was {
        if was.offered != is.offered {
            parts.push(Part::Tools);
        }
        if was.messages != is.messages {
            parts.push(Part::Messages);
        }
    }
    parts
}

fn calls_differ(was: &playback::Part, is: &playback::Part) -> Vec<Finding> {
    let mut calls: Vec<_> = is.calls.iter().collect();
    calls.sort_by_key(|(_, call)| call.step);
    let found = calls.into_iter().filter_map(|(id, call)| {
        // If only the new side reached the call, the recorded call ran once.
        let before = was.calls.get(id).map_or(&Fate::Runs, |call| &call.fate);
        let (what, detail, breaks) = fate_differs(before, call)?;
        Some(Finding {
            what,
            step: call.step,
            tool_call_id: Some(id.clone()),
            tool_name: Some(call.tool_name.clone()),
            detail: detail_of(&detail),
            breaks,
        })
    });
    found.collect()
}

fn fate_differs(before: &Fate, call: &Call) -> Option<(FindingKind, String, bool)> {
    match (before, &call.fate) {
        (Fate::Refused(_), Fate::Refused(_))
        | (Fate::Runs, Fate::Runs)
        | (Fate::Asks, Fate::Asks) => None,
        (Fate::Runs | Fate::Asks, Fate::Refused(why)) => {
            Some((FindingKind::CallRefused, why.clone(), true))
        }
        (Fate::Refused(why), Fate::Runs | Fate::Asks) => {
            let detail = format!("with the active revision: {why}");
            Some((FindingKind::CallTaken, detail, false))
        }
        (Fate::Runs, Fate::Asks) => {
            let detail = "a person is asked first".to_owned();
            Some((FindingKind::Approval, detail, false))
        }
        (Fate::Asks, Fate::Runs) => {
            let detail = "a person is no longer asked".to_owned();
            Some((FindingKind::Approval, detail, false))
        }
    }
}

fn end_differs(was: &End, is: &End) -> Option<Finding> {
    if was == is {
        return None;
    }
    let finding = |what, step, detail: String, breaks| Finding {
        what,
        step,
        tool_call_id: None,
        tool_name: None,
        detail,
        breaks,
    };
    match is {
        End::Failed { step, why } => {
            let worked = !matches!(was, End::Failed { .. });
            let detail = detail_of(why);
            Some(finding(FindingKind::TurnFails, *step, detail, worked))
        }
        End::GoesOn(step) => {
            let detail = "the model is asked again; the recording ends here".to_owned();
            Some(finding(FindingKind::TurnEnds, *step, detail, false))
        }
        End::Replied(step) => {
            let detail = "the turn ends here".to_owned();
            Some(finding(FindingKind::TurnEnds, *step, detail, false))
        }
        End::Lacks(_) | End::Unplayable => None,
    }
}
