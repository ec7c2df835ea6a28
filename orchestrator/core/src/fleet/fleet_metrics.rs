//! Counters of workspaces, conversations and processes, and samples of their current state
//! (`OBS-3`).
//!
//! Every configured item has its series from the start, even with the value 0, because a query
//! cannot detect the growth of a counter that did not exist before.

use std::collections::BTreeMap;

use goondan_protocol::control::{ProcessState, Readiness};
use goondan_protocol::ids::{AgentName, InstanceRef, WorkspaceId};
use goondan_protocol::ignored_messages::IgnoreReason;
use goondan_protocol::metrics::{Label, Labels, Metric, Micros, Sample};
use goondan_protocol::time::Timestamp;

use super::slot::Slot;
use super::views::{ProcessWorkload, View};
use super::{ProcessOwner, Workspace, health};
use crate::bus::context::Cx;

/// Outcomes of turns, as counted.
pub(super) const TURN_OUTCOMES: [&str; 3] = ["completed", "failed", "cancelled"];

/// Outcomes of model requests, as counted.
pub(crate) const REQUEST_OUTCOMES: [&str; 2] = ["completed", "failed"];

pub(crate) fn of_workspace(id: &WorkspaceId) -> Labels {
    Labels::none().with(Label::Workspace, id.as_str())
}

/// Totals over the conversations of one agent.
#[derive(Debug, Default)]
struct AgentTotals {
    waiting: usize,
    oldest: Option<Timestamp>,
    running: u64,
    in_back_off: u64,
}

impl Workspace {
    /// Counts an unexpected exit of a process.
    pub(super) fn count_child_crash(&self, cx: &mut Cx, owner: &ProcessOwner) {
        if let Some(labels) = self.labels_of(owner) {
            cx.count(Metric::ChildCrashes, labels, Micros::whole(1));
        }
    }

    /// A turn is committed. `began_ms` is the time at which a process received it, if one did.
    pub(super) fn count_turn(
        &self,
        cx: &mut Cx,
        at: &InstanceRef,
        outcome: &str,
        began_ms: Option<u64>,
    ) {
        let Some(agent) = self.agent_name(&at.instance_key) else {
            return;
        };
        let labels = of_workspace(&at.workspace_id).with(Label::Agent, agent.as_str());
        if let Some(began_ms) = began_ms {
            let took = cx.now().mono_ms.saturating_sub(began_ms);
            cx.count(Metric::TurnDuration, labels.clone(), Micros::millis(took));
        }
        let labels = labels.with(Label::Outcome, outcome);
        cx.count(Metric::Turns, labels, Micros::whole(1));
    }

    /// Labels of a process; `None` if it has no owner.
    fn labels_of(&self, owner: &ProcessOwner) -> Option<Labels> {
        let labels = of_workspace(owner.workspace_id());
        Some(match owner {
            ProcessOwner::Agent(at) => {
                labels.with(Label::Agent, self.agent_name(&at.instance_key)?.as_str())
            }
            ProcessOwner::Connector(_, name) => labels.with(Label::Connection, name.as_str()),
            ProcessOwner::Model(_, name) => labels.with(Label::Model, name.as_str()),
            ProcessOwner::Task(_, task) => {
                let run = self.runs.get(task)?;
                labels.with(Label::Agent, run.agent().name.as_str())
            }
        })
    }
}

impl View<'_> {
    pub(crate) fn samples(self, work: &impl ProcessWorkload) -> Vec<Sample> {
        let mut samples = Samples::default();
        let waiting = match self.starts.short_of() {
            [] => 0,
            _ => self.starts.waiting(),
        };
        samples.add(Metric::WaitingStarts, Labels::none(), waiting);
        for (id, workspace) in self.workspaces {
            sample_workspace(&mut samples, self.cx.now().wall, work, (id, workspace));
            sample_agents(&mut samples, self.cx.now().wall, id, workspace);
            sample_services(&mut samples, id, workspace);
        }
        samples.0
    }
}

fn sample_workspace(
    samples: &mut Samples,
    now: Timestamp,
    work: &impl ProcessWorkload,
    (id, workspace): (&WorkspaceId, &Workspace),
) {
    let labels = of_workspace(id);
    let is_unwell = workspace.problem.is_some();
    samples.add(
        Metric::WorkspaceProblem,
        labels.clone(),
        usize::from(is_unwell),
    );
    let since = workspace.unacknowledged.as_ref().map(|it| it.since);
    let silent_ms = since.map_or(0, |since| {
        let ms = now.as_unix_millis() - since.as_unix_millis();
        u64::try_from(ms).unwrap_or(0)
    });
    let silence = Micros::millis(silent_ms);
    samples.number(Metric::UnacknowledgedTime, labels.clone(), silence);
    let parked = workspace.parked.total();
    samples.number(Metric::EventsParked, labels.clone(), Micros::whole(parked));
    let entries = workspace.conversations.values();
    let approvals: usize = entries
        .map(|entry| entry.approvals().waiting().count())
        .sum();
    let waiting = approvals + work.questions_in(id) + workspace.consents().len();
    samples.add(Metric::WaitingForPerson, labels, waiting);
}

