//! The ledgers of workspaces that a writer thread holds open: many entries, one sync.

use std::collections::HashMap;

use goondan_protocol::ids::WorkspaceId;

use super::Report;
use super::outcome::again;
use crate::disk::Disk;
use crate::error::StoreError;
use crate::ledger::{self, Entry, Ledger};
use crate::root::Layout;

#[derive(Debug, Default)]
pub(super) struct Ledgers {
    open: HashMap<WorkspaceId, Ledger>,
    /// The workspaces of the batch at hand, and which of its reports wait for their sync.
    staged: HashMap<WorkspaceId, Vec<usize>>,
}

/// A report of a batch.
type Reported<T> = (u64, T, Result<Report, StoreError>);

impl Ledgers {
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
    pub(super) fn sync<T>(&mut self, disk: &dyn Disk, reported: &mut [Reported<T>]) {
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
                self.compact(disk, &id);
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
    fn compact(&mut self, disk: &dyn Disk, id: &WorkspaceId) {
        let compacted = self.open.get_mut(id).map(|ledger| ledger.compact(disk));
        if let Some(Err(error)) = compacted {
            self.open.remove(id);
            tracing::warn!(
                workspace_id = %id,
                error = &error as &dyn std::error::Error,
                "what replies of models took could not be written anew as sums"
            );
        }
    }
}
