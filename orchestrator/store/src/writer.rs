//! What a writer thread does: many operations, few syncs (group commit).
//!
//! A fixed number of workers, each with a thread (`goondan_writers`), owns all open instances; an instance
//! always maps to the same one, so its operations happen in the order they were submitted. A worker takes
//! all that waits, stages it, syncs each touched file once, and only then reports every operation as done.
//! Turns that were committed are folded into their bases after that and before anything else: whoever waits
//! for an answer waits for the commit record alone. Bases are made durable when their conversations are
//! quiet or have had some turns: the journals hold what is in them until then.
//!
//! # Invariants
//!
//! * An operation is reported exactly once, after what it wrote is durable or after it failed.
//! * When a write or sync of an instance fails, every operation of the batch on it fails, its handles
//!   are thrown away, and the next operation opens and recovers it anew.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use goondan_durable::IoContext as _;
use goondan_durable::disk::Disk;
use goondan_protocol::event::AgentEvent;
use goondan_protocol::ids::{AgentName, EventId, InstanceKey, InstanceRef, WorkspaceId};
use goondan_protocol::time::Timestamp;

use crate::error::StoreError;
use crate::index::InstanceIndex;
use crate::instance::{self, Brought, EventState, InstanceStore};
use crate::limits::{INSTANCE_DESCRIPTORS, WRITER_OPEN_INSTANCES_MAX};
use crate::naming::instance_dir_name;
use crate::own_files::{self, OwnFiles};
use crate::root::Layout;
use crate::verify;

mod batch;
mod check;
mod op;
mod outcome;
mod resting;
mod settling;
mod workspace_files;

use op::Promise;
use outcome::{again, report_findings};
use settling::Unfolded;
use workspace_files::WorkspaceFiles;

pub use op::{Completion, Inspection, Job, Op, Report};

struct Held {
    store: InstanceStore,
    /// Counts up with each use of any instance.
    last_use: u64,
    /// Whether it stays open when nothing is done on it: a process works with it.
    is_kept: bool,
    metadata_due: Option<Instant>,
    /// When its base is made durable and its journal cleared, if it stays quiet.
    clear_due: Option<Instant>,
    /// When its files are closed, if nobody needs them before.
    rest_due: Option<Instant>,
}

/// What a writer thread does with its jobs, without the thread.
pub struct Worker {
    disk: Arc<dyn Disk>,
    layout: Layout,
    index: InstanceIndex,
    open: HashMap<InstanceRef, Held>,
    workspace_files: WorkspaceFiles,
    /// Whose last batch is reported and not settled yet.
    unsettled: Vec<InstanceRef>,
    /// Whose last turn is committed and could not be folded.
    unfolded: HashMap<InstanceRef, Unfolded>,
    /// Those that processes work with and that are closed all the same.
    resting: HashSet<InstanceRef>,
    uses: u64,
    /// Instances it holds open at most, beside those with an open turn.
    open_instances_max: usize,
}

