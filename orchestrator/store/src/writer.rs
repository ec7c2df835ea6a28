//! The writer threads' work: many operations, few syncs (group commit).
//!
//! A fixed number of workers, each with a thread (`goondan_writers`), owns all open instances. An
//! instance always maps to the same worker, so its operations run in submission order. A worker
//! takes all queued operations, stages them, syncs each touched file once, and only then reports
//! them. Next, before any other work, it folds committed turns into their bases, so that a client
//! that waits for an answer waits only for the commit record. Bases are synced when their
//! conversations are quiet or after a number of turns; until then the journals hold their content.
//!
//! # Invariants
//!
//! * An operation is reported exactly once: after its writes are durable here and on the
//!   workspace's replicas, or after it failed.
//! * When a write or sync of an instance fails, every operation of the batch on it fails, its
//!   handles are dropped, and the next operation reopens and recovers the instance.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use goondan_durable::IoContext as _;
use goondan_durable::batch::Completions;
use goondan_durable::disk::{Confirmation, Disk};
use goondan_durable::register::Register;
use goondan_protocol::ids::{InstanceRef, WorkspaceId};

use crate::error::StoreError;
use crate::file_names::instance_dir_name;
use crate::index::InstanceIndex;
use crate::instance::{InstanceStore, OpenTurn};
use crate::limits::{INSTANCE_DESCRIPTORS, MANIFEST_NOTE_DELAY_MS, WRITER_OPEN_INSTANCES_MAX};
use crate::root::Layout;

mod batch;
mod execute;
mod fold_schedule;
mod handle_cache;
pub mod operation;
mod outcome;
mod unwritten_begins;
mod workspace_files;

use fold_schedule::FailedFold;
use operation::{BeginTurn, Durability, Subject};
use outcome::{again, report_findings};
use unwritten_begins::UnwrittenBegin;
use workspace_files::WorkspaceFiles;

pub use operation::{Op, Report, StoreCompletion, StoreJob};

struct OpenInstance {
    store: InstanceStore,
    /// Increases with each use of any instance.
    last_use: u64,
    /// True if the instance stays open while idle, because a process works with it.
    is_kept: bool,
    metadata_due: Option<Instant>,
    /// Time at which its base is synced and its journal cleared, if it stays quiet.
    clear_due: Option<Instant>,
    /// Time at which its manifest is brought up to date.
    note_due: Option<Instant>,
    /// Time at which its files are closed if it stays idle.
    rest_due: Option<Instant>,
    /// The begin of a turn in the batch in progress.
    staged_begin: Option<UnwrittenBegin>,
    /// The begin of a turn that is reported, and not synced.
    reported_begin: Option<UnwrittenBegin>,
}

impl OpenInstance {
    /// The times of its deferred work.
    fn dues(&self) -> impl Iterator<Item = Instant> {
        let dues = [
            self.metadata_due,
            self.clear_due,
            self.note_due,
            self.rest_due,
        ];
        dues.into_iter().flatten()
    }

    /// Begins a turn, or another attempt at the open one. Durable with the next sync of all data.
    fn begin(&mut self, begin: BeginTurn) -> Result<OpenTurn, StoreError> {
        self.store.bound_observation(begin.observation);
        let digest = begin.config_digest.as_deref();
        let turn_id = begin.turn_id.clone();
        let open = self
            .store
            .begin_turn_under(turn_id, &begin.event_id, digest, begin.at)?;
        self.staged_begin = Some(UnwrittenBegin::new(begin, &open));
        Ok(open)
    }

    /// Syncs the data that the reports of a batch promise. Records without a promise, such as the
    /// begin of a turn, stay in memory until the next sync, because a crash of the machine would
    /// lose them even if they were written.
    fn keep_promise(&mut self, promise: Durability) -> Result<(), StoreError> {
        match promise {
            Durability::Nothing => {}
            Durability::Inbox => self.store.sync_inbox()?,
            Durability::Everything => {
                self.store.sync_records()?;
                (self.staged_begin, self.reported_begin) = (None, None);
            }
        }
        if let Some(begin) = self.staged_begin.take() {
            self.reported_begin = Some(begin);
        }
        if promise > Durability::Nothing {
            let delay = Duration::from_millis(MANIFEST_NOTE_DELAY_MS);
            self.note_due.get_or_insert_with(|| Instant::now() + delay);
        }
        self.store.write_logs()
    }
}

