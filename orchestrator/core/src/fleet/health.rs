//! Unhealthy processes (`OBS-6`): those that report a problem, and those that keep crashing.

use goondan_protocol::control::{ProcessState, Readiness, UnhealthyProcess};
use goondan_protocol::ipc::{ChildRole, Status};

use super::Workspace;
use super::slot::Slot;
use crate::limits::UNHEALTHY_SHOWN;

/// Readiness in the status of a connector or model.
pub(crate) fn readiness_of(status: &Status) -> Readiness {
    if status.ready {
        Readiness::Ready
    } else if status.token.is_some() {
        // A process with another token will replace it.
        Readiness::Starting
    } else {
        Readiness::NotReady
    }
}

/// Displayed readiness; `None` if no process is running.
pub(crate) fn shown(slot: &Slot, readiness: Readiness) -> Option<Readiness> {
    slot.up().map(|_| match slot.ready() {
        Some(_) => readiness,
        None => Readiness::Starting,
    })
}

/// Every unhealthy process of a workspace: connections first, then models, then agents.
pub(crate) fn unhealthy_of(workspace: &Workspace) -> Vec<UnhealthyProcess> {
    let connectors = workspace.connectors.iter().map(|(name, connector)| {
        let readiness = shown(connector.slot(), connector.readiness());
        let name = name.to_string();
        (
            ChildRole::Connector,
            name,
            None,
            connector.slot(),
            readiness,
        )
    });
    let models = workspace.models.iter().map(|(name, model)| {
        let readiness = shown(model.slot(), model.readiness());
        (
            ChildRole::Model,
            name.to_string(),
            None,
            model.slot(),
            readiness,
        )
    });
    // Filtered first, because a workspace can have many agents, most healthy.
    let agents = workspace.conversations.iter();
    let agents = agents
        .filter(|(_, instance)| instance.slot().next_start_ms().is_some())
        .map(|(key, instance)| {
            let name = instance.agent().to_string();
            let key = Some(key.clone());
            (ChildRole::Agent, name, key, instance.slot(), None)
        });
    connectors
        .chain(models)
        .chain(agents)
        .map(
            |(role, name, instance_key, slot, readiness)| UnhealthyProcess {
                role,
                name,
                instance_key,
                state: slot.shown(false),
                readiness,
                detail: slot.detail.clone(),
            },
        )
        .filter(|process| {
            process.readiness == Some(Readiness::NotReady)
                || process.state == ProcessState::CrashLoopBackOff
        })
        .collect()
}

/// Truncates the list to the number that clients receive.
pub(crate) fn shown_unhealthy(mut all: Vec<UnhealthyProcess>) -> Vec<UnhealthyProcess> {
    all.truncate(UNHEALTHY_SHOWN);
    all
}
