//! What tests may see of what runs.

use goondan_protocol::ids::{EventId, InstanceKey, InstanceRef, WorkspaceId};

use super::instance::Instance;
use super::slot::Slot;
use super::{Fleet, Owner, Workspace};

impl Fleet {
    /// The places of all processes, and whether each is wanted to be up.
    pub(crate) fn places(&self) -> Vec<(Owner, &Slot, bool)> {
        let workspaces = self.workspaces.iter();
        workspaces
            .flat_map(|(id, workspace)| self.places_of(id, workspace))
            .collect()
    }

    fn places_of<'a>(&self, id: &WorkspaceId, of: &'a Workspace) -> Vec<(Owner, &'a Slot, bool)> {
        let is_open = of.closing.is_none() && !self.is_stopping();
        let connectors = of.connectors.iter().map(|(name, connector)| {
            let owner = Owner::Connector(id.clone(), name.clone());
            (owner, &connector.slot, is_open)
        });
        let models = of.models.iter().map(|(name, model)| {
            let owner = Owner::Model(id.clone(), name.clone());
            (owner, &model.slot, false)
        });
        let instances = of.instances.iter().map(|(key, instance)| {
            let at = InstanceRef {
                workspace_id: id.clone(),
                instance_key: key.clone(),
            };
            (Owner::Agent(at), &instance.slot, false)
        });
        let runs = of.runs.iter().map(|(task, run)| {
            let owner = Owner::Task(id.clone(), task.clone());
            (owner, &run.slot, false)
        });
        connectors
            .chain(models)
            .chain(instances)
            .chain(runs)
            .collect()
    }

    /// Events that somebody waits for and that do not wait for a turn, of conversations whose inbox is
    /// known and that are to stay.
    pub(crate) fn awaited_in_vain(&self) -> Vec<(InstanceKey, EventId)> {
        let mut found = Vec::new();
        let workspaces = self.workspaces.values();
        for (key, instance) in workspaces.flat_map(|workspace| &workspace.instances) {
            // Before its inbox is read, it is not known what is over; then it is looked up for who waits.
            // Who waits for something of one that is being deleted is told with its end.
            if instance.inbox.is_read() && instance.deleting.is_none() {
                let events = self.of_no_turn(key, instance);
                found.extend(events.map(|event_id| (key.clone(), event_id.clone())));
            }
        }
        found
    }

    fn of_no_turn<'a>(
        &'a self,
        key: &'a InstanceKey,
        instance: &'a Instance,
    ) -> impl Iterator<Item = &'a EventId> {
        instance.waiters.events().filter(|event_id| {
            let is_waiting = instance.inbox.get(event_id).is_some();
            !is_waiting && !self.jobs.is_looking_up(key, event_id)
        })
    }

    /// Whether anything that processes need runs short.
    pub(crate) fn is_short_of_anything(&self) -> bool {
        !self.room.short_of().is_empty()
    }
}