/// Scope of a job: a failure in the scope fails the job.
#[derive(Debug)]
enum JobScope {
    Instance(InstanceRef),
    /// The ledger of a workspace. Entries of a batch are synced together.
    Ledger(WorkspaceId),
    Workspace(WorkspaceId),
    Nothing,
}

impl JobScope {
    fn of(op: &Op) -> Self {
        match (op, op.subject()) {
            (_, Subject::Instance(instance)) => Self::Instance(instance.clone()),
            (Op::RecordUsage(_), Subject::Workspace(id)) => Self::Ledger(id.clone()),
            (_, Subject::Workspace(id)) => Self::Workspace(id.clone()),
            (_, Subject::Root) => Self::Nothing,
        }
    }

    fn workspace_id(&self) -> Option<&WorkspaceId> {
        match self {
            Self::Instance(instance) => Some(&instance.workspace_id),
            Self::Ledger(id) | Self::Workspace(id) => Some(id),
            Self::Nothing => None,
        }
    }
}

/// An executed operation that is not yet known to be durable.
#[derive(Debug)]
struct StagedOperation {
    token: u64,
    about: JobScope,
    report: Report,
}

impl StagedOperation {
    /// Fails the operation if its scope had an error and it has none of its own.
    fn befalls(&mut self, error: Option<&StoreError>) {
        if let Some(error) = error
            && self.report.error().is_none()
        {
            self.report.fail(again(error));
        }
    }

    fn completion(self) -> StoreCompletion {
        StoreCompletion {
            token: self.token,
            report: self.report,
        }
    }
}

/// Replication results of the changed workspaces.
#[derive(Debug, Default)]
struct Confirmations {
    awaited: Vec<(WorkspaceId, PathBuf, Box<dyn Confirmation>)>,
    /// Workspaces whose replication failed permanently, with the error.
    errors: HashMap<WorkspaceId, StoreError>,
}

impl Confirmations {
    /// Reports the operations on these workspaces, immediately or after replication confirms them.
    fn report(self, staged: Vec<StagedOperation>) -> Completions<StoreCompletion> {
        if self.awaited.is_empty() {
            return Completions::Now(self.wait(staged));
        }
        Completions::Later(Box::new(|| self.wait(staged)))
    }

    fn wait(mut self, mut staged: Vec<StagedOperation>) -> Vec<StoreCompletion> {
        for (id, dir, confirmation) in self.awaited {
            if let Err(error) = confirmation.wait().during("confirm", &dir) {
                self.errors.insert(id, error.into());
            }
        }
        for staged in &mut staged {
            let id = staged.about.workspace_id();
            staged.befalls(id.and_then(|id| self.errors.get(id)));
        }
        staged
            .into_iter()
            .map(StagedOperation::completion)
            .collect()
    }
}

/// The logic of a writer thread, without the thread.
pub struct Worker {
    disk: Arc<dyn Disk>,
    layout: Layout,
    index: InstanceIndex,
    open: HashMap<InstanceRef, OpenInstance>,
    workspace_files: WorkspaceFiles,
    /// Instances whose last batch is reported, with post-commit work pending.
    unsettled: Vec<InstanceRef>,
    /// Instances with a committed turn that failed to fold.
    unfolded: HashMap<InstanceRef, FailedFold>,
    /// Begins that were in memory when a write of their instances failed.
    unwritten_begins: HashMap<InstanceRef, UnwrittenBegin>,
    /// Idle instances that are closed although processes work with them.
    resting: HashSet<InstanceRef>,
    uses: u64,
    /// Number of forgotten workspaces whose files are closed.
    forgotten: usize,
    /// Most instances kept open, in addition to those with an open turn.
    open_instances_max: usize,
}

