//! Recovery of operations interrupted by a crash: publishing a proposal in `proposal/`, applying
//! files, appending to the run's log, merging (`PROP-3`).

use std::path::Path;

use goondan_durable::disk::Folder;
use goondan_protocol::control::{ProposalState, RunEventKind};
use goondan_trees::limits::PATCH_BYTES_MAX;
use goondan_trees::swap::{self, Specials, SwapRecovery, SwapSite};
use goondan_trees::{Names, remove_all};

use crate::error::{IoContext as _, ProposalError};
use crate::place::{
    APPLY, KEPT, PATCH, PROPOSAL, PUBLISHED, RECORD, REVERT, STAGING, SUMMARY, TEST_LOG,
};
use crate::record::{read_file, write_file};
use crate::sandboxes::{OpenSandbox, Sandboxes};

impl Sandboxes<'_> {
    /// Completes interrupted operations in every sandbox. Returns an error for each that failed;
    /// the next request for it retries.
    pub fn recover_all(&mut self) -> Vec<ProposalError> {
        let all = match self.all(None) {
            Ok(all) => all,
            Err(error) => return vec![error],
        };
        let mut problems = Vec::new();
        for at in all {
            problems.extend(self.open(&at).err());
        }
        problems
    }

    /// Completes interrupted operations in one sandbox.
    pub(crate) fn recover(&mut self, open: &OpenSandbox) -> Result<(), ProposalError> {
        if self.standing(&open.at)?.is_none() {
            self.finish_merge(open)?;
        }
        let Some(standing) = self.standing(&open.at)? else {
            return Ok(());
        };
        let (journal, kind) = match standing.state {
            ProposalState::Open => (APPLY, RunEventKind::ProposalApplied),
            ProposalState::Applied => (REVERT, RunEventKind::ProposalReverted),
            ProposalState::Rejected | ProposalState::Reverted => return Ok(()),
        };
        self.publish(open, &standing.digest)?;
        if standing.state == ProposalState::Open {
            self.hand_on_late(open, &standing.digest)?;
        }
        let name = Path::new(KEPT).join(&standing.digest).join(journal);
        let stat = open.folder.look(&name).during("inspect", &name)?;
        if stat.is_none() {
            return Ok(());
        }
        let folder = open.folder.below(&name).during("open", &name)?;
        if folder
            .names(Path::new(""))
            .during("list", &name)?
            .is_empty()
        {
            return Ok(());
        }
        let root = self.project()?;
        let place = SwapSite {
            journal: folder.as_ref(),
            root: root.as_ref(),
            names: Names::Portable,
            specials: Specials::Refuse,
        };
        let digest = Some(standing.digest.as_str());
        match swap::recover(place)? {
            SwapRecovery::Nothing => Ok(()),
            SwapRecovery::New { kept } => {
                let mut detail = "it was finished after an interruption".to_owned();
                for aside in self.displaced_files(kept) {
                    let at = aside.at.display();
                    detail.push_str(&format!(
                        "; a person's changes to {} were saved to {at}",
                        aside.path
                    ));
                }
                self.note(&open.at, kind, digest, detail)
            }
            SwapRecovery::Old { left, kept } => {
                let mut detail = "it was interrupted and rolled back".to_owned();
                for path in left {
                    detail.push_str(&format!("; {path} was changed in the meantime and kept"));
                }
                for aside in self.displaced_files(kept) {
                    let at = aside.at.display();
                    detail.push_str(&format!(
                        "; a person's changes to {} were saved to {at}",
                        aside.path
                    ));
                }
                let kind = RunEventKind::ProposalReviewed;
                self.note(&open.at, kind, digest, detail)
            }
        }
    }

    /// Publishes a proposal for users and workers, once.
    pub(crate) fn publish(&self, open: &OpenSandbox, digest: &str) -> Result<(), ProposalError> {
        let name = Path::new(KEPT).join(digest);
        let kept = open.folder.below(&name).during("open", &name)?;
        let mark = Path::new(PUBLISHED);
        if kept.look(mark).during("inspect", mark)?.is_some() {
            return Ok(());
        }
        let at = Path::new(PROPOSAL);
        let stat = open.folder.look(at).during("inspect", at)?;
        let is_directory =
            stat.is_some_and(|stat| stat.kind == goondan_durable::disk::NodeKind::Directory);
        if !is_directory {
            remove_all(open.folder.as_ref(), at)?;
            open.folder.create_dir(at, 0o700).during("create", at)?;
            open.folder.sync_dir(Path::new("")).during("sync", at)?;
        }
        let folder = open.below(PROPOSAL)?;
        for name in [PATCH, SUMMARY, TEST_LOG, RECORD] {
            put(kept.as_ref(), folder.as_ref(), name)?;
        }
        folder.sync_dir(Path::new("")).during("sync", at)?;
        write_file(kept.as_ref(), PUBLISHED, b"")?;
        kept.sync_dir(Path::new("")).during("sync", mark)
    }
}

/// Replaces a file or directory with a stored file, or removes it if no such file is stored.
fn put(kept: &dyn Folder, folder: &dyn Folder, name: &str) -> Result<(), ProposalError> {
    let path = Path::new(name);
    let Some(content) = read_file(kept, name, PATCH_BYTES_MAX)? else {
        return Ok(remove_all(folder, path)?);
    };
    let new_name = format!(".{name}{STAGING}");
    let new = Path::new(&new_name);
    remove_all(folder, new)?;
    write_file(folder, &new_name, &content)?;
    if folder.look(path).during("inspect", path)?.is_some() {
        folder.exchange(new, path).during("exchange", path)?;
        remove_all(folder, new)?;
    } else {
        folder.rename_new(new, path).during("rename", path)?;
    }
    Ok(())
}
