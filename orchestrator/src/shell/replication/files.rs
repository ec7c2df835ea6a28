//! The thread that changes the files of workspaces that this node follows, and starts the
//! workspaces that it owns.
//!
//! It writes directly to the disk, because changes from a log must not go into a log again. It does
//! not change the files of workspaces that this node owns.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use goondan_config::LocalMachine;
use goondan_core::{CoreInput, LoadPurpose, WorkspaceLoadResult, control_error};
use goondan_durable::disk::{Disk, EntryKind};
use goondan_durable::files;
use goondan_log::unix_millis_now;
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::time::Timestamp;
use goondan_replicated_disk::note::{self, Note};
use goondan_replicated_disk::{OpLog, Replica};
use goondan_replication::chain::Chain;
use goondan_replication::names::{NodeId, Position};
use goondan_replication::node::{FilesOutcome, FilesWork};
use goondan_replication::record::SnapshotReference;
use goondan_replication::standby::{ApplyFailure, FilesState, RecordChanges};
use goondan_replication::tree::FileMismatch;
use goondan_store::root::Layout;
use goondan_store::{StoreError, workspace};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::import::{NOTE_SUFFIX, note_path};
use super::messages::{FilesJob, LeaveCluster, Message, OwnershipWaiter, Verifier};
use super::snapshots::{self, Parts, SNAPSHOTS};
use super::{import, verification};
use crate::limits::{FITNESS_LOOK_MS, FITNESS_MACHINE_MS, HAND_ON_PAUSE_MS, NOT_LOADED_MS};
use crate::shell::event::ShellEvent;
use crate::shell::proposals;
use crate::shell::workspace_load::Projects;

/// A workspace that this node owned and could not load.
#[derive(Debug)]
struct LoadFailure {
    why: String,
    at: Instant,
    /// Time of the last move to another node.
    handed_on: Option<Instant>,
}

/// Workspaces that failed to load, shared with the loading threads.
type LoadFailures = Arc<Mutex<HashMap<WorkspaceId, LoadFailure>>>;

/// Properties of this machine, and the time of their detection.
struct DetectedMachine {
    machine: LocalMachine,
    found_at: Instant,
}

impl DetectedMachine {
    fn of(projects: &Projects) -> Self {
        Self {
            machine: projects.machine(),
            found_at: Instant::now(),
        }
    }

    fn is_old(&self) -> bool {
        self.found_at.elapsed() >= Duration::from_millis(FITNESS_MACHINE_MS)
    }
}

pub(super) struct FilesThread {
    node: NodeId,
    disk: Arc<dyn Disk>,
    /// The disk whose changes go to the log.
    recorded: Arc<dyn Disk>,
    layout: Layout,
    recording: Arc<OpLog>,
    projects: Projects,
    runtime: Handle,
    events: mpsc::Sender<ShellEvent>,
    machine: Sender<Message>,
    replicas: HashMap<WorkspaceId, Replica>,
    owned: HashSet<WorkspaceId>,
    /// Workspaces whose files are in no log yet.
    unlogged: HashSet<WorkspaceId>,
    /// Workspaces whose files are being imported into a log.
    importing: HashSet<WorkspaceId>,
    /// Workspaces whose disk failed: the state of their files is unknown.
    failed: HashSet<WorkspaceId>,
    /// Position of the record after the last note, and the number of its applied changes.
    ahead: HashMap<WorkspaceId, (Position, u32)>,
    /// Workspaces whose logs this node follows.
    joined: BTreeSet<WorkspaceId>,
    /// Reasons why this node could not run workspaces, as last reported to the machine.
    unfit: HashMap<WorkspaceId, Option<String>>,
    /// Owned workspaces that failed to load.
    not_loaded: LoadFailures,
    /// Time of the last fitness check.
    looked_at: Option<Instant>,
    /// True once this node has left the cluster: it follows no logs.
    has_left: bool,
}

