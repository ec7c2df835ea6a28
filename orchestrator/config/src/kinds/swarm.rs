//! `kind: Swarm`: which agents work together, who answers first, and the policy for all of them.

use goondan_protocol::ids::ResourceName;
use goondan_protocol::limits::{DEFAULT_GRACE_PERIOD_MS, DEFAULT_MAX_STEPS_PER_TURN};

use super::id;
use crate::Lifecycle;
use crate::document::{Document, Kind};
use crate::fields::Fields;
use crate::limits::{
    MAX_GC_GRACE_SECONDS, MAX_GRACE_PERIOD_SECONDS, MAX_IDLE_SECONDS, MAX_STEPS_PER_TURN,
    MAX_TTL_SECONDS,
};
use crate::reference::Reference;
use crate::report::Report;

/// A Swarm as written.
#[derive(Debug)]
pub(crate) struct SwarmSpec {
    pub(crate) name: ResourceName,
    pub(crate) entry_agent: Option<Reference>,
    /// Its members; `None` means every Agent of the project.
    pub(crate) agents: Option<Vec<Reference>>,
    pub(crate) policy: Policy,
}

/// What holds for every agent of a swarm.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Policy {
    pub(crate) max_steps_per_turn: u32,
    pub(crate) grace_period_ms: u64,
    pub(crate) lifecycle: Lifecycle,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_steps_per_turn: DEFAULT_MAX_STEPS_PER_TURN,
            grace_period_ms: DEFAULT_GRACE_PERIOD_MS,
            lifecycle: Lifecycle::default(),
        }
    }
}

/// Reads a Swarm document.
pub(crate) fn read(document: &Document<'_>, report: &mut Report) -> Option<SwarmSpec> {
    let name = id(&document.name, report);
    let mut spec = document.spec(report)?;
    let label = spec.label.field("entryAgent");
    let entry_agent = spec
        .require("entryAgent", report)
        .and_then(|entry| Reference::read(&entry.node, &label, Kind::Agent, report));
    let agents = spec.get("agents").is_some().then(|| {
        spec.items("agents", report)
            .into_iter()
            .filter_map(|(node, label)| Reference::read(node, &label, Kind::Agent, report))
            .collect()
    });
    let policy = spec
        .nested("policy", report)
        .map(|policy| read_policy(policy, report))
        .unwrap_or_default();
    spec.close(report);
    Some(SwarmSpec {
        name: name?,
        entry_agent,
        agents,
        policy,
    })
}

fn read_policy(mut fields: Fields<'_>, report: &mut Report) -> Policy {
    let mut policy = Policy::default();
    let steps = fields.integer("maxStepsPerTurn", 1..=u64::from(MAX_STEPS_PER_TURN), report);
    if let Some(steps) = steps.and_then(|steps| u32::try_from(steps).ok()) {
        policy.max_steps_per_turn = steps;
    }
    if let Some(mut shutdown) = fields.nested("shutdown", report) {
        let range = 0..=MAX_GRACE_PERIOD_SECONDS;
        if let Some(seconds) = shutdown.integer("gracePeriodSeconds", range, report) {
            policy.grace_period_ms = seconds * 1_000;
        }
        shutdown.close(report);
    }
    if let Some(lifecycle) = fields.nested("lifecycle", report) {
        policy.lifecycle = read_lifecycle(lifecycle, report);
    }
    fields.close(report);
    policy
}

fn read_lifecycle(mut fields: Fields<'_>, report: &mut Report) -> Lifecycle {
    let mut milliseconds = |name, range| {
        let seconds = fields.integer(name, range, report)?;
        Some(seconds * 1_000)
    };
    let default = Lifecycle::default();
    let lifecycle = Lifecycle {
        ttl_ms: milliseconds("ttlSeconds", 1..=MAX_TTL_SECONDS),
        gc_grace_ms: milliseconds("gcGraceSeconds", 0..=MAX_GC_GRACE_SECONDS)
            .unwrap_or(default.gc_grace_ms),
        idle_ms: milliseconds("idleSeconds", 1..=MAX_IDLE_SECONDS).unwrap_or(default.idle_ms),
    };
    fields.close(report);
    lifecycle
}
