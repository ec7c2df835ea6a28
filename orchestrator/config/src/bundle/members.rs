//! Members of the swarm and the entry agent.

use std::collections::BTreeSet;

use goondan_protocol::definition::SwarmView;
use goondan_protocol::ids::AgentName;

use super::older_connections::OlderConnections;
use crate::codes;
use crate::fields::LocatedValue;
use crate::kind::ResourceKind;
use crate::kinds::Resources;
use crate::kinds::swarm::{Policy, SwarmSpec};
use crate::reference::Reference;
use crate::report::{Problem, ProblemReport, SourceLocation};

/// The swarm's members, or all agents of a project without a Swarm.
pub(super) struct Membership {
    /// The Swarm's name for messages, if it exists.
    swarm: Option<String>,
    pub(super) members: BTreeSet<String>,
    /// True if all members were found. If false, the missing ones are unknown.
    complete: bool,
    pub(super) policy: Policy,
}

/// The project's Swarm; reports every additional one. A project of 0.0.3 may have several: the first
/// one runs.
pub(super) fn only_swarm<'r>(
    resources: &'r Resources,
    report: &mut ProblemReport,
) -> Option<&'r LocatedValue<SwarmSpec>> {
    let (first, further) = resources.swarms.split_first()?;
    if !resources.contract.is_own() {
        for swarm in further {
            note_idle(&swarm.value, first, swarm.place, resources, report);
        }
        return Some(first);
    }
    for swarm in further {
        let first = report.locate(first.place);
        report.add(
            Problem::new(
                codes::UNSUPPORTED,
                swarm.place,
                format!(
                    "Swarm `{}` is a second Swarm; a project can have only one; first at {first}",
                    swarm.value.name
                ),
            )
            .help("merge the two, or split the project"),
        );
    }
    Some(first)
}

/// Reports a Swarm that does not run, as a note. Its references count as uses.
fn note_idle(
    swarm: &SwarmSpec,
    first: &LocatedValue<SwarmSpec>,
    place: SourceLocation,
    resources: &Resources,
    report: &mut ProblemReport,
) {
    let mut unheeded = ProblemReport::default();
    let agents = swarm.agents.iter().flatten();
    for reference in agents.chain(&swarm.entry_agent) {
        resources.names.check(reference, &mut unheeded);
    }
    let message = format!(
        "Swarm `{}` does not run, because the project's first Swarm is `{}`",
        swarm.name, first.value.name
    );
    report.add(
        Problem::note(codes::OLDER_FORM, place, message)
            .help("to run it, move its document before the other, or into a project of its own"),
    );
}

pub(super) fn read_membership(
    swarm: Option<&LocatedValue<SwarmSpec>>,
    resources: &Resources,
    report: &mut ProblemReport,
) -> Membership {
    let all = || {
        let agents = resources.agents.iter().map(|agent| &agent.value.name);
        let programs = resources.cli_agents.iter().map(|agent| &agent.value.name);
        let names = agents.chain(programs);
        names.map(|name| name.as_str().to_owned()).collect()
    };
    let Some(swarm) = swarm else {
        return Membership {
            swarm: None,
            members: all(),
            complete: true,
            policy: Policy::default(),
        };
    };
    let mut complete = true;
    let members = match &swarm.value.agents {
        None => all(),
        Some(references) => {
            let mut members = BTreeSet::new();
            for reference in references {
                if resources.names.check(reference, report).is_none() {
                    complete = false;
                    continue;
                }
                if !members.insert(reference.name.clone()) {
                    report.add(
                        Problem::new(
                            codes::DUPLICATE_REFERENCE,
                            reference.place,
                            format!("Agent `{}` is listed twice", reference.name),
                        )
                        .help("remove one of the two"),
                    );
                }
            }
            members
        }
    };
    Membership {
        swarm: Some(swarm.value.name.as_str().to_owned()),
        members,
        complete,
        policy: swarm.value.policy.clone(),
    }
}