impl FilesThread {
    /// Starts the thread, which first lists the workspaces. `disk` is the plain disk, and changes
    /// on `recorded` go to the log. Needs a runtime.
    ///
    /// # Errors
    ///
    /// The operating system's error if the thread cannot be created.
    pub(super) fn start(
        node: NodeId,
        (disk, recorded): (Arc<dyn Disk>, Arc<dyn Disk>),
        recording: Arc<OpLog>,
        projects: Projects,
        events: mpsc::Sender<ShellEvent>,
        machine: Sender<Message>,
    ) -> io::Result<Sender<FilesJob>> {
        let (jobs, waiting) = channel();
        let layout = projects.layout.clone();
        let this = Self {
            node,
            disk,
            recorded,
            layout,
            recording,
            projects,
            runtime: Handle::current(),
            events,
            machine,
            replicas: HashMap::new(),
            owned: HashSet::new(),
            unlogged: HashSet::new(),
            importing: HashSet::new(),
            failed: HashSet::new(),
            ahead: HashMap::new(),
            joined: BTreeSet::new(),
            unfit: HashMap::new(),
            not_loaded: LoadFailures::default(),
            looked_at: None,
            has_left: false,
        };
        let builder = thread::Builder::new().name("replica files".to_owned());
        builder.spawn(move || this.run(&waiting))?;
        Ok(jobs)
    }

