//! Files of the merge queue of a project (`QUEUE-1`): its records, and its attempts.
//!
//! An attempt is a sandbox in the run `merge-queue`, prepared from the project's current files, with
//! the proposals of tasks merged into it, one after another. The result is a proposal like any
//! other, created before the proof runs in `work/`, so that the proof cannot change it. In the project,
//! it lands by the swap that applies every proposal, with its journal and its recovery; on a branch of
//! another repository, or in a pull request, by `queue_branch`.

use std::cmp::Reverse;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use goondan_durable::disk::Folder;
use goondan_durable::files::ensure_dir;
use goondan_durable::register::Register;
use goondan_durable::sealed_log::{SealedLog, unsealed};
use goondan_merge_queue::{Landing, LandingResult, Rebase, Record, Revision};
use goondan_protocol::control::{
    ApplyProposal, CreateProposal, MERGE_QUEUE, PrepareSandbox, ProposalRefusal, ProposalState,
    RunEvent, RunEventKind, SandboxRef,
};
use goondan_trees::freeze::{EntryPolicy, Options, scan};
use goondan_trees::remove_all;

use crate::error::{IoContext as _, ProposalError};
use crate::gitignore::{self, IgnoreFile, ignoring};
use crate::guards::{excludes, options};
use crate::limits::{LANDINGS_KEPT, QUEUED_SUMMARY_BYTES_MAX};
use crate::place::{CHECKOUT, KEPT, PARTIAL, QUEUE, WORK, run_dir, sandbox_name};
use crate::queue_branch::has_pull_request;
use crate::queue_requests::{QueueGit, QueuePlace, QueuedChanges, QueuedProposal};
use crate::queue_stack::{Stack, Stacking};
use crate::repository::BranchMaker;
use crate::review::unsound;
use crate::run_log::{self, ProposalStatus};
use crate::sandboxes::{OpenSandbox, Sandboxes, StoredProposal};

/// Begins the name of an attempt's sandbox.
const ATTEMPT: &str = "attempt-";

/// The sandbox of an attempt.
fn attempt_sandbox(attempt: u64) -> Result<SandboxRef, ProposalError> {
    let bug = |text: &str| {
        let problem = format!("`{text}` is not a valid name");
        ProposalError::invalid(problem, "this is a bug in goondan")
    };
    let agent = format!("{ATTEMPT}{attempt}");
    Ok(SandboxRef {
        run_id: MERGE_QUEUE.parse().map_err(|_| bug(MERGE_QUEUE))?,
        agent_id: agent.parse().map_err(|_| bug(&agent))?,
    })
}

/// True if a proposal was applied. A person may have reverted it since.
fn is_landing(proposal: Option<&ProposalStatus>) -> bool {
    use ProposalState::{Applied, Reverted};
    proposal.is_some_and(|it| matches!(it.state, Applied | Reverted))
}

/// State of the target that an attempt begins with: the commit of the branch, or the digest of the
/// project's files.
fn base_of(open: &OpenSandbox) -> Revision {
    let base = &open.record.base;
    match (&open.record.repository, &base.git_head) {
        (Some(_), Some(commit)) => Revision::new(commit),
        _ => Revision::new(&base.sha256),
    }
}

fn unchanged(base: Revision) -> Rebase {
    let result = base.clone();
    Rebase::Clean { base, result }
}

/// Title and text of a pull request, with the files that its proof ran on.
fn with_proof(summary: &str, base: &Revision, covered: &[String]) -> String {
    let end = summary.floor_char_boundary(QUEUED_SUMMARY_BYTES_MAX);
    let summary = summary.get(..end).unwrap_or_default().trim_end();
    let mut text = format!(
        "{summary}\n\n---\n\nThe merge queue of goondan ran `verify` on the files of this branch before it \
         opened or updated this pull request: commit {base} with this change"
    );
    match covered {
        [] => text.push('.'),
        covered => text.push_str(&format!(
            " and the changes of earlier pull requests. Merge the earlier ones first: {}.",
            covered.join(", ")
        )),
    }
    text
}

/// Options that select the files of a project for a task, and the lines of its `.gitignore` files.
pub(crate) fn task_files(
    project: &dyn Folder,
    exclude: &[String],
) -> Result<(Options, Vec<IgnoreFile>), ProposalError> {
    let excludes = excludes(exclude, [])?;
    let ignored = gitignore::read(project, &excludes)?;
    let excludes = ignoring(excludes, &ignored);
    Ok((options(excludes, EntryPolicy::LeaveOut), ignored))
}

