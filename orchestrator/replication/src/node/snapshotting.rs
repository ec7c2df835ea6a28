//! Snapshots of the workspaces that a node owns: when one is due, how far it is, and what the log may forget then.
//!
//! ```text
//! due ──▶ FilesWork::Capture ──▶ the record of the snapshot stands ──┐
//!                   │                                                ├──▶ it is said that it is kept ──▶ trim
//!                   └──▶ its parts are kept, Outcome::Captured ──────┘
//! ```

use goondan_protocol::ids::WorkspaceId;

use super::places::Role;
use super::snapshots::UnderWay;
use super::{Asked, Captured, Effect, FilesWork, Node};
use crate::limits::SNAPSHOT_RETRY_MS;
use crate::names::{Hash, Position};
use crate::owner;
use crate::record::SnapshotReference;
use crate::retention::{SinceSnapshot, forgettable};
use crate::wire::{Ask, KeptSnapshot};

impl Node {
    /// Begins a snapshot of a workspace that this node owns, if one is due.
    pub(super) fn snapshot_if_due(&mut self, now_ms: u64, workspace: &WorkspaceId) {
        let records_max = self.snapshot_records;
        let Some(place) = self.places.get_mut(workspace) else {
            return;
        };
        let (Role::Owner(owner), snapshots) = (&place.role, &mut place.snapshots) else {
            return;
        };
        let chain = owner.chain();
        let last = chain.snapshot().unwrap_or(Position::START);
        let since = SinceSnapshot {
            records: chain.position().0.saturating_sub(last.0),
            bytes: snapshots.bytes,
        };
        let is_due = since.is_due(records_max) && snapshots.not_before_ms <= now_ms;
        if !is_due || snapshots.under_way.is_some() {
            return;
        }
        // Later ones sort behind, whoever takes them: each owner has followed what those before it wrote.
        let name = format!("{:020}-{:016x}", chain.position().0, self.life.0);
        // Digits and a hyphen are a name.
        let Ok(reference) = SnapshotReference::new(&name) else {
            return;
        };
        snapshots.bytes = 0;
        snapshots.under_way = Some(UnderWay {
            reference: reference.clone(),
            at: None,
            captured: None,
        });
        self.effects.push(Effect::Files {
            workspace: workspace.clone(),
            work: FilesWork::Capture(reference),
        });
    }

    /// The record of a snapshot stands.
    pub(super) fn snapshot_begins(
        &mut self,
        now_ms: u64,
        workspace: &WorkspaceId,
        reference: &SnapshotReference,
        at: (Position, Hash),
    ) {
        if let Some(under_way) = self.snapshot_under_way(workspace, reference) {
            under_way.at = Some(at);
            self.snapshot_kept(now_ms, workspace);
        }
    }

    /// All parts of a snapshot are kept; or it has failed, and another one is tried later.
    pub(super) fn captured(
        &mut self,
        now_ms: u64,
        workspace: &WorkspaceId,
        reference: &SnapshotReference,
        captured: Option<Captured>,
    ) {
        let Some(under_way) = self.snapshot_under_way(workspace, reference) else {
            return;
        };
        under_way.captured = captured;
        if captured.is_some() {
            return self.snapshot_kept(now_ms, workspace);
        }
        if let Some(place) = self.places.get_mut(workspace) {
            place.snapshots.under_way = None;
            place.snapshots.not_before_ms = now_ms.saturating_add(SNAPSHOT_RETRY_MS);
        }
    }

    fn snapshot_under_way(
        &mut self,
        workspace: &WorkspaceId,
        reference: &SnapshotReference,
    ) -> Option<&mut UnderWay> {
        let under_way = self.places.get_mut(workspace)?.snapshots.under_way.as_mut();
        under_way.filter(|it| it.reference == *reference)
    }

    fn snapshot_kept(&mut self, now_ms: u64, workspace: &WorkspaceId) {
        let place = self.places.get(workspace);
        let under_way = place.and_then(|place| place.snapshots.under_way.as_ref());
        if let Some(UnderWay {
            at: Some((at, _)),
            captured: Some(captured),
            ..
        }) = under_way
        {
            let (at, digest) = (*at, captured.digest);
            self.tell_owner(now_ms, workspace, owner::Input::SnapshotKept { at, digest });
        }
    }

    /// The log says that a snapshot is kept.
    pub(super) fn snapshot_stands(&mut self, now_ms: u64, workspace: &WorkspaceId, at: Position) {
        let Some(place) = self.places.get_mut(workspace) else {
            return;
        };
        let snapshots = &mut place.snapshots;
        let is_it = |it: &UnderWay| it.at.is_some_and(|(position, _)| position == at);
        let under_way = snapshots.under_way.take_if(|it| is_it(it));
        if let Some(UnderWay {
            reference,
            at: Some((at, hash)),
            captured: Some(Captured { parts, .. }),
        }) = under_way
        {
            snapshots.kept.push(KeptSnapshot {
                reference,
                parts,
                at,
                hash,
            });
            snapshots.is_trim_due = true;
            self.trim_if_due(now_ms, workspace);
        }
    }

    /// Has the log forget what nobody needs; it is asked again until no standby needs what is before the last snapshot.
    pub(super) fn trim_if_due(&mut self, now_ms: u64, workspace: &WorkspaceId) {
        let Some(place) = self.places.get(workspace) else {
            return;
        };
        let snapshots = &place.snapshots;
        let is_due = snapshots.is_trim_due && !snapshots.is_trimming;
        if !is_due || !matches!(place.role, Role::Owner(_)) {
            return;
        }
        let standbys = self.hearing.living_of(now_ms, workspace);
        let before = forgettable(snapshots.kept.iter().map(|kept| kept.at), standbys);
        let Some(kept) = snapshots.kept.iter().find(|kept| Some(kept.at) == before) else {
            return;
        };
        // Named by its hash, as it may be asked late: a log that has lost its tail by then has another one there.
        let ask = Ask::Trim {
            workspace: workspace.clone(),
            before: kept.clone(),
        };
        let is_trimming = self.ask(Asked::Trim(workspace.clone()), ask);
        if let Some(place) = self.places.get_mut(workspace) {
            place.snapshots.is_trimming = is_trimming;
        }
    }

    /// The log has answered whether it has forgotten, or never will.
    pub(super) fn trim_ended(&mut self, workspace: &WorkspaceId) {
        if let Some(place) = self.places.get_mut(workspace) {
            place.snapshots.is_trimming = false;
        }
    }

    /// The log begins there now: what is older is of no use.
    pub(super) fn trimmed(&mut self, workspace: &WorkspaceId, oldest: Position) {
        let Some(place) = self.places.get_mut(workspace) else {
            return;
        };
        let snapshots = &mut place.snapshots;
        let is_begun = snapshots.kept.iter().any(|kept| kept.at == oldest);
        if !matches!(place.role, Role::Owner(_)) || !is_begun {
            return;
        }
        snapshots.kept.retain(|kept| kept.at >= oldest);
        snapshots.is_trim_due = snapshots.kept.len() > 1;
        if let Some(first) = snapshots.kept.first() {
            let ask = Ask::ForgetSnapshots {
                workspace: workspace.clone(),
                before: first.clone(),
            };
            self.ask(Asked::ForgetSnapshots, ask);
        }
    }
}