impl Worker {
    /// A worker that holds no instance open.
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
            resting: HashSet::new(),
            uses: 0,
            open_instances_max: WRITER_OPEN_INSTANCES_MAX,
        }
    }

    /// Workers for so many threads that share an index, in a process in which the store may have
    /// `descriptors_max` file descriptors for open instances, beside those with an open turn.
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

    /// Does what was put off and is due; `all` does what is not due yet too.
    pub fn tidy(&mut self, all: bool) {
        self.clear_quiet(all);
        self.retry_folds(all);
        self.flush_metadata(all);
        self.rest_quiet(all);
    }

    /// Does a batch of jobs, syncing each touched file once, and reports each, those of an instance in
    /// their order. What it committed is to be settled next; if nobody does, the next batch begins with it.
    pub fn work(&mut self, batch: &mut Vec<Job>) -> Vec<Completion> {
        let mut completions = Vec::with_capacity(batch.len());
        let mut failed = HashMap::new();
        while !batch.is_empty() {
            completions.extend(self.work_part(batch, &mut failed));
        }
        completions
    }

    /// Does those jobs of a batch that do not follow a commit of their instance, and leaves the others in
    /// it: what is read or changed next must not be what was before. Nor does it open more instances at
    /// once than there may be open ones: between two parts those at rest are closed.
    fn work_part(
        &mut self,
        batch: &mut Vec<Job>,
        failed: &mut HashMap<InstanceRef, StoreError>,
    ) -> Vec<Completion> {
        self.settle();
        let mut later: Vec<Job> = Vec::new();
        // Those whose further jobs follow a commit, or wait for a place among the open ones.
        let mut put_off: HashSet<InstanceRef> = HashSet::new();
        let mut newly_opened = 0;
        let mut staged: Vec<(u64, Option<InstanceRef>, Result<Report, StoreError>)> = Vec::new();
        let mut touched: Vec<(InstanceRef, Promise)> = Vec::new();
        for job in batch.drain(..) {
            if let Op::RecordUsage {
                workspace_id,
                entry,
            } = &job.op
            {
                let (disk, place) = (self.disk.as_ref(), staged.len());
                let files = &mut self.workspace_files;
                let result = files.append(disk, &self.layout, workspace_id, entry, place);
                staged.push((job.token, None, result));
                continue;
            }
            let instance = job.op.instance().cloned();
            if let Some(instance) = &instance {
                let is_new = !self.open.contains_key(instance);
                if is_new && newly_opened >= self.open_instances_max {
                    put_off.insert(instance.clone());
                }
                if put_off.contains(instance) {
                    later.push(job);
                    continue;
                }
                newly_opened += usize::from(is_new);
            }
            if let (Op::CompleteTurn { .. }, Some(instance)) = (&job.op, &instance) {
                put_off.insert(instance.clone());
            }
            let promise = job.op.promise();
            let result = match instance.as_ref().and_then(|instance| failed.get(instance)) {
                Some(error) => Err(again(error)),
                None => self.stage(job.op),
            };
            match (&instance, &result) {
                (Some(instance), Err(error)) if error.is_io() && !failed.contains_key(instance) => {
                    self.open.remove(instance);
                    failed.insert(instance.clone(), again(error));
                }
                (Some(instance), _) => touch(&mut touched, instance, promise),
                (None, _) => {}
            }
            staged.push((job.token, instance, result));
        }
        *batch = later;
        self.workspace_files
            .sync(self.disk.as_ref(), &self.layout, &mut staged);
        self.keep_promises(touched, failed);
        let reported = staged.into_iter().map(|(token, instance, result)| {
            let result = match instance.and_then(|instance| failed.get(&instance).map(again)) {
                Some(error) if result.is_ok() => Err(error),
                _ => result,
            };
            Completion { token, result }
        });
        reported.collect()
    }

    /// Makes durable what the reports of a batch promise.
    fn keep_promises(
        &mut self,
        touched: Vec<(InstanceRef, Promise)>,
        failed: &mut HashMap<InstanceRef, StoreError>,
    ) {
        for (instance, promise) in touched {
            let Some(held) = self.open.get_mut(&instance) else {
                continue;
            };
            let synced = match promise {
                Promise::Nothing => Ok(()),
                Promise::Inbox => held.store.sync_inbox(),
                Promise::Everything => held.store.sync(),
            };
            if let Err(error) = synced.and_then(|()| held.store.write_out()) {
                report_unwritable(&instance, &error);
                self.open.remove(&instance);
                failed.insert(instance, error);
                continue;
            }
            self.index.put(&instance, held.store.metadata());
            self.unsettled.push(instance);
        }
    }

    fn stage(&mut self, op: Op) -> Result<Report, StoreError> {
        // Long: one arm for each operation.
        match op {
            Op::Accept {
                instance,
                agent,
                event,
                former_id,
            } => self.accept(&instance, &agent, *event, former_id.as_ref()),
            Op::Sources(instance) => {
                let sources = self.held(&instance)?.store.sources();
                Ok(Report::Sources(sources.clone()))
            }
            Op::Open(instance) => {
                let held = self.held(&instance)?;
                held.is_kept = true;
                Ok(Report::Opened(Box::new(held.store.state())))
            }
            Op::BeginTurn {
                instance,
                turn_id,
                event_id,
                config_digest,
                observation,
                at,
            } => {
                let store = &mut self.held(&instance)?.store;
                store.bound_observation(observation);
                store
                    .begin_turn_under(turn_id, &event_id, config_digest.as_deref(), at)
                    .map(Report::Began)
            }
            Op::AppendEvent {
                instance,
                turn_id,
                seq,
                event,
            } => {
                self.held(&instance)?
                    .store
                    .append_event(&turn_id, seq, &event)?;
                Ok(Report::Appended { turn_id, seq })
            }
            Op::CompleteTurn {
                instance,
                turn_id,
                last_seq,
                also,
                states,
                outcome,
                at,
            } => {
                let store = &mut self.held(&instance)?.store;
                let brought = Brought { also, states };
                store.complete_turn_with(&turn_id, last_seq, brought, outcome, at)?;
                Ok(Report::Committed { turn_id })
            }
            Op::Await {
                instance,
                awaited,
                at,
            } => {
                let store = &mut self.held(&instance)?.store;
                let is_open = store.await_reply(&awaited, at)?;
                Ok(Report::Awaiting { is_open })
            }
            Op::Forgo {
                instance,
                question,
                at,
            } => {
                self.held(&instance)?.store.forgo(&question, at)?;
                Ok(Report::Forgone)
            }
            Op::Observe { instance, line } => {
                self.held(&instance)?.store.observe(&line)?;
                Ok(Report::Observed)
            }
            Op::LogLlm { instance, message } => {
                self.held(&instance)?.store.log_llm(&message)?;
                Ok(Report::LlmLogged)
            }
            Op::NoteAttempt {
                instance,
                event_id,
                attempts,
                at,
            } => {
                let store = &mut self.held(&instance)?.store;
                let attempts = store.note_attempts(&event_id, attempts, at)?;
                Ok(Report::Attempts { event_id, attempts })
            }
            Op::Park {
                instance,
                event_id,
                reason,
                at,
            } => {
                self.held(&instance)?.store.park(&event_id, &reason, at)?;
                Ok(Report::Parked { event_id })
            }
            Op::Retry {
                instance,
                event_id,
                at,
            } => {
                let store = &mut self.held(&instance)?.store;
                store.retry(&event_id, at)?;
                let waiting = store.state().waiting;
                Ok(Report::Retried { event_id, waiting })
            }
            Op::Drop {
                instance,
                event_id,
                at,
            } => {
                self.held(&instance)?.store.drop_parked(&event_id, at)?;
                Ok(Report::Dropped { event_id })
            }
            Op::ReadPage {
                instance,
                offset,
                states_of,
            } => {
                let store = &mut self.held(&instance)?.store;
                let mut page = store.page(offset)?;
                let (states, damage) = store.restore_states(&states_of)?;
                page.states = states;
                page.damage.extend(damage);
                Ok(Report::Page(Box::new(page)))
            }
            Op::LookUpEvent { instance, event_id } => self
                .held(&instance)?
                .store
                .event_state(&event_id)
                .map(Report::EventState),
            Op::Inspect(instance) => self.inspect(&instance),
            Op::Verify {
                instance,
                repair,
                at,
            } => self.verify(&instance, repair, at),
            Op::VerifyWorkspace {
                workspace_id,
                repair,
            } => self.verify_workspace(&workspace_id, repair),
            Op::VerifyRoot { repair } => self.verify_root(repair),
            Op::Export {
                instance,
                position,
                skip_damaged,
                at,
            } => {
                let store = &mut self.held(&instance)?.store;
                let part = store.export(position, skip_damaged, at)?;
                Ok(Report::Exported(Box::new(part)))
            }
            Op::Import {
                instance,
                agent,
                archive,
                at,
            } => {
                let (disk, key) = (self.disk.as_ref(), &instance.instance_key);
                let instances = self.layout.instances(&instance.workspace_id);
                let staging = format!(".new-{}", uuid::Uuid::now_v7());
                instance::import(disk, &instances, (key, &agent), &archive, at, &staging)
                    .map(Report::Imported)
            }
            Op::Close(instance) => self.close(&instance),
            Op::Delete(instance) => self.delete(&instance),
            Op::Audit {
                workspace_id,
                record,
            } => {
                let (disk, layout) = (self.disk.as_ref(), &self.layout);
                self.workspace_files
                    .audit(disk, layout, &workspace_id, &record)?;
                Ok(Report::Audited)
            }
            // The batch takes these aside, to sync them together.
            Op::RecordUsage { .. } => Ok(Report::UsageRecorded),
        }
    }

    fn verify_workspace(&mut self, id: &WorkspaceId, repair: bool) -> Result<Report, StoreError> {
        let (disk, layout) = (self.disk.as_ref(), &self.layout);
        let mut found = verify::workspace_files(disk, layout, id)?;
        if repair {
            self.workspace_files.acknowledge(disk, layout, id)?;
            own_files::mark_acknowledged(&mut found);
        }
        Ok(Report::Verified(Box::new(found)))
    }

    fn verify_root(&self, repair: bool) -> Result<Report, StoreError> {
        let (disk, layout) = (self.disk.as_ref(), &self.layout);
        let mut found = verify::root_files(disk, layout)?;
        if repair {
            OwnFiles::open(disk, &layout.system())?.acknowledge(disk)?;
            own_files::mark_acknowledged(&mut found);
        }
        Ok(Report::Verified(Box::new(found)))
    }

    fn close(&mut self, instance: &InstanceRef) -> Result<Report, StoreError> {
        if let Some(unfolded) = self.unfolded.get_mut(instance) {
            unfolded.is_kept = false;
        }
        self.resting.remove(instance);
        if let Some(mut held) = self.open.remove(instance) {
            held.store.sync()?;
            held.store.clear_journal()?;
            held.store.flush_metadata()?;
        }
        Ok(Report::Closed)
    }

    fn delete(&mut self, instance: &InstanceRef) -> Result<Report, StoreError> {
        self.open.remove(instance);
        self.unfolded.remove(instance);
        self.resting.remove(instance);
        let dir = self.dir_of(instance);
        let trash = format!(".removed-{}", uuid::Uuid::now_v7());
        let existed = instance::delete(self.disk.as_ref(), &dir, &trash)?;
        self.index.remove(instance);
        Ok(Report::Deleted { existed })
    }

    fn dir_of(&self, instance: &InstanceRef) -> PathBuf {
        self.layout
            .instances(&instance.workspace_id)
            .join(instance_dir_name(&instance.instance_key))
    }

    fn held(&mut self, instance: &InstanceRef) -> Result<&mut Held, StoreError> {
        if !self.open.contains_key(instance) {
            let dir = self.dir_of(instance);
            let key = instance.instance_key.clone();
            // A directory that cannot be looked at may be there: another must not take its place.
            if self.disk.stat(&dir).during("look at", &dir)?.is_none() {
                return Err(StoreError::NoInstance { key });
            }
            let store = InstanceStore::open(self.disk.clone(), &dir)?;
            report_findings(instance, &store);
            let unfolded = self.unfolded.remove(instance);
            if unfolded.is_some() {
                tracing::info!(
                    workspace_id = %instance.workspace_id,
                    instance_key = %instance.instance_key,
                    "the turn that could not become part of the base is part of it now"
                );
            }
            let is_kept = unfolded.is_some_and(|unfolded| unfolded.is_kept);
            let rested = self.resting.remove(instance);
            self.hold(instance, store, is_kept || rested);
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
            Held {
                store,
                last_use: self.uses,
                is_kept,
                metadata_due: None,
                clear_due: None,
                rest_due: None,
            },
        );
    }

    fn accept(
        &mut self,
        instance: &InstanceRef,
        agent: &AgentName,
        event: AgentEvent,
        former_id: Option<&EventId>,
    ) -> Result<Report, StoreError> {
        let created = match self.held(instance) {
            Ok(_) => false,
            Err(StoreError::NoInstance { .. }) => {
                let store = self.create(instance, agent, event.created_at)?;
                self.hold(instance, store, true);
                true
            }
            Err(error) => return Err(error),
        };
        let held = self.held(instance)?;
        let owner = &held.store.metadata().agent_name;
        if owner != agent {
            let (key, owner) = (instance.instance_key.clone(), owner.clone());
            return Err(StoreError::KeyTaken { key, owner });
        }
        held.is_kept = true;
        let known = former_id.map(|id| held.store.event_state(id)).transpose()?;
        let before = match known {
            Some(known) if known != EventState::Unknown => known,
            Some(_) | None => held.store.accept(event)?,
        };
        Ok(Report::Accepted { before, created })
    }

    fn create(
        &self,
        instance: &InstanceRef,
        agent: &AgentName,
        at: Timestamp,
    ) -> Result<InstanceStore, StoreError> {
        let instances = self.layout.instances(&instance.workspace_id);
        let staging = format!(".new-{}", uuid::Uuid::now_v7());
        let key: &InstanceKey = &instance.instance_key;
        InstanceStore::create(self.disk.clone(), &instances, key, agent, at, &staging)
    }

    fn inspect(&mut self, instance: &InstanceRef) -> Result<Report, StoreError> {
        let store = &mut self.held(instance)?.store;
        Ok(Report::Inspected(Box::new(Inspection {
            metadata: store.metadata().clone(),
            dir: store.dir().to_owned(),
            messages: store.count_messages(),
            base_bytes: store.base_bytes(),
            waiting: store.waiting_count(),
            parked: store.parked(),
            extensions: store.extension_states()?,
        })))
    }

    /// Writes metadata that is due; `all` writes what is not due yet too.
    pub fn flush_metadata(&mut self, all: bool) {
        let now = Instant::now();
        for (instance, held) in &mut self.open {
            if !all && held.metadata_due.is_none_or(|due| due > now) {
                continue;
            }
            held.metadata_due = None;
            // Metadata is for people to read; the next change tries again.
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
        "metadata.json could not be written"
    );
}

/// Notes what of an instance is to be made durable before the reports of a batch are told.
fn touch(touched: &mut Vec<(InstanceRef, Promise)>, instance: &InstanceRef, promise: Promise) {
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
        "an instance cannot be written; it is opened anew when it is needed"
    );
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
