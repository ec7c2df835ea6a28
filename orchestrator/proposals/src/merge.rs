//! Creates a new proposal from one whose files have changed in the project meanwhile (`PROP-4`).
//!
//! The base is the worker's baseline; the two sides are the current Project Root and the worker's
//! proposal. The new proposal has its own sandbox: the project's current files are its `input` and
//! the merged files its `work`, and it is created and verified like any other. The old proposal
//! stays unchanged.
//!
//! The sandbox gets its name when the proposal is in it. The run's log records the proposal's
//! digest before that, so that recovery can finish an interrupted merge.

use std::collections::BTreeSet;
use std::path::Path;

use goondan_durable::disk::{Folder, NodeKind};
use goondan_protocol::control::{
    CreateProposal, MergeBase, MergeProposal, ProposalBase, ProposalMerged, ProposalRefusal,
    RefusalKind, RunEventKind, SandboxRef,
};
use goondan_protocol::ids::{WorkerId, WorkspaceId};
use goondan_trees::apply::Tree;
use goondan_trees::freeze::{EntryPolicy, TreeSnapshot, freeze_read_only};
use goondan_trees::merge::{Conflict, Merge, MergeOutcome, merge};
use goondan_trees::{Manifest, RelativePath, remove_all};

use crate::create::PatchVerifier;
use crate::entries::{leaves, standing};
use crate::error::{IoContext as _, ProposalError};
use crate::guards::{excludes, options};
use crate::limits::{MERGED_NAMES_MAX, SUMMARY_BYTES_MAX};
use crate::place::{
    AFTER, EVENTS, INPUT, KEPT, PARTIAL, PROPOSAL, SANDBOX, SUMMARY, WORK, run_dir, sandbox_name,
};
use crate::record::{RECORD_VERSION, SandboxRecord, read_file, write_file, written};
use crate::sandboxes::{OpenSandbox, Sandboxes, StoredProposal};
use crate::texts::{contradiction, made_summary};

/// Result of a merge, in a directory that does not have its final name yet.
enum MergeResult {
    /// A sandbox with a proposal, whose digest this is.
    Made(String),
    /// The conflicts; no sandbox was built.
    Conflicts(Vec<ProposalRefusal>),
}

struct MergeSource<'s> {
    open: &'s OpenSandbox,
    kept: &'s StoredProposal,
}