    fn run(mut self, waiting: &Receiver<FilesJob>) {
        self.join_all();
        let mut machine = DetectedMachine::of(&self.projects);
        loop {
            if machine.is_old() {
                machine = DetectedMachine::of(&self.projects);
            }
            self.look_for_fitness(&machine.machine);
            let job = match waiting.recv_timeout(Duration::from_millis(FITNESS_LOOK_MS)) {
                Ok(job) => job,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            match job {
                FilesJob::Join(_) | FilesJob::Work(..) if self.has_left => {}
                FilesJob::Join(workspace) => self.join(&workspace),
                FilesJob::Work(workspace, work) => self.work(workspace, work),
                FilesJob::Verify(workspace, answer) => self.tell_verified(workspace, answer),
                FilesJob::Start {
                    workspace,
                    waiters,
                    is_new,
                } => {
                    let is_awaited = self.is_handed_to(&workspace, waiters);
                    if is_new && is_awaited == Some(false) {
                        self.load(&workspace);
                    }
                }
                FilesJob::Leave(chain) => {
                    self.owned.remove(chain.workspace());
                    self.note(chain);
                }
                FilesJob::PutAway(LeaveCluster { keeps, answer }) => {
                    // The caller is gone if it has timed out.
                    answer.send(self.puts_away(&keeps)).ok();
                }
                FilesJob::End(done) => {
                    // The caller is gone if it has timed out.
                    done.send(()).ok();
                    return;
                }
            }
        }
    }

    /// Checks if this node could run the workspaces that it follows; otherwise it must not take
    /// them over. For owned workspaces that failed to load, checks if this or another node could
    /// run them now. Rate-limited by [`FITNESS_LOOK_MS`].
    fn look_for_fitness(&mut self, machine: &LocalMachine) {
        let due = Duration::from_millis(FITNESS_LOOK_MS);
        if self.looked_at.is_some_and(|at| at.elapsed() < due) {
            return;
        }
        self.looked_at = Some(Instant::now());
        for workspace in self.joined.clone() {
            let why_not_loaded = self.why_not_loaded(&workspace);
            let unfit = if self.owned.contains(&workspace) {
                if why_not_loaded.is_some() {
                    self.try_again_to_load(&workspace, machine);
                }
                why_not_loaded
            } else {
                let unfit = self.why_unfit(&workspace, machine);
                if unfit.as_deref().is_some_and(|why| why != NOT_FOLLOWED_YET) {
                    // The check detects missing requirements, and their return, without loading the
                    // workspace.
                    not_loaded(&self.not_loaded).remove(&workspace);
                }
                unfit.or(why_not_loaded)
            };
            self.tell_fitness(&workspace, unfit);
        }
    }

    fn tell_fitness(&mut self, workspace: &WorkspaceId, unfit: Option<String>) {
        if self.unfit.get(workspace) == Some(&unfit) {
            return;
        }
        if let Some(why) = unfit.as_deref().filter(|why| *why != NOT_FOLLOWED_YET) {
            tracing::warn!(
                workspace_id = %workspace,
                why,
                "this node failed to run the workspace and leaves it to other nodes"
            );
        }
        self.unfit.insert(workspace.clone(), unfit.clone());
        drop(self.machine.send(Message::Fit(workspace.clone(), unfit)));
    }

    /// Reason why this node could not run a workspace; `None` if it could, or if the workspace is
    /// stopped.
    fn why_unfit(&self, workspace: &WorkspaceId, machine: &LocalMachine) -> Option<String> {
        match workspace::recall(self.disk.as_ref(), &self.layout, workspace) {
            Ok(Some(record)) if record.registered => {
                self.projects.check_runnable(&record, machine).err()
            }
            Ok(None) => Some(NOT_FOLLOWED_YET.to_owned()),
            // No node runs a stopped workspace. The node that runs it reports unreadable records.
            Ok(Some(_)) | Err(_) => None,
        }
    }

    /// Reason why this node failed to load a workspace that it owned; `None` if it could load it,
    /// or if the failure was long ago.
    fn why_not_loaded(&self, workspace: &WorkspaceId) -> Option<String> {
        let mut failures = not_loaded(&self.not_loaded);
        let limit = Duration::from_millis(NOT_LOADED_MS);
        let is_old = |failure: &LoadFailure| failure.at.elapsed() >= limit;
        if !self.owned.contains(workspace) && failures.get(workspace).is_some_and(is_old) {
            failures.remove(workspace);
        }
        failures.get(workspace).map(|failure| failure.why.clone())
    }

    /// Loads an owned workspace again that failed to load, once its requirements are met or another
    /// node could run it. If loading fails again, the workspace is moved to such a node.
    fn try_again_to_load(&self, workspace: &WorkspaceId, machine: &LocalMachine) {
        let pause = Duration::from_millis(HAND_ON_PAUSE_MS);
        let is_paused = not_loaded(&self.not_loaded)
            .get(workspace)
            .and_then(|failure| failure.handed_on)
            .is_some_and(|at| at.elapsed() < pause);
        let could_run = || self.why_unfit(workspace, machine).is_none();
        let replication = self.projects.replication.as_ref();
        let has_successor = || replication.is_some_and(|it| it.successor(workspace, None).is_ok());
        if !is_paused && (could_run() || has_successor()) {
            if let Some(failure) = not_loaded(&self.not_loaded).get_mut(workspace) {
                failure.handed_on = Some(Instant::now());
            }
            self.load(workspace);
        }
    }

    /// Joins the logs of all workspaces that have files or a note here.
    fn join_all(&mut self) {
        let (layout, disk) = (&self.layout, self.disk.as_ref());
        // All copying threads of an earlier daemon are gone.
        let emptied = disk.remove_tree(&layout.replication().join(SNAPSHOTS));
        let mut names = import::DIRECTORIES.iter().chain([&SNAPSHOTS]);
        let made = names.try_for_each(|name| {
            files::ensure_dir(disk, layout.root(), &layout.replication().join(name))
        });
        if let Err(error) = emptied.and(made.map_err(io::Error::other)) {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "failed to write replication state"
            );
        }
        let dirs = import::DIRECTORIES.map(|name| layout.replication().join(name));
        let dirs = dirs
            .into_iter()
            .chain([layout.workspaces(), layout.replication()]);
        let mut names = BTreeSet::new();
        for dir in dirs {
            match disk.list(&dir) {
                Ok(entries) => names.extend(entries.into_iter().filter_map(|entry| {
                    let name = entry.name.to_str()?;
                    let name = match entry.kind {
                        EntryKind::File => name.strip_suffix(NOTE_SUFFIX)?,
                        EntryKind::Directory => name,
                        EntryKind::Other => return None,
                    };
                    WorkspaceId::new(name).ok()
                })),
                Err(error) => tracing::error!(
                    path = %dir.display(),
                    error = &error as &dyn std::error::Error,
                    "failed to list a directory of workspaces"
                ),
            }
        }
        for name in import::DIRECTORIES.into_iter().chain([SNAPSHOTS]) {
            names.retain(|workspace| workspace.as_str() != name);
        }
        for workspace in names {
            self.join(&workspace);
        }
    }