impl Worker {
    /// Creates a worker with no open instance.
    #[must_use]
    pub fn new(disk: Arc<dyn Disk>, layout: Layout) -> Self {
        let open = HashMap::new();
        let index = InstanceIndex::default();
        Self {
            disk,
            layout,
            index,
            open,
            workspace_files: WorkspaceFiles::default(),
            unsettled: Vec::new(),
            unfolded: HashMap::new(),
            unwritten_begins: HashMap::new(),
            resting: HashSet::new(),
            uses: 0,
            forgotten: 0,
            open_instances_max: WRITER_OPEN_INSTANCES_MAX,
        }
    }

    /// Creates the workers of `threads` threads that share an index, in a process where the store
    /// may use `descriptors_max` file descriptors for open instances, in addition to those with an
    /// open turn.
    #[must_use]
    pub fn for_threads(
        disk: &Arc<dyn Disk>,
        layout: &Layout,
        index: &InstanceIndex,
        threads: usize,
        descriptors_max: u64,
    ) -> Vec<Self> {
        let threads = threads.max(1);
        let each = descriptors_max / INSTANCE_DESCRIPTORS / u64::try_from(threads).unwrap_or(1);
        let each = usize::try_from(each).unwrap_or(usize::MAX);
        let worker = || {
            let mut worker = Self::new(disk.clone(), layout.clone());
            worker.index = index.clone();
            worker.open_instances_max = each.clamp(1, WRITER_OPEN_INSTANCES_MAX);
            worker
        };
        (0..threads).map(|_| worker()).collect()
    }

    /// Runs deferred work that is due; with `all`, also work that is not due yet.
    pub fn tidy(&mut self, all: bool) {
        self.let_go();
        let changed = self.due_workspaces(all);
        self.clear_quiet(all);
        self.note_synced(all);
        self.retry_folds(all);
        self.flush_metadata(all);
        self.rest_quiet(all);
        // Replication has started. No caller waits for deferred work; the next batch of the
        // workspace gets its error.
        for error in self.confirmations(changed.iter().collect()).errors.values() {
            tracing::debug!(
                error = error as &dyn std::error::Error,
                "replication of deferred work failed"
            );
        }
    }

    /// Returns the workspaces with deferred work that is due.
    fn due_workspaces(&self, all: bool) -> HashSet<WorkspaceId> {
        let now = Instant::now();
        let is_due = |due: &Instant| all || *due <= now;
        let open = self.open.iter();
        let open = open.filter(|(_, held)| held.dues().any(|due| is_due(&due)));
        let unfolded = self.unfolded.iter().filter(|(_, it)| is_due(&it.due));
        let open = open.map(|(instance, _)| instance);
        let all = open.chain(unfolded.map(|(instance, _)| instance));
        all.map(|instance| instance.workspace_id.clone()).collect()
    }

    /// Executes a batch of jobs, syncs each touched file once, and reports each job, those of an
    /// instance in order. The caller should call [`Self::settle`] next; otherwise the next batch
    /// begins with it.
    pub fn work(&mut self, batch: &mut Vec<StoreJob>) -> Vec<StoreCompletion> {
        self.begin(batch)
            .into_iter()
            .flat_map(Completions::wait)
            .collect()
    }

    /// As [`work`](Self::work), but for replicated workspaces the returned reports wait for
    /// replication.
    fn begin(&mut self, batch: &mut Vec<StoreJob>) -> Vec<Completions<StoreCompletion>> {
        self.let_go();
        let mut done = Vec::new();
        let mut failed = HashMap::new();
        while !batch.is_empty() {
            done.push(self.work_part(batch, &mut failed));
        }
        done
    }