impl Sandboxes<'_> {
    /// Creates a new proposal from one that is refused because the project changed. The creation is
    /// atomic and durable. The Project Root and the old proposal stay unchanged.
    ///
    /// # Errors
    ///
    /// [`ProposalError::Standing`] if the proposal is not pending, [`ProposalError::Refused`] if it
    /// has problems other than changes in the project, [`ProposalError::Invalid`] if there is
    /// nothing to merge, [`ProposalError::Taken`]. Merge conflicts are part of the result.
    pub fn merge(
        &mut self,
        request: &MergeProposal,
        git: &dyn PatchVerifier,
    ) -> Result<ProposalMerged, ProposalError> {
        let open = self.open(&request.at)?;
        let kept = self.kept(&open)?;
        self.refuse_needless_merge(&open, &kept)?;
        let run = run_dir(&self.dir, &open.at.run_id);
        let folder = self.files.folder(&run).during("open", &run)?;
        let to = self.target(request, folder.as_ref())?;
        let name = sandbox_name(&to);
        let partial = format!(".{name}{PARTIAL}");
        let source = MergeSource {
            open: &open,
            kept: &kept,
        };
        let workspace = &request.workspace_id;
        let built = self.build_merged((folder.as_ref(), &partial), &to, workspace, &source, git);
        let placed = built.and_then(|built| match built {
            MergeResult::Conflicts(conflicts) => Ok(Err(conflicts)),
            MergeResult::Made(digest) => {
                let kind = RunEventKind::SandboxPrepared;
                self.note(&to, kind, Some(&digest), "for a merged proposal")?;
                let (from, to) = (Path::new(&partial), Path::new(&name));
                folder
                    .rename_new(from, to)
                    .during("rename", &run.join(to))?;
                folder.sync_dir(Path::new("")).during("sync", &run)?;
                Ok(Ok(digest))
            }
        });
        if !matches!(placed, Ok(Ok(_))) {
            // The next attempt removes the remains.
            drop(remove_all(folder.as_ref(), Path::new(&partial)));
        }
        let digest = match placed? {
            Ok(digest) => digest,
            Err(conflicts) => {
                return Ok(ProposalMerged {
                    proposal: None,
                    conflicts,
                });
            }
        };
        let made = self.look(&to)?;
        self.note_created(&made, &digest)?;
        self.publish(&made, &digest)?;
        Ok(ProposalMerged {
            proposal: Some(self.show_open(&made)?),
            conflicts: Vec::new(),
        })
    }

    /// Finishes a merge whose sandbox has its final name, but whose proposal is in no log yet.
    pub(crate) fn finish_merge(&mut self, open: &OpenSandbox) -> Result<(), ProposalError> {
        let events = self.events(&open.at.run_id)?;
        let last = events
            .iter()
            .rfind(|event| event.agent_id == open.at.agent_id);
        let prepared = last.filter(|event| event.kind == RunEventKind::SandboxPrepared);
        let Some(digest) = prepared.and_then(|event| event.digest.as_ref()) else {
            return Ok(());
        };
        let name = Path::new(KEPT).join(digest);
        if open.folder.look(&name).during("inspect", &name)?.is_none() {
            return Ok(());
        }
        self.note_created(open, digest)
    }

    /// Refuses a proposal that needs no merge, or that a merge cannot repair.
    fn refuse_needless_merge(
        &mut self,
        open: &OpenSandbox,
        kept: &StoredProposal,
    ) -> Result<(), ProposalError> {
        let SandboxRef { run_id, agent_id } = &open.at;
        let review = self.examine_and_record(open, kept, Vec::new(), None)?;
        if review.can_apply {
            return Err(ProposalError::invalid(
                format!("the proposal of `{agent_id}` can be applied without a merge"),
                format!("apply it: `gdn proposal apply {run_id} {agent_id}`"),
            ));
        }
        let stands = |refusal: &ProposalRefusal| !refusal.is_stale();
        if review.refusals.iter().any(stands) {
            return Err(ProposalError::Refused {
                what: "the merge",
                refusals: review.refusals.into_iter().filter(stands).collect(),
                kept: Vec::new(),
                merge: None,
            });
        }
        Ok(())
    }

    /// Path and name for the sandbox of the new proposal.
    fn target(
        &self,
        request: &MergeProposal,
        run: &dyn Folder,
    ) -> Result<SandboxRef, ProposalError> {
        let of = |agent_id: WorkerId| SandboxRef {
            run_id: request.at.run_id.clone(),
            agent_id,
        };
        let is_free = |at: &SandboxRef| -> Result<bool, ProposalError> {
            let name = sandbox_name(at);
            let found = run
                .look(Path::new(&name))
                .during("inspect", Path::new(&name));
            Ok(name != EVENTS && found?.is_none())
        };
        if let Some(agent_id) = &request.into {
            let at = of(agent_id.clone());
            return if is_free(&at)? {
                Ok(at)
            } else {
                Err(ProposalError::Taken { at })
            };
        }
        let agent = request.at.agent_id.as_str();
        // A merged proposal that is merged again keeps its base name.
        let agent = match agent.rsplit_once("-merged") {
            Some((agent, "")) => agent,
            Some((agent, number)) if is_number(number) => agent,
            _ => agent,
        };
        for number in 1..=MERGED_NAMES_MAX {
            let name = match number {
                1 => format!("{agent}-merged"),
                number => format!("{agent}-merged-{number}"),
            };
            let Ok(agent_id) = name.parse() else {
                return Err(ProposalError::invalid(
                    format!("`{name}` is too long for a worker's name"),
                    "choose another name for the new proposal: `--into NAME`",
                ));
            };
            let at = of(agent_id);
            if is_free(&at)? {
                return Ok(at);
            }
        }
        Err(ProposalError::invalid(
            format!("`{agent}` already has {MERGED_NAMES_MAX} merged proposals"),
            "remove some: `gdn proposal sandbox remove`",
        ))
    }

    /// Builds the new sandbox in a directory next to its final one.
    fn build_merged(
        &self,
        (run, partial): (&dyn Folder, &str),
        to: &SandboxRef,
        workspace: &WorkspaceId,
        source: &MergeSource<'_>,
        git: &dyn PatchVerifier,
    ) -> Result<MergeResult, ProposalError> {
        let path = Path::new(partial);
        remove_all(run, path)?;
        run.create_dir(path, 0o700).during("create", path)?;
        let sandbox = run.below(path).during("open", path)?;
        let (git_head, now) = self.freeze_now(source, sandbox.as_ref())?;
        let merged = match merge_sides(source, &now, sandbox.as_ref())? {
            Ok(merged) => merged,
            Err(conflicts) => {
                let told = conflicts
                    .iter()
                    .map(|found| conflict_refusal(found, source, &now));
                return Ok(MergeResult::Conflicts(told.collect()));
            }
        };
        for name in [PROPOSAL, KEPT] {
            let name = Path::new(name);
            sandbox.create_dir(name, 0o700).during("create", name)?;
        }
        let old = &source.open.record;
        let record = SandboxRecord {
            version: RECORD_VERSION.to_owned(),
            at: to.clone(),
            created_at: self.now,
            base: ProposalBase {
                git_head,
                sha256: now.manifest.digest()?.to_string(),
            },
            may_create: old.may_create.clone(),
            not_given: old.not_given.clone(),
            ignored: old.ignored.clone(),
            repository: None,
            rebased_from: None,
            merged_from: Some(MergeBase {
                run_id: source.open.at.run_id.clone(),
                agent_id: source.open.at.agent_id.clone(),
                digest: source.kept.standing.digest.clone(),
                files: merged.merged_files().map(RelativePath::to_string).collect(),
            }),
            given: now.manifest,
        };
        write_file(sandbox.as_ref(), SANDBOX, &written(&record)?)?;
        sandbox.sync_dir(Path::new("")).during("sync", path)?;
        let made = OpenSandbox {
            at: to.clone(),
            path: run_dir(&self.dir, &to.run_id).join(path),
            folder: sandbox,
            record,
        };
        let digest = self.keep(&made, &handed_in(to, workspace, source)?, git)?;
        made.folder.sync_dir(Path::new("")).during("sync", path)?;
        Ok(MergeResult::Made(digest))
    }

    /// Copies the current versions of the proposal's paths from the Project Root.
    fn freeze_now(
        &self,
        source: &MergeSource<'_>,
        sandbox: &dyn Folder,
    ) -> Result<(Option<String>, TreeSnapshot), ProposalError> {
        let project = self.project()?;
        let manifests = [&source.open.record.given, &source.kept.details.after];
        let mut chosen: BTreeSet<RelativePath> = manifests.into_iter().flat_map(leaves).collect();
        for (path, entry) in manifests.into_iter().flat_map(Manifest::entries) {
            // Files that replaced a directory must be listed, too.
            if entry.is_directory() && !chosen.contains(path) {
                let found = project.look(path.as_path());
                let found = found.during("inspect", path.as_path())?;
                if found.is_some_and(|stat| stat.kind != NodeKind::Directory) {
                    chosen.insert(path.clone());
                }
            }
        }
        let copied = excludes(&[], chosen.iter().cloned())?.only(chosen);
        let copied = options(copied, EntryPolicy::Refuse);
        self.at_head(|| freeze_read_only(project.as_ref(), sandbox, INPUT, &copied))
    }
}

fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Merges the sides into `work/`, if they do not conflict.
fn merge_sides(
    source: &MergeSource<'_>,
    now: &TreeSnapshot,
    sandbox: &dyn Folder,
) -> Result<Result<Merge, Vec<Conflict>>, ProposalError> {
    let given = source.open.input()?;
    let below = |folder: &dyn Folder, name: &str| {
        let path = Path::new(name);
        folder.below(path).during("open", path)
    };
    let (ours, theirs) = (
        below(sandbox, INPUT)?,
        below(source.kept.folder.as_ref(), AFTER)?,
    );
    let tree = |manifest, folder| Tree { manifest, folder };
    let after = &source.kept.details.after;
    let outcome = merge(
        tree(&source.open.record.given, given.as_ref()),
        tree(&now.manifest, ours.as_ref()),
        tree(after, theirs.as_ref()),
    )?;
    let merged = match outcome {
        MergeOutcome::Merged(merged) => merged,
        MergeOutcome::Conflicts(conflicts) => return Ok(Err(conflicts)),
    };
    if *merged.manifest() == now.manifest {
        let SandboxRef { run_id, agent_id } = &source.open.at;
        return Err(ProposalError::invalid(
            format!("the project already contains all changes of `{agent_id}`"),
            format!("reject the proposal: `gdn proposal reject {run_id} {agent_id}`"),
        ));
    }
    merged.write(ours.as_ref(), theirs.as_ref(), sandbox, WORK)?;
    Ok(Ok(merged))
}

/// The new proposal. Test results of the old one do not apply to it.
fn handed_in(
    to: &SandboxRef,
    workspace: &WorkspaceId,
    source: &MergeSource<'_>,
) -> Result<CreateProposal, ProposalError> {
    let record = &source.kept.record;
    let summary = read_file(source.kept.folder.as_ref(), SUMMARY, SUMMARY_BYTES_MAX)?;
    // A generated summary would list the files of the old proposal.
    let summary = summary.filter(|text| *text != made_summary(&record.changed_files).into_bytes());
    Ok(CreateProposal {
        workspace_id: workspace.clone(),
        at: to.clone(),
        notes: record.notes.clone(),
        summary: summary.map(|text| String::from_utf8_lossy(&text).into_owned()),
        test_log: None,
    })
}

/// A conflict, with the original, the proposed and the current version.
fn conflict_refusal(
    conflict: &Conflict,
    source: &MergeSource<'_>,
    now: &TreeSnapshot,
) -> ProposalRefusal {
    let path = &conflict.path;
    ProposalRefusal {
        kind: RefusalKind::Conflict,
        path: Some(path.to_string()),
        reason: contradiction(&conflict.reason),
        given: Some(standing(source.open.record.given.get(path))),
        proposed: Some(standing(source.kept.details.after.get(path))),
        found: Some(standing(now.manifest.get(path))),
    }
}
