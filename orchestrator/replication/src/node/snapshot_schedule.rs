//! Snapshots of the workspaces that a node owns: schedule, progress, and truncation of the log.
//!
//! ```text
//! due ──▶ FilesWork::Capture ──▶ the snapshot's record is in the log ──┐
//!                   │                                                  ├──▶ a record confirms it ──▶ trim
//!                   └──▶ its parts are stored, Outcome::Captured ──────┘
//! ```

use goondan_protocol::ids::WorkspaceId;

use super::places::WorkspaceRole;
use super::snapshots::PendingSnapshot;
use super::{CapturedSnapshot, FilesWork, NodeEffect, ReplicationNode, RequestOrigin};
use crate::limits::SNAPSHOT_RETRY_MS;
use crate::names::{Hash, Position};
use crate::owner;
use crate::record::SnapshotReference;
use crate::retention::{GrowthSinceSnapshot, forgettable};
use crate::wire::{KeptSnapshot, LogCommand};

impl ReplicationNode {
    /// Starts a snapshot of a workspace that this node owns, if one is due.
    pub(super) fn snapshot_if_due(&mut self, now_ms: u64, workspace: &WorkspaceId) {
        let records_max = self.snapshot_records;
        let Some(place) = self.places.get_mut(workspace) else {
            return;
        };
        let (WorkspaceRole::Owner(owner), snapshots) = (&place.role, &mut place.snapshots) else {
            return;
        };
        let chain = owner.chain();
        let last = chain.snapshot().unwrap_or(Position::START);
        let since = GrowthSinceSnapshot {
            records: chain.position().0.saturating_sub(last.0),
            bytes: snapshots.bytes,
        };
        let is_due = since.is_due(records_max) && snapshots.not_before_ms <= now_ms;
        if !is_due || snapshots.under_way.is_some() {
            return;
        }
        // Later snapshots sort after earlier ones of any node, because each owner has replayed all
        // previous records.
        let name = format!("{:020}-{:016x}", chain.position().0, self.life.0);
        // Digits and a hyphen are always a valid name.
        let Ok(reference) = SnapshotReference::new(&name) else {
            return;
        };
        snapshots.bytes = 0;
        snapshots.under_way = Some(PendingSnapshot {
            reference: reference.clone(),
            at: None,
            captured: None,
        });
        self.effects.push(NodeEffect::Files {
            workspace: workspace.clone(),
            work: FilesWork::Capture(reference),
        });
    }

    /// Handles that the record of a snapshot is in the log.
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

    /// Handles that all parts of a snapshot are stored, or that it failed; a failed one is retried
    /// later.
    pub(super) fn captured(
        &mut self,
        now_ms: u64,
        workspace: &WorkspaceId,
        reference: &SnapshotReference,
        captured: Option<CapturedSnapshot>,
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
    ) -> Option<&mut PendingSnapshot> {
        let under_way = self.places.get_mut(workspace)?.snapshots.under_way.as_mut();
        under_way.filter(|it| it.reference == *reference)
    }

    fn snapshot_kept(&mut self, now_ms: u64, workspace: &WorkspaceId) {
        let place = self.places.get(workspace);
        let under_way = place.and_then(|place| place.snapshots.under_way.as_ref());
        if let Some(PendingSnapshot {
            at: Some((at, _)),
            captured: Some(captured),
            ..
        }) = under_way
        {
            let (at, digest) = (*at, captured.digest);
            self.tell_owner(
                now_ms,
                workspace,
                owner::OwnerInput::SnapshotKept { at, digest },
            );
        }
    }

    /// Handles that the log confirms a stored snapshot.
    pub(super) fn snapshot_stands(&mut self, now_ms: u64, workspace: &WorkspaceId, at: Position) {
        let Some(place) = self.places.get_mut(workspace) else {
            return;
        };
        let snapshots = &mut place.snapshots;
        let is_it = |it: &PendingSnapshot| it.at.is_some_and(|(position, _)| position == at);
        let under_way = snapshots.under_way.take_if(|it| is_it(it));
        if let Some(PendingSnapshot {
            reference,
            at: Some((at, hash)),
            captured: Some(CapturedSnapshot { parts, .. }),
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

    /// Truncates the log to the records that are still needed. Repeated until no standby needs the
    /// records before the last snapshot.
    pub(super) fn trim_if_due(&mut self, now_ms: u64, workspace: &WorkspaceId) {
        let Some(place) = self.places.get(workspace) else {
            return;
        };
        let snapshots = &place.snapshots;
        let is_due = snapshots.is_trim_due && !snapshots.is_trimming;
        if !is_due || !matches!(place.role, WorkspaceRole::Owner(_)) {
            return;
        }
        let standbys = self.hearing.living_of(now_ms, workspace);
        let before = forgettable(snapshots.kept.iter().map(|kept| kept.at), standbys);
        let Some(kept) = snapshots.kept.iter().find(|kept| Some(kept.at) == before) else {
            return;
        };
        // The request contains the hash because it may arrive late: a log that lost its tail by
        // then has a different record there.
        let ask = LogCommand::Trim {
            workspace: workspace.clone(),
            before: kept.clone(),
        };
        let is_trimming = self.ask(RequestOrigin::Trim(workspace.clone()), ask);
        if let Some(place) = self.places.get_mut(workspace) {
            place.snapshots.is_trimming = is_trimming;
        }
    }

    /// Handles that the trim request was answered or failed permanently.
    pub(super) fn trim_ended(&mut self, workspace: &WorkspaceId) {
        if let Some(place) = self.places.get_mut(workspace) {
            place.snapshots.is_trimming = false;
        }
    }

    /// Handles that the log starts at `oldest` now; older snapshots are useless.
    pub(super) fn trimmed(&mut self, workspace: &WorkspaceId, oldest: Position) {
        let Some(place) = self.places.get_mut(workspace) else {
            return;
        };
        let snapshots = &mut place.snapshots;
        let is_begun = snapshots.kept.iter().any(|kept| kept.at == oldest);
        if !matches!(place.role, WorkspaceRole::Owner(_)) || !is_begun {
            return;
        }
        snapshots.kept.retain(|kept| kept.at >= oldest);
        snapshots.is_trim_due = snapshots.kept.len() > 1;
        if let Some(first) = snapshots.kept.first() {
            let ask = LogCommand::ForgetSnapshots {
                workspace: workspace.clone(),
                before: first.clone(),
            };
            self.ask(RequestOrigin::ForgetSnapshots, ask);
        }
    }
}