    /// Executes the jobs of a batch that do not follow a commit of their instance, and leaves the
    /// others in it, because they must see the state after the commit. Opens no more instances than
    /// the limit; idle ones are closed between two parts.
    fn work_part(
        &mut self,
        batch: &mut Vec<StoreJob>,
        failed: &mut HashMap<InstanceRef, StoreError>,
    ) -> Completions<StoreCompletion> {
        self.settle();
        let mut later: Vec<StoreJob> = Vec::new();
        // Instances whose further jobs follow a commit, or exceed the limit of open instances.
        let mut put_off: HashSet<InstanceRef> = HashSet::new();
        let mut newly_opened = 0;
        let mut staged: Vec<StagedOperation> = Vec::new();
        let mut touched: Vec<(InstanceRef, Durability)> = Vec::new();
        for job in batch.drain(..) {
            let about = JobScope::of(&job.op);
            let JobScope::Instance(instance) = &about else {
                let (token, report) = (job.token, job.op.perform(self));
                staged.push(StagedOperation {
                    token,
                    about,
                    report,
                });
                continue;
            };
            let is_new = !self.open.contains_key(instance);
            if is_new && newly_opened >= self.open_instances_max {
                put_off.insert(instance.clone());
            }
            if put_off.contains(instance) {
                later.push(job);
                continue;
            }
            newly_opened += usize::from(is_new);
            if let Op::CompleteTurn(_) | Op::CancelEvent(_) = &job.op {
                put_off.insert(instance.clone());
            }
            let promise = job.op.promise();
            let report = match failed.get(instance) {
                Some(error) => job.op.refuse(again(error)),
                None => job.op.perform(self),
            };
            match report.error() {
                Some(error) if error.is_io() && !failed.contains_key(instance) => {
                    self.close_files(instance);
                    failed.insert(instance.clone(), again(error));
                }
                Some(_) | None => touch(&mut touched, instance, promise),
            }
            staged.push(StagedOperation {
                token: job.token,
                about,
                report,
            });
        }
        *batch = later;
        let failed_ledgers = self.workspace_files.sync(self.disk.as_ref(), &self.layout);
        self.keep_promises(touched, failed);
        for staged in &mut staged {
            let error = match &staged.about {
                JobScope::Instance(instance) => failed.get(instance),
                JobScope::Ledger(workspace_id) => failed_ledgers.get(workspace_id),
                JobScope::Workspace(_) | JobScope::Nothing => None,
            };
            staged.befalls(error);
        }
        let changed = staged.iter().filter_map(|it| it.about.workspace_id());
        self.confirmations(changed.collect()).report(staged)
    }

    /// Starts the replication of changed workspaces.
    fn confirmations(&self, changed: HashSet<&WorkspaceId>) -> Confirmations {
        let mut confirmations = Confirmations::default();
        for id in changed {
            let dir = self.layout.workspace(id);
            match self.disk.confirmation(&dir).during("confirm", &dir) {
                Ok(None) => {}
                Ok(Some(confirmation)) => {
                    confirmations.awaited.push((id.clone(), dir, confirmation));
                }
                Err(error) => {
                    confirmations.errors.insert(id.clone(), error.into());
                }
            }
        }
        confirmations
    }

    /// Syncs the data that the reports of a batch promise to be durable.
    fn keep_promises(
        &mut self,
        touched: Vec<(InstanceRef, Durability)>,
        failed: &mut HashMap<InstanceRef, StoreError>,
    ) {
        for (instance, promise) in touched {
            let Some(held) = self.open.get_mut(&instance) else {
                continue;
            };
            if let Err(error) = held.keep_promise(promise) {
                report_unwritable(&instance, &error);
                self.close_files(&instance);
                failed.insert(instance, error);
                continue;
            }
            self.index.put(&instance, held.store.metadata());
            self.unsettled.push(instance);
        }
    }

    /// Closes the files of workspaces that were closed since the last call. All promised data is
    /// durable by then.
    fn let_go(&mut self) {
        for id in self.index.forgotten_since(self.forgotten) {
            self.forgotten += 1;
            self.unsettled.retain(|it| it.workspace_id != id);
            self.open.retain(|it, _| it.workspace_id != id);
            self.unfolded.retain(|it, _| it.workspace_id != id);
            self.unwritten_begins.retain(|it, _| it.workspace_id != id);
            self.resting.retain(|it| it.workspace_id != id);
            self.workspace_files.let_go(&id);
        }
    }