#[derive(Default)]
struct Samples(Vec<Sample>);

impl Samples {
    fn number(&mut self, metric: Metric, labels: Labels, value: Micros) {
        self.0.push(Sample {
            metric,
            labels,
            value,
        });
    }

    fn add(&mut self, metric: Metric, labels: Labels, value: usize) {
        let value = u64::try_from(value).unwrap_or(u64::MAX);
        self.number(metric, labels, Micros::whole(value));
    }
}

fn sample_agents(samples: &mut Samples, now: Timestamp, id: &WorkspaceId, workspace: &Workspace) {
    let bundle = workspace.bundle.as_ref();
    let named = bundle.into_iter().flat_map(|bundle| {
        let agents = bundle.agents.keys();
        agents.chain(bundle.cli_agents.keys())
    });
    let mut agents: BTreeMap<&AgentName, AgentTotals> =
        named.map(|name| (name, AgentTotals::default())).collect();
    for instance in workspace.conversations.values() {
        let of = agents.entry(instance.agent()).or_default();
        of.waiting += instance.pending();
        // Paused events are not a delay.
        let ready = instance.queue().ready().map(|event| event.created_at);
        // Events that are not acknowledged yet count, too: while acknowledgments fail, there are no
        // others.
        let oldest = ready.chain(instance.queue().accepting_since());
        of.oldest = of.oldest.into_iter().chain(oldest).min();
        of.running += u64::from(instance.slot().up().is_some());
        of.in_back_off += u64::from(is_in_back_off(instance.slot()));
    }
    for (_, run) in workspace.runs.iter() {
        let of = agents.entry(&run.agent().name).or_default();
        of.running += u64::from(run.slot().up().is_some());
    }
    for (name, of) in agents {
        let labels = of_workspace(id).with(Label::Agent, name.as_str());
        let age_ms = of.oldest.map_or(0, |oldest| {
            let age = now.as_unix_millis() - oldest.as_unix_millis();
            u64::try_from(age).unwrap_or(0)
        });
        samples.add(Metric::EventsWaiting, labels.clone(), of.waiting);
        let whole = [
            (Metric::EventOldestAge, Micros::millis(age_ms)),
            (Metric::Processes, Micros::whole(of.running)),
            (Metric::BackoffProcesses, Micros::whole(of.in_back_off)),
            (Metric::ChildCrashes, Micros::whole(0)),
        ];
        for (metric, value) in whole {
            samples.number(metric, labels.clone(), value);
        }
        for outcome in TURN_OUTCOMES {
            let labels = labels.clone().with(Label::Outcome, outcome);
            samples.add(Metric::Turns, labels, 0);
        }
    }
}

/// Connections and models.
fn sample_services(samples: &mut Samples, id: &WorkspaceId, workspace: &Workspace) {
    let connectors = workspace.connectors.iter().map(|(name, connector)| {
        let labels = of_workspace(id).with(Label::Connection, name.as_str());
        (labels, connector.slot(), connector.readiness())
    });
    let models = workspace.models.iter().map(|(name, model)| {
        let labels = of_workspace(id).with(Label::Model, name.as_str());
        (labels, model.slot(), model.readiness())
    });
    for (labels, _, _) in connectors.clone() {
        // The one reason that calls for a change of the rules.
        let labels = labels.with(Label::Reason, IgnoreReason::NoRule.as_str());
        samples.add(Metric::EventsIgnored, labels, 0);
    }
    for (name, model) in workspace.models.iter() {
        let labels = of_workspace(id).with(Label::Model, name.as_str());
        let is_suspended = workspace.models.is_suspended(model);
        samples.add(Metric::ModelSuspended, labels, usize::from(is_suspended));
    }
    for (labels, _, _) in models.clone() {
        for outcome in REQUEST_OUTCOMES {
            let labels = labels.clone().with(Label::Outcome, outcome);
            samples.add(Metric::ModelRequests, labels, 0);
        }
    }
    for (labels, slot, readiness) in connectors.chain(models) {
        let is_unready = health::shown(slot, readiness) == Some(Readiness::NotReady);
        for (metric, holds) in [
            (Metric::Processes, slot.up().is_some()),
            (Metric::BackoffProcesses, is_in_back_off(slot)),
            (Metric::UnreadyProcesses, is_unready),
            (Metric::ChildCrashes, false),
            (Metric::CallsUnknown, false),
        ] {
            samples.add(metric, labels.clone(), usize::from(holds));
        }
    }
}

fn is_in_back_off(slot: &Slot) -> bool {
    slot.shown(false) == ProcessState::CrashLoopBackOff
}