    fn join(&mut self, workspace: &WorkspaceId) {
        let joined = self.joined(workspace);
        match joined {
            Ok((
                Note {
                    chain,
                    ahead,
                    files,
                },
                is_wanted,
            )) => {
                self.joined.insert(workspace.clone());
                // Facts from an earlier period no longer apply.
                self.unfit.remove(workspace);
                self.looked_at = None;
                let noted = (chain.position(), ahead);
                self.ahead.insert(workspace.clone(), noted);
                drop(self.machine.send(Message::Joined {
                    chain,
                    files,
                    is_wanted,
                }));
            }
            Err(error) => tracing::error!(
                workspace_id = %workspace,
                error = &*error,
                "cannot determine the followed position of a workspace's log; skipping it"
            ),
        }
    }

    /// Returns the noted position of a log, and true if the local files are in no log yet.
    fn joined(
        &mut self,
        workspace: &WorkspaceId,
    ) -> Result<(Note, bool), Box<dyn std::error::Error + Send + Sync>> {
        let (disk, layout) = (self.disk.as_ref(), &self.layout);
        if disk.stat(&import::unfinished(layout, workspace))?.is_some() {
            self.importing.insert(workspace.clone());
        }
        if let Some(mut note) = note::read(disk, &note_path(layout, workspace))? {
            if self.failed.remove(workspace) {
                note.files = FilesState::PerhapsAhead;
            }
            return Ok((note, false));
        }
        if import::has_files(disk, layout, workspace)? {
            self.unlogged.insert(workspace.clone());
        }
        let is_wanted = self.importing.contains(workspace) || self.unlogged.contains(workspace);
        let note = Note {
            chain: Chain::new(workspace.clone()),
            ahead: 0,
            files: FilesState::AsNoted,
        };
        Ok((note, is_wanted))
    }

    fn replica(&mut self, workspace: &WorkspaceId) -> &mut Replica {
        let (disk, dir) = (&self.disk, self.layout.workspace(workspace));
        self.replicas
            .entry(workspace.clone())
            .or_insert_with(|| Replica::new(disk.clone(), dir))
    }

    fn work(&mut self, workspace: WorkspaceId, work: FilesWork) {
        let done = match self.make_way(&workspace, &work) {
            Ok(()) => self.do_work(&workspace, work),
            Err(error) => Err(error),
        };
        let outcome = done.unwrap_or_else(|error| {
            tracing::error!(
                workspace_id = %workspace,
                error = &error as &dyn std::error::Error,
                "disk failed; this node leaves the workspace to other nodes for a while"
            );
            self.forget(&workspace);
            Some(FilesOutcome::Failed)
        });
        if let Some(outcome) = outcome {
            drop(self.machine.send(Message::FilesDone(workspace, outcome)));
        }
    }

    /// Forgets all facts about a workspace's files; the next check reads them again.
    fn forget(&mut self, workspace: &WorkspaceId) {
        self.replicas.remove(workspace);
        self.ahead.remove(workspace);
        self.owned.remove(workspace);
        self.unlogged.remove(workspace);
        self.importing.remove(workspace);
        self.failed.insert(workspace.clone());
    }

