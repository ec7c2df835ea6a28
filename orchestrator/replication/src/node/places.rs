//! State of one workspace on a node, and the operations on it.

use goondan_protocol::ids::WorkspaceId;

use super::snapshots::Snapshots;
use super::{FilesOutcome, FilesWork, NodeEffect, NodeExit, ReplicationNode, RequestOrigin};
use crate::chain::Chain;
use crate::limits::{LEFT_MS, NEAR_RECORDS, NOTE_BEHIND_MS, NOTE_MS};
use crate::log::{PutAnswer, PutRequest, ReadAnswer};
use crate::names::{NodeId, Position};
use crate::owner::{self, OwnershipLoss, WorkspaceOwner};
use crate::standby::{self, FilesState, Standby};
use crate::wire::LogCommand;

#[derive(Debug)]
pub(super) enum WorkspaceRole {
    Standby(Box<Standby>),
    /// The seal is in the log, but the files are not ready yet.
    TakingOver {
        chain: Box<Chain>,
        seal: PutRequest,
    },
    Owner(Box<WorkspaceOwner>),
    /// All work on the workspace is paused.
    Left {
        /// Applied position of the log.
        chain: Box<Chain>,
        /// End of the pause; `None` if the node exits.
        until_ms: Option<u64>,
    },
}

/// A workspace with a log.
#[derive(Debug)]
pub(super) struct HostedWorkspace {
    pub(super) role: WorkspaceRole,
    /// Last known end of the log.
    pub(super) head: Position,
    /// True if a client requests the workspace here.
    pub(super) is_wanted: bool,
    /// Reason why this node could not run the workspace.
    pub(super) unfit: Option<String>,
    /// True if the workspace is being released.
    is_releasing: bool,
    pub(super) snapshots: Snapshots,
    /// True if the state machine was requested to take over.
    is_told_to: bool,
    /// Last noted position; `None` if the files were rebuilt since then.
    noted: Option<Position>,
    note_due_ms: u64,
}

impl HostedWorkspace {
    fn new(role: WorkspaceRole, noted: Position, now_ms: u64) -> Self {
        Self {
            role,
            head: noted,
            is_wanted: false,
            unfit: None,
            is_releasing: false,
            snapshots: Snapshots::default(),
            is_told_to: false,
            noted: Some(noted),
            note_due_ms: now_ms.saturating_add(NOTE_MS),
        }
    }

    /// Applied position of the log.
    pub(super) fn chain(&self) -> &Chain {
        match &self.role {
            WorkspaceRole::Standby(standby) => standby.chain(),
            WorkspaceRole::TakingOver { chain, .. } | WorkspaceRole::Left { chain, .. } => chain,
            WorkspaceRole::Owner(owner) => owner.chain(),
        }
    }

    /// Pauses all work on the workspace until this time.
    pub(super) fn leave(&mut self, until_ms: Option<u64>) {
        let chain = Box::new(self.chain().clone());
        self.role = WorkspaceRole::Left { chain, until_ms };
    }

    pub(super) fn is_owned(&self) -> bool {
        matches!(
            self.role,
            WorkspaceRole::Owner(_) | WorkspaceRole::TakingOver { .. }
        )
    }

    pub(super) fn is_stopped(&self) -> bool {
        match &self.role {
            WorkspaceRole::Standby(standby) => standby.is_stopped(),
            WorkspaceRole::Left { until_ms, .. } => until_ms.is_none(),
            WorkspaceRole::Owner(_) | WorkspaceRole::TakingOver { .. } => false,
        }
    }

    /// True if the disk has failed and a retry is pending.
    pub(super) fn is_failed(&self) -> bool {
        matches!(&self.role, WorkspaceRole::Left { until_ms, .. } if until_ms.is_some())
    }

    /// True if a standby is applying records; no position may be noted meanwhile.
    fn is_changing(&self) -> bool {
        matches!(&self.role, WorkspaceRole::Standby(standby) if standby.is_changing())
    }

    /// True if a standby is far behind.
    fn is_far_behind(&self) -> bool {
        self.chain().position().0.saturating_add(NEAR_RECORDS) < self.head.0
    }

    pub(super) fn due_ms(&self) -> Option<u64> {
        let machine = match &self.role {
            WorkspaceRole::Standby(standby) => standby.due_ms(),
            WorkspaceRole::Owner(owner) => owner.due_ms(),
            WorkspaceRole::TakingOver { .. } => None,
            WorkspaceRole::Left { until_ms, .. } => return *until_ms,
        };
        let is_noted = Some(self.chain().position()) == self.noted;
        let note = (!is_noted && !self.is_changing()).then_some(self.note_due_ms);
        machine.into_iter().chain(note).min()
    }
}