impl Sandboxes<'_> {
    pub(crate) fn queue_path(&self) -> Result<PathBuf, ProposalError> {
        let run = attempt_sandbox(0)?.run_id;
        Ok(run_dir(&self.dir, &run).join(QUEUE))
    }

    /// Reads the records of the queue, the oldest first.
    ///
    /// # Errors
    ///
    /// [`ProposalError::File`]; [`ProposalError::Damaged`], because a queue without all of its
    /// records could land a proposal twice.
    pub fn queue_records(&self) -> Result<Vec<Record>, ProposalError> {
        let path = self.queue_path()?;
        let disk = self.files.disk();
        if disk.stat(&path).during("inspect", &path)?.is_none() {
            return Ok(Vec::new());
        }
        let (mut log, reading) = SealedLog::open(disk, &path)?;
        let damaged = |problem: &str| ProposalError::Damaged {
            path: path.clone(),
            problem: problem.to_owned(),
        };
        if log.is_damaged() {
            return Err(damaged("a record cannot be read"));
        }
        let mut records = Vec::with_capacity(reading.records.len());
        for span in reading.records {
            let line = log.record(span)?;
            let record = unsealed(&line).and_then(|it| serde_json::from_str(it.get()).ok());
            records.push(record.ok_or_else(|| damaged("a record has an unknown form"))?);
        }
        Ok(records)
    }

    /// Appends records of the queue. Durable on return.
    ///
    /// # Errors
    ///
    /// [`ProposalError::File`], [`ProposalError::Io`].
    pub fn record_queue(&self, records: &[Record]) -> Result<(), ProposalError> {
        let path = self.queue_path()?;
        let disk = self.files.disk();
        let run = path.parent().unwrap_or(&path);
        ensure_dir(disk, &self.dir, run)?;
        let is_new = disk.stat(&path).during("inspect", &path)?.is_none();
        let (mut log, _) = SealedLog::open(disk, &path)?;
        for record in records {
            log.append(record)?;
        }
        log.sync()?;
        if is_new {
            disk.sync_dir(run).during("sync", run)?;
        }
        Register::of(disk, run).note(&[QUEUE]);
        Ok(())
    }

    /// Merges proposals, in this order, into a copy of the target's current files, and creates one
    /// proposal of the result.
    ///
    /// # Errors
    ///
    /// [`ProposalError`]: a proposal that is no longer the queued one, or a failure of the disk or
    /// of git. Conflicts are part of the result.
    pub fn rebase_queued(
        &mut self,
        place: &QueuePlace<'_>,
        attempt: u64,
        changed: QueuedChanges<'_>,
        git: QueueGit<'_>,
    ) -> Result<Rebase, ProposalError> {
        let at = attempt_sandbox(attempt)?;
        self.discard_attempt(attempt)?;
        // An earlier queue, whose records a person moved away, may have landed this attempt.
        match self.remove(&at, true) {
            Ok(()) | Err(ProposalError::NoSandbox { .. }) => {}
            Err(error) => return Err(error),
        }
        let prepare = PrepareSandbox {
            workspace_id: place.workspace_id.clone(),
            at: at.clone(),
            files: Vec::new(),
            allow: Vec::new(),
            exclude: place.exclude.to_vec(),
            may_create: Vec::new(),
        };
        let now = self.now;
        self.prepare_for_task(&prepare, now, place.repository.as_ref(), git.repositories)?;
        let open = self.open(&at)?;
        let base = base_of(&open);
        if let Some(problem) = self.branch_problem(place, &open, &base, git)? {
            return Ok(Rebase::Failed { why: problem });
        }
        let stack = match self.stack(&open, &changed)? {
            Stacking::Done(stack) => stack,
            Stacking::Conflict { task, text } => {
                return Ok(Rebase::Conflict { base, task, text });
            }
            Stacking::Blocked { why } => return Ok(Rebase::Blocked { why }),
        };
        let create = CreateProposal {
            workspace_id: place.workspace_id.clone(),
            at: at.clone(),
            notes: format!("attempt {attempt} of the merge queue"),
            summary: Some(self.attempt_summary(&changed, &base, &stack)?),
            test_log: None,
        };
        match self.create(&create, git.patches) {
            // The target, or the earlier pull requests, already contain all of the changes.
            Ok(_) if !stack.is_changed => Ok(unchanged(base)),
            Err(ProposalError::Unchanged { .. }) => Ok(unchanged(base)),
            Ok(_) => {
                let result = match &open.record.repository {
                    Some(_) => self.commit_stack(&open, &stack, git.branches)?,
                    None => self.project_result(&open)?,
                };
                Ok(Rebase::Clean { base, result })
            }
            Err(error) => Err(error),
        }
    }

    /// Summary of the proposal of an attempt. That of a pull request is its title and text.
    fn attempt_summary(
        &mut self,
        changed: &QueuedChanges<'_>,
        base: &Revision,
        stack: &Stack,
    ) -> Result<String, ProposalError> {
        let mut summaries = Vec::new();
        for queued in changed.proposals {
            let (_, kept) = self.queued(queued)?;
            summaries.push((&queued.task, Self::summary_of(&kept)?));
        }
        if let [(_, summary)] = summaries.as_slice() {
            return Ok(match changed.is_pull_request {
                true => with_proof(summary, base, &stack.covered),
                false => summary.clone(),
            });
        }
        let mut text = format!("Land the changes of {} tasks\n", summaries.len());
        for (task, summary) in &summaries {
            let first = summary.lines().next().unwrap_or_default();
            text.push_str(&format!(
                "\n* {task}: {}",
                first.trim_start_matches('#').trim()
            ));
        }
        Ok(text)
    }

    /// Opens the proposal of a task, if it is the queued one and unchanged.
    pub(crate) fn queued(
        &mut self,
        queued: &QueuedProposal,
    ) -> Result<(OpenSandbox, StoredProposal), ProposalError> {
        let open = self.open(&queued.at)?;
        let kept = self.kept(&open)?;
        Self::check_digest(Some(&queued.digest), &kept)?;
        let refusals = unsound(&open, &kept)?;
        if refusals.is_empty() {
            return Ok((open, kept));
        }
        Err(ProposalError::Refused {
            what: "the proposal",
            refusals,
            kept: Vec::new(),
            merge: None,
        })
    }

    /// Digest of the project's files with the proposal of an attempt.
    fn project_result(&self, open: &OpenSandbox) -> Result<Revision, ProposalError> {
        let kept = self.kept(open)?;
        Ok(Revision::new(kept.details.after.digest()?.to_string()))
    }

    /// True if this is the result of an attempt, as it was proved.
    fn is_result(
        &self,
        open: &OpenSandbox,
        result: &Revision,
        branches: &dyn BranchMaker,
    ) -> Result<bool, ProposalError> {
        match &open.record.repository {
            Some(_) => self.is_commit_of(open, result, branches),
            None => Ok(self.project_result(open)? == *result),
        }
    }

    /// Applies the proposal of an attempt, if the target still is the base of its proof. A repeated
    /// call has no effect.
    ///
    /// # Errors
    ///
    /// [`ProposalError`], if it is not known yet what happened: call [`Self::find_landing`].
    pub fn land_queued(
        &mut self,
        place: &QueuePlace<'_>,
        landing: &Landing,
        proposals: &[QueuedProposal],
        git: QueueGit<'_>,
    ) -> Result<LandingResult, ProposalError> {
        let open = self.open(&attempt_sandbox(landing.attempt)?)?;
        let is_unchanged = landing.result == landing.base;
        if !is_unchanged && !self.is_result(&open, &landing.result, git.branches)? {
            return Err(ProposalError::Damaged {
                path: open.path.join(KEPT),
                problem: "its proposal is not the one that was proved".to_owned(),
            });
        }
        let result = match &place.repository {
            Some(repository) if has_pull_request(landing) => {
                self.push_for_pull_request(repository, &open, landing, git.branches)?
            }
            Some(repository) => self.land_on_branch(repository, &open, landing, git.branches)?,
            None => self.land_on_project(place, &open, landing)?,
        };
        if result == LandingResult::Done {
            let attempt = landing.attempt;
            let landed_as = match &open.record.repository {
                Some(_) => landing.result.to_string(),
                None => format!("attempt {attempt} of the merge queue"),
            };
            // In the log of each task's run.
            for proposal in proposals {
                self.note_delivered(&proposal.at, &proposal.digest, &landed_as)?;
            }
        }
        Ok(result)
    }

    /// Records the pull request of landed proposals in the logs of their runs. A repeated call has no
    /// effect.
    ///
    /// # Errors
    ///
    /// [`ProposalError::File`].
    pub fn note_opened(
        &mut self,
        proposals: &[QueuedProposal],
        url: &str,
    ) -> Result<(), ProposalError> {
        for proposal in proposals {
            self.note_delivered(&proposal.at, &proposal.digest, url)?;
        }
        Ok(())
    }

    fn land_on_project(
        &mut self,
        place: &QueuePlace<'_>,
        open: &OpenSandbox,
        landing: &Landing,
    ) -> Result<LandingResult, ProposalError> {
        if self.is_applied(&open.at)? {
            return Ok(LandingResult::Done);
        }
        let project = self.project()?;
        let (options, _) = task_files(project.as_ref(), place.exclude)?;
        let now = scan(project.as_ref(), &options)?.manifest.digest()?;
        if now.to_string() != landing.base.as_str() || open.record.base.sha256 != now.to_string() {
            return Ok(LandingResult::TargetMoved);
        }
        if landing.result == landing.base {
            return Ok(LandingResult::Done);
        }
        let apply = ApplyProposal {
            workspace_id: place.workspace_id.clone(),
            at: open.at.clone(),
            digest: Some(self.kept(open)?.standing.digest),
            // A commit of the same files does not change them.
            allow_moved_base: true,
        };
        match self.apply(&apply) {
            Ok(_) => Ok(LandingResult::Done),
            Err(ProposalError::Refused { refusals, .. })
                if refusals.iter().all(ProposalRefusal::is_stale) =>
            {
                Ok(LandingResult::TargetMoved)
            }
            Err(error @ ProposalError::Refused { .. }) => Ok(LandingResult::Failed {
                why: error.to_string(),
            }),
            Err(error) => Err(error),
        }
    }

    /// True if the proposal of an attempt was applied.
    fn is_applied(&self, at: &SandboxRef) -> Result<bool, ProposalError> {
        Ok(is_landing(self.standing(at)?.as_ref()))
    }

    /// Finishes or rolls back an interrupted landing, and returns its outcome. A landing that did
    /// not happen is [`LandingResult::TargetMoved`].
    ///
    /// # Errors
    ///
    /// [`ProposalError`], if that is not possible now.
    pub fn find_landing(
        &mut self,
        place: &QueuePlace<'_>,
        landing: &Landing,
        git: QueueGit<'_>,
    ) -> Result<LandingResult, ProposalError> {
        let open = match self.open(&attempt_sandbox(landing.attempt)?) {
            Ok(open) => open,
            Err(ProposalError::NoSandbox { .. }) => return Ok(LandingResult::TargetMoved),
            Err(error) => return Err(error),
        };
        let has_landed = match &place.repository {
            Some(repository) if has_pull_request(landing) => {
                return self.find_pull_request(repository, &open, landing, git.branches);
            }
            Some(repository) => self.is_on_branch(repository, &open, landing, git.branches)?,
            None => self.is_applied(&open.at)? && self.project_result(&open)? == landing.result,
        };
        Ok(match has_landed {
            true => LandingResult::Done,
            false => LandingResult::TargetMoved,
        })
    }

    /// Removes the files of an attempt. If it landed, keeps those that revert it.
    ///
    /// # Errors
    ///
    /// [`ProposalError`].
    pub fn discard_attempt(&mut self, attempt: u64) -> Result<(), ProposalError> {
        let at = attempt_sandbox(attempt)?;
        let run = run_dir(&self.dir, &at.run_id);
        if self
            .files
            .disk()
            .stat(&run)
            .during("inspect", &run)?
            .is_none()
        {
            return Ok(());
        }
        let folder = self.files.folder(&run).during("open", &run)?;
        let name = sandbox_name(&at);
        for end in [PARTIAL, CHECKOUT] {
            remove_all(folder.as_ref(), Path::new(&format!(".{name}{end}")))?;
        }
        match self.open(&at) {
            Ok(open) => match self.is_applied(&at)? {
                true => {
                    remove_all(open.folder.as_ref(), Path::new(WORK))?;
                    self.remove_old_attempts(folder.as_ref())
                }
                false => self.remove(&at, true),
            },
            Err(ProposalError::NoSandbox { .. }) => Ok(()),
            Err(ProposalError::Damaged { .. }) => self.remove(&at, true),
            Err(error) => Err(error),
        }
    }

    /// Removes the files that revert landings, except the newest. Other attempts are in progress, or a
    /// kill interrupted them: they do not count as landings, and the newest stay, too.
    fn remove_old_attempts(&mut self, run: &dyn Folder) -> Result<(), ProposalError> {
        let here = Path::new("");
        let names = run.names(here).during("list", here)?;
        let number = |name: &OsString| name.to_str()?.strip_prefix(ATTEMPT)?.parse::<u64>().ok();
        let mut attempts = Vec::new();
        for attempt in names.iter().filter_map(number) {
            attempts.push(attempt_sandbox(attempt)?);
        }
        let events = self.events(&attempt_sandbox(0)?.run_id)?;
        // Their numbers begin again if a person moves the records of the queue away.
        attempts.sort_by_cached_key(|at| {
            let of_attempt = |event: &RunEvent| {
                event.agent_id == at.agent_id && event.kind == RunEventKind::SandboxPrepared
            };
            Reverse(events.iter().rposition(of_attempt))
        });
        let (landings, others): (Vec<_>, Vec<_>) = attempts
            .into_iter()
            .partition(|at| is_landing(run_log::standing(&events, &at.agent_id).as_ref()));
        for attempts in [landings, others] {
            for at in attempts.iter().skip(LANDINGS_KEPT) {
                self.remove(at, true)?;
            }
        }
        Ok(())
    }
}
