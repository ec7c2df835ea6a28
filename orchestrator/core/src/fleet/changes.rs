//! Differences between configurations, and the restarts they require (`SUP-8`).
//!
//! A process is outdated if its start configuration differs from the current one: an agent's
//! definition (including its model, prompt, tools and extensions), a connection's definition, or
//! the swarm's policy. This is always computed by comparison and never stored.

use std::collections::BTreeMap;

use goondan_config::{ConnectionDefinition, Lifecycle, ProjectConfig};
use goondan_protocol::control::{ChangeKind, ConfigurationChange};
use goondan_protocol::definition::{AgentDefinition, HostedModel};
use goondan_protocol::ids::{AgentName, ResourceName};
use goondan_protocol::usage::PriceTable;

use crate::exchange::oauth_calls::Tokens;

/// Result of applying a configuration.
#[derive(Debug, Default)]
pub(crate) struct AppliedConfiguration {
    pub(crate) changes: Vec<ConfigurationChange>,
    pub(crate) processes: usize,
}

/// The swarm settings that affect every process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Policy {
    entry_agent: Option<AgentName>,
    grace_period_ms: u64,
    lifecycle: Lifecycle,
}

impl Policy {
    pub(super) fn of(bundle: &ProjectConfig) -> Self {
        Self {
            entry_agent: bundle.entry_agent.clone(),
            grace_period_ms: bundle.grace_period_ms,
            lifecycle: bundle.lifecycle,
        }
    }
}

/// Start configuration of an agent's process.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RunningAgent {
    pub(super) definition: AgentDefinition,
    policy: Policy,
    /// Digest of the latest configuration with an equal definition, because comparing digests is
    /// cheap.
    alike: String,
    /// True if the definition comes from the conversation's own bundle.
    is_own: bool,
}

impl RunningAgent {
    pub(super) fn of(agent: &AgentName, bundle: &ProjectConfig) -> Option<Self> {
        Some(Self {
            definition: bundle.agents.get(agent)?.clone(),
            policy: Policy::of(bundle),
            alike: bundle.digest.clone(),
            is_own: false,
        })
    }

    /// Replaces the definition with the one of the conversation's own bundle.
    pub(super) fn being(self, definition: AgentDefinition) -> Self {
        Self {
            definition,
            is_own: true,
            ..self
        }
    }

    /// True if a process started now would get a different definition.
    pub(super) fn is_outdated(&self, bundle: &ProjectConfig) -> bool {
        self.alike != bundle.digest
            && (self.is_own
                || bundle.agents.get(&self.definition.name) != Some(&self.definition)
                || self.policy != Policy::of(bundle))
    }

    /// Compares with a newly applied configuration.
    pub(super) fn compare(&mut self, bundle: &ProjectConfig) {
        if !self.is_outdated(bundle) {
            self.alike.clone_from(&bundle.digest);
        }
    }
}

/// Start configuration of a connection's process.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RunningConnector {
    pub(super) definition: ConnectionDefinition,
    pub(super) tokens: Tokens,
    policy: Policy,
    /// Digest of the latest configuration with an equal definition.
    alike: String,
}

impl RunningConnector {
    pub(super) fn of(
        definition: ConnectionDefinition,
        tokens: Tokens,
        bundle: &ProjectConfig,
    ) -> Self {
        Self {
            definition,
            tokens,
            policy: Policy::of(bundle),
            alike: bundle.digest.clone(),
        }
    }

    /// True if a process started now would get a different definition.
    pub(super) fn is_outdated(&self, bundle: &ProjectConfig) -> bool {
        self.alike != bundle.digest
            && (bundle.connections.get(&self.definition.name) != Some(&self.definition)
                || self.policy != Policy::of(bundle))
    }

    /// Compares with a newly applied configuration.
    pub(super) fn compare(&mut self, bundle: &ProjectConfig) {
        if !self.is_outdated(bundle) {
            self.alike.clone_from(&bundle.digest);
        }
    }
}

/// The differences between the previous configuration, if any, and the current one: first the
/// swarm, then agents, models with their own process, and connections, each ordered by name.
pub(crate) fn changes(
    before: Option<&ProjectConfig>,
    after: &ProjectConfig,
) -> Vec<ConfigurationChange> {
    let mut changes = Vec::new();
    let is_other = |before: &ProjectConfig| {
        Policy::of(before) != Policy::of(after) || before.budgets != after.budgets
    };
    if before.is_some_and(is_other) {
        changes.push(ConfigurationChange {
            resource: "Swarm".to_owned(),
            change: ChangeKind::Changed,
        });
    }
    let agents = before.map(|bundle| &bundle.agents);
    changes.extend(differences("Agent", agents, &after.agents));
    let models = before.map(priced_models);
    let after_models = priced_models(after);
    changes.extend(differences("Model", models.as_ref(), &after_models));
    let connections = before.map(|bundle| &bundle.connections);
    changes.extend(differences("Connection", connections, &after.connections));
    changes
}

/// The models of a configuration with their prices.
fn priced_models(
    bundle: &ProjectConfig,
) -> BTreeMap<&ResourceName, (&HostedModel, Option<&PriceTable>)> {
    let models = bundle.models.iter();
    models
        .map(|(name, model)| (name, (model, bundle.prices.get(name))))
        .collect()
}

fn differences<N: Ord + std::fmt::Display, D: PartialEq>(
    kind: &str,
    before: Option<&BTreeMap<N, D>>,
    after: &BTreeMap<N, D>,
) -> Vec<ConfigurationChange> {
    let mut found: BTreeMap<&N, ChangeKind> = BTreeMap::new();
    for (name, was) in before.into_iter().flatten() {
        match after.get(name) {
            Some(is) if is == was => {}
            Some(_) => drop(found.insert(name, ChangeKind::Changed)),
            None => drop(found.insert(name, ChangeKind::Removed)),
        }
    }
    for name in after.keys() {
        if before.is_none_or(|before| !before.contains_key(name)) {
            found.insert(name, ChangeKind::Added);
        }
    }
    let change = |(name, change): (&N, ChangeKind)| ConfigurationChange {
        resource: format!("{kind}/{name}"),
        change,
    };
    found.into_iter().map(change).collect()
}