    /// Moves away files that are in no log before the log's records are applied. If the log is
    /// empty, the files are imported into it.
    fn make_way(&mut self, workspace: &WorkspaceId, work: &FilesWork) -> io::Result<()> {
        let is_first = match work {
            FilesWork::Verify | FilesWork::Capture(_) => return Ok(()),
            FilesWork::Note(chain) if has_seals_alone(chain) => return Ok(()),
            FilesWork::Own(chain) => has_seals_alone(chain),
            FilesWork::Apply(..)
            | FilesWork::Digest
            | FilesWork::Restore(_)
            | FilesWork::Note(_) => false,
        };
        let (disk, layout) = (self.disk.as_ref(), &self.layout);
        if self.unlogged.contains(workspace) {
            import::take_away(disk, layout, workspace, is_first)?;
            self.unlogged.remove(workspace);
            if is_first {
                self.importing.insert(workspace.clone());
            }
        }
        // Local files are outdated after a write of another node, and must not replace newer ones.
        let is_of_another = |record: &RecordChanges| {
            let owner = record.behind.owner();
            owner.is_some_and(|owner| owner.node != self.node)
        };
        if let FilesWork::Apply(changes) = work
            && changes.iter().any(is_of_another)
            && self.importing.contains(workspace)
        {
            import::give_up(disk, layout, workspace)?;
            self.importing.remove(workspace);
        }
        Ok(())
    }

    /// Executes the work and returns the outcome; `None` for a note.
    fn do_work(
        &mut self,
        workspace: &WorkspaceId,
        work: FilesWork,
    ) -> io::Result<Option<FilesOutcome>> {
        Ok(Some(match work {
            FilesWork::Note(chain) => {
                // With a note, local files that are in no log would be taken for the log's.
                if !self.unlogged.contains(workspace) {
                    self.note(chain);
                }
                return Ok(None);
            }
            FilesWork::Apply(changes) => FilesOutcome::Applied(self.apply_all(&changes)?),
            FilesWork::Digest => FilesOutcome::Digested(self.replica(workspace).digest()?),
            FilesWork::Verify => {
                // Files that are in no log do not result from a record.
                let is_unlogged = self.unlogged.contains(workspace);
                let (disk, layout) = (self.disk.as_ref(), &self.layout);
                let replica = self.replicas.get(workspace);
                let is_the_logs = replica.is_none_or(|replica| replica.owes().is_ok());
                let is_whole =
                    is_the_logs && (is_unlogged || verification::is_whole(disk, layout, workspace));
                FilesOutcome::Verified(is_whole)
            }
            FilesWork::Restore(None) => {
                self.clear(workspace)?;
                FilesOutcome::Restored(true)
            }
            FilesWork::Restore(Some(reference)) => {
                self.restore(workspace, reference)?;
                return Ok(None);
            }
            FilesWork::Capture(reference) => match self.capture(workspace, reference.clone()) {
                Ok(()) => return Ok(None),
                Err(error) => {
                    tracing::warn!(
                        workspace_id = %workspace,
                        error = &error as &dyn std::error::Error,
                        "failed to take a snapshot of the workspace; its log is not truncated until one succeeds"
                    );
                    FilesOutcome::Captured(reference, None)
                }
            },
            FilesWork::Own(chain) => {
                self.own(workspace, chain)?;
                FilesOutcome::Owned
            }
        }))
    }

    fn apply_all(&mut self, changes: &[RecordChanges]) -> io::Result<Result<(), ApplyFailure>> {
        for record in changes {
            if let Err(fault) = self.apply(record)? {
                let position = record.position();
                return Ok(Err(ApplyFailure { position, fault }));
            }
        }
        Ok(Ok(()))
    }