impl Membership {
    /// The Swarm as shown to agents, if it exists.
    pub(super) fn swarm(
        &self,
        entry_agent: Option<&AgentName>,
        connections: impl FnOnce() -> OlderConnections,
    ) -> Option<SwarmView> {
        let agents = self
            .members
            .iter()
            .filter_map(|name| AgentName::new(name).ok());
        Some(SwarmView {
            name: self.swarm.as_deref()?.parse().ok()?,
            entry_agent: entry_agent.cloned(),
            agents: agents.collect(),
            connections: connections(),
        })
    }

    /// False for a Swarm that does not run.
    pub(super) fn runs(&self, swarm: &str) -> bool {
        self.swarm.as_deref() == Some(swarm)
    }

    /// True if all members are known, so that any other name is not a member.
    pub(super) const fn is_complete(&self) -> bool {
        self.complete
    }

    /// Checks that a reference names a member that can receive events.
    pub(super) fn check(
        &self,
        reference: &Reference,
        resources: &Resources,
        report: &mut ProblemReport,
    ) -> Option<()> {
        resources.names.check(reference, report)?;
        let mut programs = resources.cli_agents.iter();
        if programs.any(|agent| agent.value.name.as_str() == reference.name) {
            let message = format!(
                "Agent `{}` has `runtime.kind: cli`: it works on tasks and cannot receive events",
                reference.name
            );
            let problem = Problem::new(codes::INVALID_VALUE, reference.place, message);
            report.add(problem.help("write an Agent with a model"));
            return None;
        }
        let Some(swarm) = &self.swarm else {
            return Some(());
        };
        let name = &reference.name;
        if self.members.contains(name) || !self.complete {
            return Some(());
        }
        report.add(
            Problem::new(
                codes::UNKNOWN_REFERENCE,
                reference.place,
                format!("Agent `{name}` is not an agent of Swarm `{swarm}`"),
            )
            .help(format!("add `Agent/{name}` to the Swarm's `agents`")),
        );
        None
    }
}

/// The entry agent; `Some(None)` in a project whose agents are all programs. `None` only if a
/// problem was reported.
pub(super) fn find_entry_agent(
    swarm: Option<&LocatedValue<SwarmSpec>>,
    membership: &Membership,
    resources: &Resources,
    report: &mut ProblemReport,
) -> Option<Option<AgentName>> {
    if let Some(swarm) = swarm {
        let reference = swarm.value.entry_agent.as_ref()?;
        membership.check(reference, resources, report)?;
        return AgentName::new(&reference.name).ok().map(Some);
    }
    let count = |kind| resources.counts.get(&kind).copied().unwrap_or_default();
    if count(ResourceKind::SWARM) > 0 {
        return None;
    }
    let programs = resources.cli_agents.as_slice();
    let agents = count(ResourceKind::AGENT).saturating_sub(resources.cli_agent_count);
    match (agents, resources.agents.as_slice()) {
        // An unreadable program was already reported.
        (0, _) if resources.cli_agent_count > programs.len() => None,
        // All agents are programs, which only run tasks.
        (0, _) if !programs.is_empty() => Some(None),
        (1, [only]) => Some(Some(only.value.name.clone())),
        (0, _) => {
            // An unreadable resource may be the agent.
            if let Some(place) = resources.start.filter(|_| !report.is_partial()) {
                report.add(
                    Problem::new(codes::NO_ENTRY_AGENT, place, "the project defines no Agent")
                        .help("add a document of `kind: Agent`"),
                );
            }
            None
        }
        (1, _) => None,
        // An unreadable resource may be the Swarm.
        (_, [_, ..]) if report.is_partial() => None,
        (_, [first, ..]) => {
            report.add(
                Problem::new(
                    codes::NO_ENTRY_AGENT,
                    first.place,
                    "the project defines several Agents but no Swarm with an `entryAgent`",
                )
                .help(format!(
                    "add a document of `kind: Swarm` with `entryAgent: Agent/{}`",
                    first.value.name
                )),
            );
            None
        }
        (_, []) => None,
    }
}
