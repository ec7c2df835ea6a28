//! Open ledgers, audit logs and manifests of workspaces in a writer thread. Many entries of a
//! ledger share one sync.

use std::collections::HashMap;

use goondan_durable::FileError;
use goondan_durable::disk::Disk;
use goondan_protocol::JsonObject;
use goondan_protocol::ids::WorkspaceId;

use super::outcome::again;
use crate::error::StoreError;
use crate::ledger::{self, LEDGER_FILE, Ledger, LedgerEntry};
use crate::own_files::FolderManifest;
use crate::root::{AUDIT_FILE, Layout};
use crate::workspace;

#[derive(Debug, Default)]
pub(super) struct WorkspaceFiles {
    open: HashMap<WorkspaceId, Ledger>,
    /// Workspaces with ledger entries in the current batch, and the first error of each.
    staged: HashMap<WorkspaceId, Option<StoreError>>,
    known: HashMap<WorkspaceId, FolderManifest>,
}

impl WorkspaceFiles {
    /// Appends an entry. [`Self::sync`] makes it durable.
    pub(super) fn append(
        &mut self,
        disk: &dyn Disk,
        layout: &Layout,
        id: &WorkspaceId,
        entry: &LedgerEntry,
    ) -> Result<(), StoreError> {
        let appended = self.held(disk, layout, id).and_then(|l| l.append(entry));
        let failure = self.staged.entry(id.clone()).or_default();
        if let Err(error) = &appended {
            // A failed handle is not reused. Its earlier entries of this batch are not synced, so
            // they fail too.
            self.open.remove(id);
            failure.get_or_insert_with(|| again(error));
        }
        appended
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

    /// Syncs the entries of the batch. Returns the workspaces whose sync failed, with the error:
    /// all their entries failed.
    pub(super) fn sync(
        &mut self,
        disk: &dyn Disk,
        layout: &Layout,
    ) -> HashMap<WorkspaceId, StoreError> {
        let mut failed = HashMap::new();
        for (id, failure) in std::mem::take(&mut self.staged) {
            let synced = match (failure, self.open.get_mut(&id)) {
                (Some(error), _) => Err(error),
                (None, Some(ledger)) => ledger.sync(),
                (None, None) => {
                    let problem = "failed to write the ledger".to_owned();
                    Err(FileError::Unwritable { problem }.into())
                }
            };
            match synced {
                Ok(()) => self.compact(disk, layout, &id),
                Err(error) => {
                    self.open.remove(&id);
                    failed.insert(id, error);
                }
            }
        }
        failed
    }

    /// Entries stay durable if compaction fails.
    fn compact(&mut self, disk: &dyn Disk, layout: &Layout, id: &WorkspaceId) {
        let Some(ledger) = self.open.get_mut(id) else {
            return;
        };
        let is_due = ledger.is_compact_due();
        let bytes = ledger.len();
        if !is_due {
            return self.note(disk, layout, id, |own| own.note_ledger(disk, bytes));
        }
        // Claims that the new file does not meet must be dropped.
        let released = self
            .known(disk, layout, id)
            .and_then(|own| Ok(own.release_ledger(disk)?));
        let compacted = released.and_then(|()| match self.open.get_mut(id) {
            Some(ledger) => ledger.compact(disk),
            None => Ok(()),
        });
        if let Err(error) = compacted {
            self.open.remove(id);
            tracing::warn!(
                workspace_id = %id,
                error = &error as &dyn std::error::Error,
                "failed to compact the usage ledger"
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

    /// Closes the files of a workspace.
    pub(super) fn let_go(&mut self, id: &WorkspaceId) {
        self.open.remove(id);
        self.known.remove(id);
    }

    /// Acknowledges the losses of a workspace's own files.
    pub(super) fn acknowledge(
        &mut self,
        disk: &dyn Disk,
        layout: &Layout,
        id: &WorkspaceId,
    ) -> Result<(), StoreError> {
        Ok(self.known(disk, layout, id)?.acknowledge(disk)?)
    }

    fn known(
        &mut self,
        disk: &dyn Disk,
        layout: &Layout,
        id: &WorkspaceId,
    ) -> Result<&mut FolderManifest, StoreError> {
        use std::collections::hash_map::Entry::{Occupied, Vacant};
        match self.known.entry(id.clone()) {
            Occupied(known) => Ok(known.into_mut()),
            Vacant(free) => Ok(free.insert(FolderManifest::open(disk, &layout.workspace(id))?)),
        }
    }

    /// A failed manifest update is logged only, because the data in the file is durable.
    fn note(
        &mut self,
        disk: &dyn Disk,
        layout: &Layout,
        id: &WorkspaceId,
        how: impl FnOnce(&mut FolderManifest) -> Result<(), FileError>,
    ) {
        let noted = self.known(disk, layout, id);
        if let Err(error) = noted.and_then(|own| Ok(how(own)?)) {
            self.known.remove(id);
            tracing::warn!(
                workspace_id = %id,
                error = &error as &dyn std::error::Error,
                "failed to update the manifest of a workspace's files; a later loss may go unnoticed"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    //! A crash never makes ledger data look missing, and removed data is reported.

    use std::path::Path;

    use goondan_durable::FindingKind;
    use goondan_durable::IoContext as _;
    use goondan_durable::disk::{Crash, SimulatedDisk};
    use goondan_protocol::time::Timestamp;
    use goondan_protocol::usage::Charge;
    use uuid::Uuid;

    use super::*;
    use crate::limits::LEDGER_NOTE_BYTES;
    use crate::verify;

    /// Entries that trigger a compaction.
    const COMPACTED_AFTER: u64 = 6;
    const ENTRIES: u64 = 16;

    /// An entry of about 5 kB, so that a few entries trigger a manifest update.
    fn entry(number: u64) -> LedgerEntry {
        let asked_by = (0..100).map(|n| format!("{n:0>40}").parse().unwrap());
        LedgerEntry {
            id: Uuid::from_u128(number.into()),
            at: Timestamp::from_unix_millis(1_767_225_600_000),
            agent_name: "clerk".parse().unwrap(),
            instance_key: "main".parse().unwrap(),
            asked_by: asked_by.collect(),
            asked_by_agents: Vec::new(),
            purpose: ledger::ReplyPurpose::Step {
                turn_id: "t".parse().unwrap(),
                step_id: "t.1".parse().unwrap(),
                task: None,
                bundle_revision: None,
            },
            model: "big".parse().unwrap(),
            usage: None,
            cost_micro_usd: None,
            assumed: Charge::default(),
        }
    }

    fn open(disk: &SimulatedDisk, layout: &Layout) -> Result<WorkspaceId, StoreError> {
        Ok(workspace::open(disk, layout, Path::new("/p"), None)?.workspace_id)
    }

    /// One run of a ledger with several manifest updates and one compaction.
    fn live(disk: &SimulatedDisk, layout: &Layout) -> Result<(), StoreError> {
        let id = open(disk, layout)?;
        let mut files = WorkspaceFiles::default();
        for number in 0..ENTRIES {
            let appended = files.append(disk, layout, &id, &entry(number));
            if number == COMPACTED_AFTER
                && let Some(ledger) = files.open.get_mut(&id)
            {
                ledger.make_large();
            }
            let failure = files.sync(disk, layout).remove(&id);
            appended.and(failure.map_or(Ok(()), Err))?;
        }
        // The writer survives a failed manifest update or compaction; the simulated machine does
        // not.
        let root = Path::new("/s");
        disk.stat(root).during("inspect", root)?;
        Ok(())
    }

    fn fresh() -> (SimulatedDisk, Layout) {
        let disk = SimulatedDisk::new();
        for dir in ["/s", "/s/workspaces"] {
            disk.create_dir(Path::new(dir)).unwrap();
        }
        for dir in ["/", "/s"] {
            disk.sync_dir(Path::new(dir)).unwrap();
        }
        (disk, Layout::new("/s"))
    }

    fn found(disk: &SimulatedDisk, layout: &Layout) -> Vec<FindingKind> {
        let id = open(disk, layout).unwrap();
        let found = verify::workspace_files(disk, layout, &id).unwrap().findings;
        found.into_iter().map(|finding| finding.kind).collect()
    }

    #[test]
    fn msg_11_no_crash_makes_a_ledger_look_shorter_or_replaced() {
        for call in 0.. {
            let mut has_ended = true;
            for crash in [
                Crash::LoseUnsynced,
                Crash::KeepUnsynced,
                Crash::Subset(call),
            ] {
                let (disk, layout) = fresh();
                open(&disk, &layout).unwrap();
                disk.crash_at(disk.calls() + call);
                has_ended &= live(&disk, &layout).is_ok();
                let after = disk.after_crash(crash);
                let is_loss = |kind: &FindingKind| {
                    matches!(
                        kind,
                        FindingKind::MissingRecords | FindingKind::ReplacedFile
                    )
                };
                let lost = |disk| found(disk, &layout).iter().any(is_loss);
                assert!(!lost(&after), "call {call}, {crash:?}");
                live(&after, &layout).unwrap();
                assert_eq!(found(&after, &layout), [], "call {call}, {crash:?}");
            }
            if has_ended {
                return;
            }
        }
    }

    #[test]
    fn msg_11_ledger_cut_before_its_last_note_is_reported() {
        let (disk, layout) = fresh();
        live(&disk, &layout).unwrap();
        let id = open(&disk, &layout).unwrap();
        let path = layout.workspace(&id).join(LEDGER_FILE);
        let mut file = disk.open_read(&path).unwrap();
        let content = goondan_durable::disk::read_all(file.as_mut(), 1 << 20).unwrap();
        let noted = content.len() - usize::try_from(LEDGER_NOTE_BYTES).unwrap();
        let ends: Vec<usize> = (0..noted)
            .filter(|at| content.get(*at) == Some(&b'\n'))
            .collect();
        assert!(ends.len() > 3);
        for end in ends {
            goondan_durable::files::replace(&disk, &path, &content[..=end]).unwrap();
            let kinds = found(&disk, &layout);
            assert_eq!(kinds, [FindingKind::MissingRecords], "cut at {end}");
        }
    }
}