impl ReplicationNode {
    pub(super) fn joined(&mut self, now_ms: u64, chain: Chain, files: FilesState) {
        let workspace = chain.workspace().clone();
        if self.knows(&workspace) {
            return;
        }
        let noted = chain.position();
        let standby = Standby::new(self.id.clone(), self.life, chain, files, now_ms);
        let role = WorkspaceRole::Standby(Box::new(standby));
        self.places
            .insert(workspace.clone(), HostedWorkspace::new(role, noted, now_ms));
        self.rank_of(now_ms, &workspace);
        self.tell_standby(now_ms, &workspace, standby::StandbyInput::Told);
    }

    pub(super) fn wanted(&mut self, now_ms: u64, workspace: &WorkspaceId) {
        let Some(place) = self.places.get_mut(workspace) else {
            return;
        };
        place.is_wanted = true;
        if matches!(place.role, WorkspaceRole::Owner(_)) && !place.is_releasing {
            self.effects.push(NodeEffect::Own(workspace.clone()));
        }
        self.tell_standby(now_ms, workspace, standby::StandbyInput::Told);
    }

    /// The whole log is applied: checks for a reason to take over without waiting for the owner's
    /// silence.
    pub(super) fn caught_up(&mut self, now_ms: u64, workspace: &WorkspaceId) {
        let (id, drains) = (&self.id, self.drains);
        let Some(place) = self.places.get_mut(workspace) else {
            return;
        };
        let WorkspaceRole::Standby(standby) = &place.role else {
            return;
        };
        if let Some(node) = standby.chain().ended_by().cloned() {
            if std::mem::take(&mut place.is_wanted) {
                self.effects
                    .push(NodeEffect::LogEnded(workspace.clone(), node));
            }
            return;
        }
        // All earlier incarnations of a node that released the workspace to any node have ended.
        let (is_own, is_free, owner) = match standby.chain().owner() {
            None => (false, true, None),
            Some(owner) => match &owner.released {
                Some(to) => (false, to.as_ref().is_none_or(|to| to == id), None),
                None => (owner.node == *id, owner.node == *id, Some(&owner.node)),
            },
        };
        if (is_own && !drains) || (is_free && place.is_wanted) {
            if !std::mem::replace(&mut place.is_told_to, true) {
                self.tell_standby(now_ms, workspace, standby::StandbyInput::TakeOver);
                self.tell_standby(now_ms, workspace, standby::StandbyInput::Told);
            }
            return;
        }
        place.is_told_to = false;
        let epoch = standby.chain().epoch();
        let elsewhere = owner.filter(|owner| {
            let owner = (*owner, epoch);
            self.hearing.is_heard_as_owner(now_ms, workspace, owner)
        });
        if let Some(owner) = elsewhere.cloned()
            && std::mem::take(&mut place.is_wanted)
        {
            self.effects
                .push(NodeEffect::Elsewhere(workspace.clone(), owner));
        }
    }

    pub(super) fn tell_standby(
        &mut self,
        now_ms: u64,
        workspace: &WorkspaceId,
        input: standby::StandbyInput,
    ) {
        let Some(place) = self.places.get_mut(workspace) else {
            return;
        };
        let WorkspaceRole::Standby(standby) = &mut place.role else {
            return;
        };
        for effect in standby.handle(now_ms, input) {
            self.of_standby(now_ms, workspace, effect);
        }
    }

    fn of_standby(&mut self, now_ms: u64, workspace: &WorkspaceId, effect: standby::StandbyEffect) {
        let files = |work| NodeEffect::Files {
            workspace: workspace.clone(),
            work,
        };
        match effect {
            standby::StandbyEffect::Read(attempt, from) => {
                let asked = RequestOrigin::Read(workspace.clone(), attempt);
                let ask = LogCommand::Read {
                    workspace: workspace.clone(),
                    from,
                };
                if !self.ask(asked, ask) {
                    let none = standby::StandbyInput::Read(attempt, ReadAnswer::Unavailable);
                    self.tell_standby(now_ms, workspace, none);
                }
            }
            standby::StandbyEffect::Seal(attempt, put) => {
                let asked = RequestOrigin::Seal(workspace.clone(), attempt);
                if !self.ask(asked, LogCommand::Put(put)) {
                    let none = standby::StandbyInput::Sealed(attempt, PutAnswer::Unavailable);
                    self.tell_standby(now_ms, workspace, none);
                }
            }
            standby::StandbyEffect::Apply(changes) => {
                // Before the changes are applied, the files still match the noted position.
                self.note_before_changes(now_ms, workspace);
                self.effects.push(files(FilesWork::Apply(changes)));
            }
            standby::StandbyEffect::Digest => self.effects.push(files(FilesWork::Digest)),
            standby::StandbyEffect::Verify => self.effects.push(files(FilesWork::Verify)),
            standby::StandbyEffect::Restore(from) => {
                self.effects.push(files(FilesWork::Restore(from)));
            }
            standby::StandbyEffect::Own { chain, seal } => {
                let work = FilesWork::Own(chain.as_ref().clone());
                self.effects.push(files(work));
                if let Some(place) = self.places.get_mut(workspace) {
                    place.noted = Some(chain.position());
                    place.role = WorkspaceRole::TakingOver { chain, seal };
                }
            }
            standby::StandbyEffect::Say(trouble) => {
                self.effects
                    .push(NodeEffect::Say(workspace.clone(), trouble));
            }
        }
    }

