//! Members of the swarm and the entry agent.

use std::collections::BTreeSet;

use goondan_protocol::definition::SwarmView;
use goondan_protocol::ids::{AgentName, ResourceName};

use super::older_connections::OlderConnections;
use crate::codes;
use crate::fields::LocatedValue;
use crate::kind::ResourceKind;
use crate::kinds::Resources;
use crate::kinds::swarm::{Policy, SwarmSpec};
use crate::reference::Reference;
use crate::report::{Problem, ProblemReport};

/// The swarm's members, or all agents of a project without a Swarm.
pub(super) struct Membership {
    /// The Swarm's name for messages, if it exists.
    swarm: Option<String>,
    pub(super) members: BTreeSet<String>,
    /// True if all members were found. If false, the missing ones are unknown.
    complete: bool,
    pub(super) policy: Policy,
}

/// The Swarm that runs: the named one, or the project's first. Each other one is listed in a note.
pub(super) fn running_swarm<'r>(
    resources: &'r Resources,
    report: &mut ProblemReport,
) -> Option<&'r LocatedValue<SwarmSpec>> {
    let swarms = resources.swarms.as_slice();
    let named = resources.swarm_to_run.as_ref();
    let running = match named {
        None => swarms.first(),
        Some(name) => {
            let found = swarms.iter().find(|swarm| swarm.value.name == *name);
            if found.is_none() {
                report_unknown(name, resources, report);
            }
            found.or(swarms.first())
        }
    }?;
    for swarm in swarms {
        if swarm.value.name != running.value.name {
            note_idle(swarm, running, resources, report);
        }
    }
    Some(running)
}

/// Reports that the Swarm to run does not exist.
fn report_unknown(name: &ResourceName, resources: &Resources, report: &mut ProblemReport) {
    let swarms = resources.swarms.as_slice();
    let written = resources.counts.get(&ResourceKind::SWARM);
    // An unreadable Swarm may be the named one.
    if written.is_some_and(|count| *count > swarms.len()) {
        return;
    }
    let first = swarms.first().map(|swarm| swarm.place);
    let Some(place) = first.or(resources.start) else {
        return;
    };
    let names: Vec<String> = swarms
        .iter()
        .map(|swarm| format!("`{}`", swarm.value.name))
        .collect();
    let (has, help) = match names.as_slice() {
        [] => (
            "no Swarm".to_owned(),
            "run it without `--swarm`; after an earlier `--swarm`, with `gdn run --first-swarm`",
        ),
        names => (
            names.join(", "),
            "pass one of these names with `--swarm`, or run the first one with `gdn run --first-swarm`",
        ),
    };
    let message = format!("the Swarm `{name}` to run does not exist; the project has {has}");
    report.add(Problem::new(codes::UNKNOWN_REFERENCE, place, message).help(help));
}

/// Reports a Swarm that does not run, as a note. Its references count as uses.
fn note_idle(
    swarm: &LocatedValue<SwarmSpec>,
    running: &LocatedValue<SwarmSpec>,
    resources: &Resources,
    report: &mut ProblemReport,
) {
    let mut unheeded = ProblemReport::default();
    let agents = swarm.value.agents.iter().flatten();
    for reference in agents.chain(&swarm.value.entry_agent) {
        resources.names.check(reference, &mut unheeded);
    }
    let name = &swarm.value.name;
    let message = format!(
        "Swarm `{name}` does not run, because Swarm `{}` runs",
        running.value.name
    );
    report.add(
        Problem::note(codes::IDLE_SWARM, swarm.place, message)
            .help(format!("to run it: `gdn run --swarm {name}`")),
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

    /// True for an agent of another Swarm only.
    pub(super) fn excludes(&self, agent: &str) -> bool {
        self.complete && !self.members.contains(agent)
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
