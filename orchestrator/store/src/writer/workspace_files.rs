//! The ledgers and audit logs of workspaces, and what was last known of them, that a writer thread holds
//! open: many entries of a ledger, one sync.

use std::collections::HashMap;

use goondan_protocol::JsonObject;
use goondan_protocol::ids::WorkspaceId;

use super::Report;
use super::outcome::again;
use crate::disk::Disk;
use crate::error::StoreError;
use crate::ledger::{self, Entry, LEDGER_FILE, Ledger};
use crate::own_files::OwnFiles;
use crate::root::Layout;
use crate::workspace::{self, AUDIT_FILE};

#[derive(Debug, Default)]
pub(super) struct WorkspaceFiles {
    open: HashMap<WorkspaceId, Ledger>,
    /// The workspaces of the batch at hand, and which of its reports wait for their sync.
    staged: HashMap<WorkspaceId, Vec<usize>>,
    known: HashMap<WorkspaceId, OwnFiles>,
}

/// A report of a batch.
type Reported<T> = (u64, T, Result<Report, StoreError>);

impl WorkspaceFiles {
    /// Appends an entry, whose report is number `place` of the batch.
    pub(super) fn append(
        &mut self,
        disk: &dyn Disk,
        layout: &Layout,
        id: &WorkspaceId,
        entry: &Entry,
        place: usize,
    ) -> Result<Report, StoreError> {
        let appended = self.held(disk, layout, id).and_then(|l| l.append(entry));
        if appended.is_err() {
            // A handle that failed is not used again; what was appended by it before was not synced.
            self.open.remove(id);
        }
        self.staged.entry(id.clone()).or_default().push(place);
        appended.map(|()| Report::UsageRecorded)
    }

    fn held(
        &mut self,
        disk: &dyn Disk,
        layout: &Layout,
        id: &WorkspaceId,
    ) -> Result<&mut Ledger, StoreError> {
        use std::collections::hash_map::Entry::{Occupied, Vacant};
        match self.open.entry(id.clone()) {
            Occupied(held) => Ok(held.into_mut()),
            Vacant(free) => {
                let (ledger, findings) = Ledger::open(disk, layout, id)?;
                ledger::report(id, &findings);
                Ok(free.insert(ledger))
            }
        }
    }

    /// Makes what the batch appended durable. Where that fails, so do its reports.
    pub(super) fn sync<T>(
        &mut self,
        disk: &dyn Disk,
        layout: &Layout,
        reported: &mut [Reported<T>],
    ) {
        for (id, places) in std::mem::take(&mut self.staged) {
            // Without its handle something of it failed, and nothing of it is known to be durable.
            let synced = match self.open.get_mut(&id) {
                Some(ledger) => ledger.sync(),
                None => Err(places
                    .iter()
                    .find_map(|place| match reported.get(*place) {
                        Some((_, _, Err(error))) => Some(again(error)),
                        _ => None,
                    })
                    .unwrap_or_else(|| StoreError::Unwritable {
                        problem: "the ledger was not written".to_owned(),
                    })),
            };
            let Err(error) = synced else {
                self.compact(disk, layout, &id);
                continue;
            };
            self.open.remove(&id);
            for place in places {
                if let Some((_, _, result)) = reported.get_mut(place)
                    && result.is_ok()
                {
                    *result = Err(again(&error));
                }
            }
        }
    }

    /// What is durable stays so if writing the file anew fails.
    fn compact(&mut self, disk: &dyn Disk, layout: &Layout, id: &WorkspaceId) {
        let Some(ledger) = self.open.get_mut(id) else {
            return;
        };
        let is_due = ledger.is_compact_due();
        let bytes = ledger.len();
        if !is_due {
            return self.note(disk, layout, id, |own| own.note_ledger(disk, bytes));
        }
        // No claim may be left that the new file does not meet.
        let released = self
            .known(disk, layout, id)
            .and_then(|own| own.release_ledger(disk));
        let compacted = released.and_then(|()| match self.open.get_mut(id) {
            Some(ledger) => ledger.compact(disk),
            None => Ok(()),
        });
        if let Err(error) = compacted {
            self.open.remove(id);
            tracing::warn!(
                workspace_id = %id,
                error = &error as &dyn std::error::Error,
                "what replies of models took could not be written anew as sums"
            );
            return;
        }
        self.note(disk, layout, id, |own| own.note(disk, LEDGER_FILE));
    }

    /// Appends a record to a workspace's audit log. Durable when it returns.
    pub(super) fn audit(
        &mut self,
        disk: &dyn Disk,
        layout: &Layout,
        id: &WorkspaceId,
        record: &JsonObject,
    ) -> Result<(), StoreError> {
        workspace::append_audit(disk, layout, id, record)?;
        self.note(disk, layout, id, |own| own.note(disk, AUDIT_FILE));
        Ok(())
    }

    /// A person knows of what is missing of a workspace's own files.
    pub(super) fn acknowledge(
        &mut self,
        disk: &dyn Disk,
        layout: &Layout,
        id: &WorkspaceId,
    ) -> Result<(), StoreError> {
        self.known(disk, layout, id)?.acknowledge(disk)
    }

    fn known(
        &mut self,
        disk: &dyn Disk,
        layout: &Layout,
        id: &WorkspaceId,
    ) -> Result<&mut OwnFiles, StoreError> {
        use std::collections::hash_map::Entry::{Occupied, Vacant};
        match self.known.entry(id.clone()) {
            Occupied(known) => Ok(known.into_mut()),
            Vacant(free) => Ok(free.insert(OwnFiles::open(disk, &layout.workspace(id))?)),
        }
    }

    /// That a file's state cannot be noted is no reason to refuse what is durable in it.
    fn note(
        &mut self,
        disk: &dyn Disk,
        layout: &Layout,
        id: &WorkspaceId,
        how: impl FnOnce(&mut OwnFiles) -> Result<(), StoreError>,
    ) {
        if let Err(error) = self.known(disk, layout, id).and_then(how) {
            self.known.remove(id);
            tracing::warn!(
                workspace_id = %id,
                error = &error as &dyn std::error::Error,
                "what was last known of a workspace's files could not be written; losses of them may go unnoticed"
            );
        }
    }
}