    pub(super) fn tell_owner(
        &mut self,
        now_ms: u64,
        workspace: &WorkspaceId,
        input: owner::OwnerInput,
    ) {
        let Some(place) = self.places.get_mut(workspace) else {
            return;
        };
        let WorkspaceRole::Owner(owner) = &mut place.role else {
            return;
        };
        for effect in owner.handle(now_ms, input) {
            self.of_owner(now_ms, workspace, effect);
        }
    }

    fn of_owner(&mut self, now_ms: u64, workspace: &WorkspaceId, effect: owner::OwnerEffect) {
        match effect {
            owner::OwnerEffect::Put(attempt, put) => {
                if !self.ask(
                    RequestOrigin::Put(workspace.clone(), attempt),
                    LogCommand::Put(put),
                ) {
                    let none = owner::OwnerInput::Put(attempt, PutAnswer::Unavailable);
                    self.tell_owner(now_ms, workspace, none);
                }
            }
            owner::OwnerEffect::Look(attempt, from) => {
                let ask = LogCommand::Read {
                    workspace: workspace.clone(),
                    from,
                };
                if !self.ask(RequestOrigin::Look(workspace.clone(), attempt), ask) {
                    let none = owner::OwnerInput::Looked(attempt, ReadAnswer::Unavailable);
                    self.tell_owner(now_ms, workspace, none);
                }
            }
            owner::OwnerEffect::Acknowledge(batch) => {
                let acknowledged = NodeEffect::Acknowledge(workspace.clone(), batch);
                self.effects.push(acknowledged);
            }
            owner::OwnerEffect::SnapshotBegins(reference, at, hash) => {
                self.snapshot_begins(now_ms, workspace, &reference, (at, hash));
            }
            owner::OwnerEffect::SnapshotStands(at) => self.snapshot_stands(now_ms, workspace, at),
            owner::OwnerEffect::Fence(OwnershipLoss::Released { .. }) => {
                self.released(now_ms, workspace);
            }
            owner::OwnerEffect::Fence(why) => {
                if let Some(place) = self.places.get_mut(workspace) {
                    place.leave(None);
                }
                let ended = NodeExit::Deposed(why);
                self.effects
                    .push(NodeEffect::Deposed(workspace.clone(), ended));
            }
        }
    }

    pub(super) fn release(&mut self, now_ms: u64, workspace: &WorkspaceId, to: NodeId) {
        if let Some(place) = self.places.get_mut(workspace) {
            place.is_releasing = matches!(place.role, WorkspaceRole::Owner(_));
        }
        let to = Some(to);
        self.tell_owner(now_ms, workspace, owner::OwnerInput::Release { to });
    }

    /// Cancels the release of a workspace, unless it is released already.
    pub(super) fn keep(&mut self, now_ms: u64, workspace: &WorkspaceId) {
        self.tell_owner(now_ms, workspace, owner::OwnerInput::Keep);
        let Some(place) = self.places.get_mut(workspace) else {
            return;
        };
        if matches!(&place.role, WorkspaceRole::Owner(owner) if !owner.is_releasing()) {
            place.is_releasing = false;
            self.effects.push(NodeEffect::Own(workspace.clone()));
        }
    }