    /// Applies the changes of a record. Between changes that a crash must not repeat, it records
    /// the number of applied changes.
    fn apply(&mut self, record: &RecordChanges) -> io::Result<Result<(), FileMismatch>> {
        let RecordChanges {
            behind: chain,
            operations,
        } = record;
        let workspace = chain.workspace();
        let ahead = match self.ahead.remove(workspace) {
            Some((position, ahead)) if position == chain.position() => ahead,
            _ => 0,
        };
        let mut made = usize::try_from(ahead).unwrap_or(usize::MAX);
        while let Some(rest) = operations.get(made..).filter(|rest| !rest.is_empty()) {
            match self.replica(workspace).follow(rest)? {
                Ok(now) if now == rest.len() => break,
                Ok(now) => made += now,
                Err(misfit) => return Ok(Err(misfit)),
            }
            let ahead = u32::try_from(made).unwrap_or(u32::MAX);
            self.write_note(chain.clone(), ahead)?;
        }
        Ok(Ok(()))
    }

    fn dir(&self, workspace: &WorkspaceId) -> io::Result<()> {
        let dir = self.layout.workspace(workspace);
        if self.disk.stat(&dir)?.is_none() {
            self.disk.create_dir(&dir)?;
            self.disk.sync_dir(&self.layout.workspaces())?;
        }
        Ok(())
    }

    /// Records that the files match no record from here on, so that the next daemon detects it
    /// after a crash.
    fn unmake(&mut self, workspace: &WorkspaceId) -> io::Result<()> {
        self.ahead.remove(workspace);
        let (disk, path) = (self.disk.as_ref(), note_path(&self.layout, workspace));
        let noted = note::read(disk, &path).map_err(io::Error::other)?;
        let Some(note) = noted.filter(|note| note.files == FilesState::AsNoted) else {
            return Ok(());
        };
        let files = FilesState::PerhapsAhead;
        note::write(disk, &path, &Note { files, ..note }).map_err(io::Error::other)
    }

    /// Starts the restore of the files from a snapshot; reports the outcome at the end.
    fn restore(&mut self, workspace: &WorkspaceId, reference: SnapshotReference) -> io::Result<()> {
        self.unmake(workspace)?;
        self.replicas.remove(workspace);
        let (dir, aside) = (
            self.layout.workspace(workspace),
            import::aside(&self.layout, workspace),
        );
        let parts = self.parts(workspace, reference);
        parts.restore(self.disk.clone(), dir, aside)
    }

    /// Starts the copy of the current files as a snapshot; reports the outcome at the end.
    fn capture(&self, workspace: &WorkspaceId, reference: SnapshotReference) -> io::Result<()> {
        let dir = snapshots::captured(&self.layout, workspace, &reference);
        let captured = self
            .recording
            .capture(workspace, &self.disk, &dir, reference.clone())?;
        self.parts(workspace, reference).keep(captured)
    }

    fn parts(&self, workspace: &WorkspaceId, reference: SnapshotReference) -> Parts {
        Parts {
            machine: self.machine.clone(),
            workspace: workspace.clone(),
            reference,
        }
    }

    fn clear(&mut self, workspace: &WorkspaceId) -> io::Result<()> {
        self.unmake(workspace)?;
        let aside = import::aside(&self.layout, workspace);
        self.replica(workspace).clear(&aside)
    }

    /// Makes all changes durable and notes that the files may be ahead of the log from here on.
    fn own(&mut self, workspace: &WorkspaceId, chain: Chain) -> io::Result<()> {
        self.dir(workspace)?;
        let aside = import::aside(&self.layout, workspace);
        // All records are noted as applied, so that a repeated record cannot replace restored
        // files.
        self.write_note(chain.clone(), 0)?;
        if self.disk.stat(&aside)?.is_some() {
            self.replica(workspace).put_back(&aside)?;
        }
        self.replicas.remove(workspace);
        self.owned.insert(workspace.clone());
        self.write_note(chain, 0)
    }

