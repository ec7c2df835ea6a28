//! Putting a proposal in place, turning it down, taking it back (`PROP-3`).

use std::path::Path;

use goondan_protocol::control::{
    ApplyProposal, DisplacedUserFile, ProposalApplied, ProposalInfo, ProposalRefusal,
    ProposalState, RunEventKind, SandboxRef,
};
use goondan_trees::swap::{self, DisplacedFile as KeptFile, Specials, SwapError, SwapSite};
use goondan_trees::{Names, PathChange, RelativePath};

use crate::error::{IoContext as _, ProposalError};
use crate::limits::SUMMARY_BYTES_MAX;
use crate::place::{AFTER, APPLY, KEPT, PLAN, REVERT, STAGING, sandbox_name};
use crate::review::{changes_of, in_the_way, late_refusals};
use crate::sandboxes::{OpenSandbox, Sandboxes, StoredProposal};
use crate::texts::with_agent;

impl Sandboxes<'_> {
    /// Applies a proposal to the Project Root atomically.
    ///
    /// # Errors
    ///
    /// [`ProposalError::Refused`] with every reason. After any error except
    /// [`ProposalError::Unfinished`], the Project Root is unchanged.
    pub fn apply(&mut self, request: &ApplyProposal) -> Result<ProposalApplied, ProposalError> {
        let open = self.open(&request.at)?;
        let kept = self.kept(&open)?;
        Self::check_digest(request.digest.as_deref(), &kept)?;
        let review = self.examine_and_record(&open, &kept, Vec::new(), None)?;
        let stands =
            |refusal: &ProposalRefusal| !(request.allow_moved_base && refusal.is_overridable());
        let refusals = review.refusals.into_iter().filter(stands).collect();
        self.apply_reviewed(&open, &kept, refusals, None)
    }

    /// Applies a proposal that no check refuses.
    pub(crate) fn apply_reviewed(
        &mut self,
        open: &OpenSandbox,
        kept: &StoredProposal,
        refusals: Vec<ProposalRefusal>,
        by: Option<&str>,
    ) -> Result<ProposalApplied, ProposalError> {
        if !refusals.is_empty() {
            let refused = ProposalError::Refused {
                what: "the proposal",
                refusals,
                kept: Vec::new(),
                merge: None,
            };
            return Err(refused.or_merge(&open.at));
        }
        let changes = changes_of(open, kept);
        let after = Path::new(AFTER);
        let new = kept.folder.below(after).during("open", after)?;
        let aside = self.swap(kept, APPLY, &changes, |place| {
            swap::swap(place, new.as_ref(), &changes, STAGING)
        });
        let aside = aside.map_err(|error| error.or_merge(&open.at))?;
        let kind = RunEventKind::ProposalApplied;
        self.done(&open.at, kept, kind, by, &changes, aside)
    }

    /// Refuses a proposal other than the reviewed one.
    pub(crate) fn check_digest(
        reviewed: Option<&str>,
        kept: &StoredProposal,
    ) -> Result<(), ProposalError> {
        match reviewed {
            Some(digest) if *digest != kept.standing.digest => Err(ProposalError::invalid(
                "a newer proposal was submitted in the meantime",
                "review it again: `gdn proposal show`",
            )),
            _ => Ok(()),
        }
    }

    /// Applies the proposal of a task, unless that was done before.
    ///
    /// # Errors
    ///
    /// As [`Self::apply`].
    pub fn deliver(&mut self, request: &ApplyProposal) -> Result<ProposalApplied, ProposalError> {
        let open = self.open(&request.at)?;
        let kept = self.kept(&open)?;
        let is_it = |digest: &String| *digest == kept.standing.digest;
        let is_applied = kept.standing.state == ProposalState::Applied;
        if !is_applied || !request.digest.as_ref().is_none_or(is_it) {
            return self.apply(request);
        }
        Ok(self.applied_before(&open, &kept))
    }

    /// The result for a proposal that is applied already.
    pub(crate) fn applied_before(
        &self,
        open: &OpenSandbox,
        kept: &StoredProposal,
    ) -> ProposalApplied {
        let files = kept.record.changed_files.iter();
        ProposalApplied {
            files: files.map(|file| file.path.clone()).collect(),
            proposal: self.proposal_info(open, kept),
            kept: Vec::new(),
        }
    }

    /// Reverts an applied proposal atomically.
    ///
    /// # Errors
    ///
    /// [`ProposalError::Standing`] if the proposal is not applied; otherwise as
    /// [`apply`](Self::apply).
    pub fn revert(&mut self, at: &SandboxRef) -> Result<ProposalApplied, ProposalError> {
        let open = self.open(at)?;
        let kept = self.kept(&open)?;
        let state = kept.standing.state;
        if state != ProposalState::Applied {
            return Err(ProposalError::Standing {
                at: at.clone(),
                state,
                problem: "only an applied proposal can be reverted",
            });
        }
        let changes = changes_of(&open, &kept)
            .into_iter()
            .map(PathChange::inverse);
        let changes: Vec<PathChange> = changes.collect();
        let done = Path::new(APPLY);
        self.check_journal(&open, &kept)?;
        if kept.folder.look(done).during("inspect", done)?.is_none() {
            return Err(ProposalError::invalid(
                "it was applied on another node, and only that node has the previous files",
                "revert it there, or in the project's repository",
            ));
        }
        let done = kept.folder.below(done).during("open", done)?;
        let aside = self.swap(&kept, REVERT, &changes, |place| {
            swap::revert(done.as_ref(), place, STAGING)
        })?;
        let kind = RunEventKind::ProposalReverted;
        self.done(at, &kept, kind, None, &changes, aside)
    }

    /// Refuses to take a proposal back by a journal that is not as it was written.
    fn check_journal(
        &self,
        open: &OpenSandbox,
        kept: &StoredProposal,
    ) -> Result<(), ProposalError> {
        let name = Path::new(KEPT).join(&kept.standing.digest).join(APPLY);
        let plan = name.join(PLAN);
        let in_register = Path::new(&sandbox_name(&open.at)).join(&plan);
        let register = self.register(&open.at.run_id);
        let is_here = register.records(&in_register.to_string_lossy())?.is_some();
        let stat = open.folder.look(&plan).during("inspect", &plan)?;
        let lost = |path: &Path| ProposalError::Damaged {
            path: open.path.join(path),
            problem: "the stored previous files are damaged".to_owned(),
        };
        match stat {
            None if is_here => return Err(lost(&plan)),
            None => return Ok(()),
            Some(_) => {}
        }
        let journal = open.folder.below(&name).during("open", &name)?;
        let damage = swap::check(journal.as_ref(), Names::Portable)?;
        match damage.first() {
            Some(damage) => Err(lost(&name.join(&damage.path))),
            None => Ok(()),
        }
    }

    /// Turns a proposal down. It stays to be read; the worker may hand in another one.
    ///
    /// # Errors
    ///
    /// [`ProposalError::Standing`] if it does not wait for a person.
    pub fn reject(&mut self, at: &SandboxRef, reason: &str) -> Result<ProposalInfo, ProposalError> {
        if reason.len() > SUMMARY_BYTES_MAX {
            return Err(ProposalError::invalid(
                format!("a reason can have at most {SUMMARY_BYTES_MAX} bytes"),
                "shorten it",
            ));
        }
        let open = self.open(at)?;
        let kept = self.kept(&open)?;
        let state = kept.standing.state;
        if state != ProposalState::Open {
            return Err(ProposalError::Standing {
                at: at.clone(),
                state,
                problem: "only a waiting proposal can be rejected",
            });
        }
        let digest = Some(kept.standing.digest.as_str());
        self.note(at, RunEventKind::ProposalRejected, digest, reason)?;
        let kept = self.kept(&open)?;
        Ok(self.proposal_info(&open, &kept))
    }

    /// Does a swap with a journal of its own, below what is kept of the proposal.
    fn swap(
        &self,
        kept: &StoredProposal,
        journal: &str,
        changes: &[PathChange],
        work: impl FnOnce(SwapSite<'_>) -> Result<Vec<KeptFile>, SwapError>,
    ) -> Result<Vec<DisplacedUserFile>, ProposalError> {
        let name = Path::new(journal);
        let folder = kept.folder.as_ref();
        if folder.look(name).during("inspect", name)?.is_none() {
            folder.create_dir(name, 0o700).during("create", name)?;
            folder.sync_dir(Path::new("")).during("sync", name)?;
        }
        let journal = folder.below(name).during("open", name)?;
        let root = self.project()?;
        let place = SwapSite {
            journal: journal.as_ref(),
            root: root.as_ref(),
            names: Names::Portable,
            specials: Specials::Refuse,
        };
        match work(place) {
            Ok(aside) => Ok(self.displaced_files(aside)),
            Err(SwapError::Stale { stale, kept }) => Err(ProposalError::Refused {
                what: "the change of the project's files",
                refusals: late_refusals(changes, stale),
                kept: self.displaced_files(kept),
                merge: None,
            }),
            Err(SwapError::Blocked { by }) => Err(ProposalError::Refused {
                what: "the change of the project's files",
                refusals: vec![in_the_way(&by)],
                kept: Vec::new(),
                merge: None,
            }),
            Err(SwapError::Tree(error)) => Err(error.into()),
            Err(error @ SwapError::Unfinished(_)) => {
                Err(ProposalError::Unfinished(Box::new(error)))
            }
            Err(error @ (SwapError::Impossible { .. } | SwapError::Used)) => Err(
                ProposalError::invalid(error.to_string(), "see it with `gdn proposal show`"),
            ),
        }
    }

    /// Reports files that a swap moved aside, with paths that a user can open.
    pub(crate) fn displaced_files(&self, aside: Vec<KeptFile>) -> Vec<DisplacedUserFile> {
        let told = aside.into_iter().map(|kept| DisplacedUserFile {
            path: kept.path.to_string(),
            at: self.project_root.join(kept.at),
        });
        told.collect()
    }

    fn done(
        &mut self,
        at: &SandboxRef,
        kept: &StoredProposal,
        kind: RunEventKind,
        by: Option<&str>,
        changes: &[PathChange],
        aside: Vec<DisplacedUserFile>,
    ) -> Result<ProposalApplied, ProposalError> {
        let leaf = |change: &&PathChange| {
            let entries = [&change.old, &change.new];
            entries
                .iter()
                .any(|entry| entry.as_ref().is_some_and(|entry| !entry.is_directory()))
        };
        let files = changes.iter().filter(leaf).map(|change| &change.path);
        let files: Vec<String> = files.map(RelativePath::to_string).collect();
        let digest = kept.standing.digest.clone();
        let mut detail = match files.len() {
            1 => "1 file".to_owned(),
            count => format!("{count} files"),
        };
        for aside in &aside {
            let at = aside.at.display();
            detail.push_str(&format!(
                "; a person's changes to {} were saved to {at}",
                aside.path
            ));
        }
        self.note(at, kind, Some(&digest), with_agent(detail, by))?;
        let open = self.look(at)?;
        self.note_kept(&open)?;
        let kept = self.kept(&open)?;
        Ok(ProposalApplied {
            proposal: self.proposal_info(&open, &kept),
            files,
            kept: aside,
        })
    }
}
