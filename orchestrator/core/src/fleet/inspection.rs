//! Runtime state for tests.

use std::sync::Arc;

use goondan_config::Sources;
use goondan_protocol::JsonObject;
use goondan_protocol::definition::HostedModel;
use goondan_protocol::ids::{EventId, InstanceKey, InstanceRef, WorkspaceId};
use goondan_protocol::time::Timestamp;
use goondan_store::root::Layout;
use goondan_store::workspace::WorkspaceRecord;

use super::conversation::{Conversation, WrongStage};
use super::slot::Slot;
use super::views::View;
use super::{Fleet, ProcessOwner, Workspace};
use crate::{Facts, ProcessId};

impl Fleet {
    /// A fleet whose only workspace has one model, with a ready process.
    pub(crate) fn with_ready_model(definition: HostedModel) -> (Self, WorkspaceId) {
        let facts = Facts {
            layout: Layout::new("/state"),
            pid: 1,
            started_at: Timestamp::from_unix_millis(0),
            log_dir: None,
            cgroup: None,
            program: None,
            is_memory_open: false,
            restored: None,
            node: None,
        };
        let mut fleet = Self::new(facts, || uuid::Uuid::from_u128(1));
        let id = WorkspaceId::new("w").unwrap();
        let record = WorkspaceRecord {
            workspace_id: id.clone(),
            project_root: "/project".into(),
            package: None,
            registered: true,
            watch: false,
            env_files: Vec::new(),
            swarm: None,
            extra: JsonObject::new(),
        };
        let now = fleet.now().wall;
        let workspace = Workspace::new(record, Arc::new(Sources::default()), now);
        fleet.workspaces.insert(id.clone(), workspace);
        fleet.add_ready_model(&id, definition, ProcessId(1));
        (fleet, id)
    }

    /// Adds a model with a ready process to a workspace.
    pub(crate) fn add_ready_model(
        &mut self,
        id: &WorkspaceId,
        definition: HostedModel,
        process: ProcessId,
    ) {
        let (name, now) = (definition.name.clone(), self.now());
        let workspace = self.workspaces.get_mut(id).unwrap();
        workspace.models.add_ready(definition, process, now);
        let owner = ProcessOwner::Model(id.clone(), name);
        self.cx.processes_mut().insert(process, owner);
    }
}

impl<'a> View<'a> {
    /// The slots of all processes, each with true if the process should be running.
    pub(crate) fn places(self) -> Vec<(ProcessOwner, &'a Slot, bool)> {
        let workspaces = self.workspaces.iter();
        workspaces
            .flat_map(move |(id, workspace)| self.places_of(id, workspace))
            .collect()
    }

    fn places_of(self, id: &WorkspaceId, of: &'a Workspace) -> Vec<(ProcessOwner, &'a Slot, bool)> {
        let is_open = of.closing.is_none() && self.cx.stopping().is_none();
        let connectors = of.connectors.iter().map(|(name, connector)| {
            let owner = ProcessOwner::Connector(id.clone(), name.clone());
            (owner, connector.slot(), is_open)
        });
        let models = of.models.iter().map(|(name, model)| {
            let owner = ProcessOwner::Model(id.clone(), name.clone());
            (owner, model.slot(), false)
        });
        let instances = of.conversations.iter().map(|(key, instance)| {
            let at = InstanceRef {
                workspace_id: id.clone(),
                instance_key: key.clone(),
            };
            (ProcessOwner::Agent(at), instance.slot(), false)
        });
        let runs = of.runs.iter().map(|(task, run)| {
            let owner = ProcessOwner::Task(id.clone(), task.clone());
            (owner, run.slot(), false)
        });
        connectors
            .chain(models)
            .chain(instances)
            .chain(runs)
            .collect()
    }

    /// Events with a waiter but without a turn to wait for, in conversations that have been read
    /// and will stay.
    pub(crate) fn awaited_in_vain(self) -> Vec<(InstanceKey, EventId)> {
        let mut found = Vec::new();
        let workspaces = self.workspaces.values();
        for (key, instance) in workspaces.flat_map(|workspace| &workspace.conversations) {
            // Before the inbox is read, finished events are unknown; they are looked up for the
            // waiters then. Waiters of a deleted conversation are notified at the end of the
            // deletion.
            if instance.is_read() && !instance.is_deleting() {
                let events = self.of_no_turn(key, instance);
                found.extend(events.map(|event_id| (key.clone(), event_id.clone())));
            }
        }
        found
    }

    fn of_no_turn(
        self,
        key: &'a InstanceKey,
        instance: &'a Conversation,
    ) -> impl Iterator<Item = &'a EventId> {
        instance.waiters().events().filter(move |event_id| {
            let is_waiting = instance.queue().get(event_id).is_some();
            !is_waiting && !self.cx.jobs().is_looking_up(key, event_id)
        })
    }

    /// Events that conversations got in the wrong stage.
    pub(crate) fn mistakes(self) -> Vec<&'a WrongStage> {
        let conversations = self
            .workspaces
            .values()
            .flat_map(|w| w.conversations.values());
        conversations.flat_map(Conversation::mistakes).collect()
    }

    /// True if any resource for processes is short.
    pub(crate) fn is_short_of_anything(self) -> bool {
        !self.starts.short_of().is_empty()
    }
}