    /// Durably notes the applied position, after all changes.
    fn write_note(&mut self, chain: Chain, ahead: u32) -> io::Result<()> {
        let workspace = chain.workspace();
        if let Some(replica) = self.replicas.get_mut(workspace) {
            if replica.owes().is_err() {
                // The files match no record until more of the log is applied; a later note contains
                // the position.
                return Ok(());
            }
            replica.sync()?;
        }
        let path = note_path(&self.layout, workspace);
        let files = if self.owned.contains(workspace) {
            FilesState::PerhapsAhead
        } else {
            FilesState::AsNoted
        };
        let note = Note {
            chain,
            ahead,
            files,
        };
        note::write(self.disk.as_ref(), &path, &note).map_err(io::Error::other)
    }

    /// Notes the applied position. If that fails, the next note covers it.
    fn note(&mut self, chain: Chain) {
        let workspace = chain.workspace().clone();
        if let Err(error) = self.write_note(chain, 0) {
            tracing::warn!(
                workspace_id = %workspace,
                error = &error as &dyn std::error::Error,
                "failed to record the followed position of a workspace's log"
            );
        }
    }

    /// Moves away the files of workspaces whose logs continue without this node, and all notes:
    /// only workspaces that run here without a log remain. True if it succeeded.
    fn puts_away(&mut self, keeps: &BTreeSet<WorkspaceId>) -> bool {
        self.has_left = true;
        self.replicas.clear();
        let (disk, layout) = (self.disk.as_ref(), &self.layout);
        let mut is_done = true;
        for workspace in &self.joined {
            let is_kept = keeps.contains(workspace);
            if let Err(error) = import::leave(disk, layout, workspace, is_kept) {
                is_done = false;
                tracing::error!(
                    workspace_id = %workspace,
                    error = &error as &dyn std::error::Error,
                    "failed to set this node's files of a workspace aside"
                );
            }
        }
        is_done
    }

    /// Verifies the files of a workspace for a person.
    fn tell_verified(&self, workspace: WorkspaceId, answer: Verifier) {
        let found = verification::look(self.disk.as_ref(), &self.layout, &workspace);
        let found = found.map_err(|error| control_error(&error));
        drop(self.machine.send(Message::Verified {
            workspace,
            found,
            answer,
        }));
    }

    /// Adds local files to the log that are not in it yet, and notifies the waiters of the
    /// workspace; true if any was still waiting. `None` if the workspace cannot run before the next
    /// start.
    fn is_handed_to(
        &mut self,
        workspace: &WorkspaceId,
        waiters: Vec<OwnershipWaiter>,
    ) -> Option<bool> {
        let (disk, layout) = (self.disk.as_ref(), &self.layout);
        if let Err(error) = import::finish(disk, self.recorded.as_ref(), layout, workspace) {
            tracing::error!(
                workspace_id = %workspace,
                path = %import::unfinished(layout, workspace).display(),
                error = &error as &dyn std::error::Error,
                "existing files of a workspace are not completely in its log yet; the next start continues"
            );
            return None;
        }
        self.importing.remove(workspace);
        self.put_back_the_rest(workspace);
        self.take_on_proposals(workspace);
        // A waiter is gone if it has timed out.
        let told = waiters
            .into_iter()
            .filter(|waiter| waiter.send(Ok(())).is_ok());
        Some(told.count() > 0)
    }

    /// Unpacks proposals that were created on other nodes, and finishes operations that were
    /// interrupted there.
    fn take_on_proposals(&self, workspace: &WorkspaceId) {
        let recalled = workspace::recall(self.disk.as_ref(), &self.layout, workspace);
        // Loading reports why it is unreadable.
        let Ok(Some(record)) = recalled else {
            return;
        };
        let files = self.projects.proposal_files();
        let root = &record.project_root;
        let now = Timestamp::from_unix_millis(unix_millis_now());
        let recovered = proposals::recover(&files, &self.layout, workspace, root, now);
        if let Some(input) = recovered {
            // There is no receiver only when the daemon ends.
            drop(self.events.blocking_send(ShellEvent::Input(input)));
        }
    }