    /// Turns an owner into a standby: the files match the log.
    fn released(&mut self, now_ms: u64, workspace: &WorkspaceId) {
        let Some(place) = self.places.get_mut(workspace) else {
            return;
        };
        let WorkspaceRole::Owner(owner) = &place.role else {
            return;
        };
        let chain = owner.chain().clone();
        let files = FilesState::AsNoted;
        let standby = Standby::new(self.id.clone(), self.life, chain.clone(), files, now_ms);
        let head = place.head;
        let (is_wanted, unfit) = (place.is_wanted, place.unfit.take());
        *place = HostedWorkspace::new(
            WorkspaceRole::Standby(Box::new(standby)),
            chain.position(),
            now_ms,
        );
        (place.head, place.is_wanted, place.unfit) = (head, is_wanted, unfit);
        self.effects.push(NodeEffect::Released(chain));
        self.rank_of(now_ms, workspace);
        self.tell_standby(now_ms, workspace, standby::StandbyInput::Told);
        // Other nodes must receive its heartbeat as a standby before they miss the owner's.
        self.beat_due_ms = now_ms;
    }

    pub(super) fn files_done(
        &mut self,
        now_ms: u64,
        workspace: &WorkspaceId,
        outcome: FilesOutcome,
    ) {
        let input = match outcome {
            FilesOutcome::Applied(outcome) => standby::StandbyInput::Applied(outcome),
            FilesOutcome::Digested(digest) => standby::StandbyInput::Digested(digest),
            FilesOutcome::Verified(is_so) => standby::StandbyInput::Verified(is_so),
            FilesOutcome::Restored(is_so) => {
                if let Some(place) = self.places.get_mut(workspace) {
                    place.noted = None;
                }
                standby::StandbyInput::Restored(is_so)
            }
            FilesOutcome::Owned => return self.owned_now(now_ms, workspace),
            FilesOutcome::Captured(reference, captured) => {
                return self.captured(now_ms, workspace, &reference, captured);
            }
            FilesOutcome::Failed => {
                if let Some(place) = self.places.get_mut(workspace) {
                    place.leave(Some(now_ms.saturating_add(LEFT_MS)));
                }
                return;
            }
        };
        self.tell_standby(now_ms, workspace, input);
    }

    /// Joins a workspace again after its disk failed, if the delay is over.
    pub(super) fn begin_anew(&mut self, now_ms: u64, workspace: &WorkspaceId) {
        let place = self.places.get(workspace);
        let is_due =
            |place: &HostedWorkspace| place.due_ms().is_some_and(|due_ms| due_ms <= now_ms);
        if place.is_some_and(|place| place.is_failed() && is_due(place)) {
            self.places.remove(workspace);
            // Answers to earlier requests must not count as answers to later ones.
            self.asked
                .retain(|_, asked| asked.workspace() != Some(workspace));
            self.effects.push(NodeEffect::Found(workspace.clone()));
        }
    }

    fn owned_now(&mut self, now_ms: u64, workspace: &WorkspaceId) {
        let Some(place) = self.places.get_mut(workspace) else {
            return;
        };
        let WorkspaceRole::TakingOver { chain, seal } = &place.role else {
            return;
        };
        let owner = WorkspaceOwner::new(chain.as_ref().clone(), seal.clone(), now_ms);
        place.role = WorkspaceRole::Owner(Box::new(owner));
        self.effects.push(NodeEffect::Own(workspace.clone()));
        // Other nodes must learn about the change before they try.
        self.beat_due_ms = now_ms;
    }

    /// Notes the applied position of a log, if a note is due and no changes are in progress.
    pub(super) fn note_if_due(&mut self, now_ms: u64, workspace: &WorkspaceId) {
        let place = self.places.get(workspace);
        if place.is_some_and(|place| !place.is_changing()) {
            self.note_before_changes(now_ms, workspace);
        }
    }

    /// Like [`note_if_due`](Self::note_if_due), before further changes are submitted.
    fn note_before_changes(&mut self, now_ms: u64, workspace: &WorkspaceId) {
        let Some(place) = self.places.get_mut(workspace) else {
            return;
        };
        if place.note_due_ms > now_ms {
            return;
        }
        let next_ms = if place.is_far_behind() {
            NOTE_BEHIND_MS
        } else {
            NOTE_MS
        };
        place.note_due_ms = now_ms.saturating_add(next_ms);
        // The files then do not match any record.
        match &place.role {
            WorkspaceRole::Standby(standby) if standby.is_rebuilding() => return,
            WorkspaceRole::Left { .. } => return,
            WorkspaceRole::Standby(_)
            | WorkspaceRole::TakingOver { .. }
            | WorkspaceRole::Owner(_) => {}
        }
        let chain = place.chain().clone();
        let noted = place.noted.replace(chain.position());
        if noted != Some(chain.position()) {
            self.effects.push(NodeEffect::Files {
                workspace: workspace.clone(),
                work: FilesWork::Note(chain),
            });
        }
    }
}