    fn dir_of(&self, instance: &InstanceRef) -> PathBuf {
        self.layout
            .instances(&instance.workspace_id)
            .join(instance_dir_name(&instance.instance_key))
    }

    fn held(&mut self, instance: &InstanceRef) -> Result<&mut OpenInstance, StoreError> {
        if !self.open.contains_key(instance) {
            let dir = self.dir_of(instance);
            let key = instance.instance_key.clone();
            // An unreadable directory may exist, so it must not be replaced by a new instance.
            if self.disk.stat(&dir).during("inspect", &dir)?.is_none() {
                return Err(StoreError::NoInstance { key });
            }
            let store = InstanceStore::open(self.disk.clone(), &dir)?;
            // The register outside the folder lists the instance.
            Register::of(self.disk.as_ref(), &dir).note_new(&[]);
            report_findings(instance, &store);
            let unfolded = self.unfolded.remove(instance);
            if unfolded.is_some() {
                tracing::info!(
                    workspace_id = %instance.workspace_id,
                    instance_key = %instance.instance_key,
                    "a turn that had failed to fold is now in the base"
                );
            }
            let is_kept = unfolded.is_some_and(|unfolded| unfolded.is_kept);
            let rested = self.resting.remove(instance);
            self.hold(instance, store, is_kept || rested);
            self.begin_again(instance);
        }
        self.uses += 1;
        let held = self.open.get_mut(instance);
        let held = held.ok_or_else(|| StoreError::NoInstance {
            key: instance.instance_key.clone(),
        })?;
        held.last_use = self.uses;
        Ok(held)
    }

    fn hold(&mut self, instance: &InstanceRef, store: InstanceStore, is_kept: bool) {
        self.open.insert(
            instance.clone(),
            OpenInstance {
                store,
                last_use: self.uses,
                is_kept,
                metadata_due: None,
                clear_due: None,
                note_due: None,
                rest_due: None,
                staged_begin: None,
                reported_begin: None,
            },
        );
    }

    /// Brings the manifests that are due up to date; with `all`, also those that are not due yet.
    fn note_synced(&mut self, all: bool) {
        let now = Instant::now();
        for held in self.open.values_mut() {
            if held.note_due.is_some_and(|due| all || due <= now) {
                held.note_due = None;
                held.store.note_files();
            }
        }
    }

    /// Writes metadata that is due; with `all`, also metadata that is not due yet.
    pub fn flush_metadata(&mut self, all: bool) {
        let now = Instant::now();
        for (instance, held) in &mut self.open {
            if !all && held.metadata_due.is_none_or(|due| due > now) {
                continue;
            }
            held.metadata_due = None;
            // Metadata is informational; the next change retries.
            if let Err(error) = held.store.flush_metadata() {
                report_stale_metadata(instance, &error);
            }
        }
    }
}

fn report_stale_metadata(instance: &InstanceRef, error: &StoreError) {
    tracing::warn!(
        workspace_id = %instance.workspace_id,
        instance_key = %instance.instance_key,
        error = error as &dyn std::error::Error,
        "failed to write metadata.json"
    );
}

/// Raises the durability that an instance needs before the reports of a batch.
fn touch(
    touched: &mut Vec<(InstanceRef, Durability)>,
    instance: &InstanceRef,
    promise: Durability,
) {
    match touched.iter_mut().find(|(known, _)| known == instance) {
        Some((_, greatest)) => *greatest = promise.max(*greatest),
        None => touched.push((instance.clone(), promise)),
    }
}

fn report_unwritable(instance: &InstanceRef, error: &StoreError) {
    tracing::error!(
        workspace_id = %instance.workspace_id,
        instance_key = %instance.instance_key,
        error = error as &dyn std::error::Error,
        "failed to write an instance; it is reopened when needed"
    );
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