    /// Restores local-only files that could not be restored before the log had the whole workspace.
    fn put_back_the_rest(&self, workspace: &WorkspaceId) {
        let (disk, layout) = (self.disk.clone(), &self.layout);
        let aside = import::aside(layout, workspace);
        let put_back = || match disk.stat(&aside)? {
            Some(_) => Replica::new(disk.clone(), layout.workspace(workspace)).put_back(&aside),
            None => Ok(()),
        };
        if let Err(error) = put_back() {
            tracing::warn!(
                workspace_id = %workspace,
                path = %aside.display(),
                error = &error as &dyn std::error::Error,
                "failed to restore files that are not in a log; they are kept aside"
            );
        }
    }

    /// Loads a registered workspace, as at the start of the daemon.
    fn load(&self, workspace: &WorkspaceId) {
        let recalled = workspace::recall(self.disk.as_ref(), &self.layout, workspace);
        let record = match recalled {
            Ok(Some(record)) if record.registered => record,
            Ok(_) => return,
            Err(error) => {
                let error = StoreError::from(error);
                tracing::error!(
                    workspace_id = %workspace,
                    error = &error as &dyn std::error::Error,
                    "failed to run a workspace after takeover"
                );
                return;
            }
        };
        let (projects, events) = (self.projects.clone(), self.events.clone());
        let (failures, id) = (self.not_loaded.clone(), record.workspace_id.clone());
        self.runtime.spawn_blocking(move || {
            let (sources, result) = projects.read_registered(record);
            let why = match &result {
                Ok(found) => found.bundle.as_ref().err(),
                Err(error) => Some(error),
            };
            let why = why.map(|error| error.message.clone());
            let loaded = Box::new(WorkspaceLoadResult {
                purpose: LoadPurpose::Start,
                workspace_id: Some(id.clone()),
                sources,
                result,
            });
            // There is no receiver only when the daemon ends.
            drop(events.blocking_send(ShellEvent::Input(CoreInput::Loaded(loaded))));
            let Some(why) = why else {
                not_loaded(&failures).remove(&id);
                return;
            };
            let successor = projects.replication.as_ref();
            let successor = successor.and_then(|replication| replication.successor(&id, None).ok());
            note_load_failure(&failures, &id, why, successor.is_some());
            if let Some(to) = successor {
                tracing::warn!(
                    workspace_id = %id,
                    node = to,
                    "this node owns the workspace but cannot load it; handing it over to another node"
                );
                let workspace_id = id;
                let hand_on = CoreInput::HandOn { workspace_id, to };
                // There is no receiver only when the daemon ends.
                drop(events.blocking_send(ShellEvent::Input(hand_on)));
            }
        });
    }
}

fn not_loaded(failures: &LoadFailures) -> MutexGuard<'_, HashMap<WorkspaceId, LoadFailure>> {
    failures.lock().unwrap_or_else(PoisonError::into_inner)
}

fn note_load_failure(
    failures: &LoadFailures,
    workspace: &WorkspaceId,
    why: String,
    is_handed_on: bool,
) {
    let mut failures = not_loaded(failures);
    let before = failures.get(workspace).and_then(|it| it.handed_on);
    let now = Instant::now();
    let failure = LoadFailure {
        why,
        at: now,
        handed_on: is_handed_on.then_some(now).or(before),
    };
    failures.insert(workspace.clone(), failure);
}

/// True if a log contains only seals: each seal is one record and one epoch.
fn has_seals_alone(chain: &Chain) -> bool {
    chain.position().0 == chain.epoch().0
}

/// Reason why a node cannot run a workspace whose record it does not have.
const NOT_FOLLOWED_YET: &str = "this node does not follow its log yet";
