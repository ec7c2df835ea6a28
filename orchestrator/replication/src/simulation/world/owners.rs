//! The shell around an owner, and its work.

use super::*;

impl World {
    pub(super) fn owner_input(&mut self, n: usize, input: owner::OwnerInput) {
        let now_ms = self.now_ms;
        let Some(owner) = self.nodes[n].owner() else {
            return;
        };
        for effect in owner.machine.handle(now_ms, input) {
            self.trace(|| format!("n{n}: {effect:?}"));
            self.owner_effect(n, effect);
        }
    }

    pub(super) fn owner_effect(&mut self, n: usize, effect: owner::OwnerEffect) {
        match effect {
            owner::OwnerEffect::Put(attempt, put) => {
                self.send(n, PendingLogRequest::Put(attempt, put));
            }
            owner::OwnerEffect::Look(attempt, position) => {
                self.send(n, PendingLogRequest::Look(attempt, position));
            }
            owner::OwnerEffect::Acknowledge(id) => self.acknowledge(n, id),
            owner::OwnerEffect::SnapshotBegins(reference, at, hash) => {
                if let Some(owner) = self.nodes[n].owner() {
                    owner.begun.insert(at, hash);
                }
                let (tree, is_last) = &self.snapshots[reference.as_str()];
                let digest = tree.digest();
                if *is_last {
                    self.last_snapshots.insert(at);
                }
                let life = self.nodes[n].life;
                let ms = self.rng.u64(1..3_000);
                self.after(
                    ms,
                    SimulatedEvent::Arrives(n, life, Arrival::SnapshotKept(at, digest)),
                );
            }
            owner::OwnerEffect::SnapshotStands(position) => {
                self.seen.note("snapshot");
                let Some(owner) = self.nodes[n].owner() else {
                    return;
                };
                owner.snapshots -= 1;
                owner.kept.push(position);
                let (kept, begun) = (owner.kept.clone(), owner.begun.clone());
                let standbys = self.nodes.iter().filter_map(|node| match &node.role {
                    SimulatedRole::Standby(standby) => Some(standby.chain().position()),
                    SimulatedRole::Owner(_) | SimulatedRole::Down => None,
                });
                // In half of the cases, treat the standbys as too far behind to wait for.
                let near: Vec<_> = standbys
                    .filter(|_| self.is_healed || position.0.is_multiple_of(2))
                    .collect();
                if let Some(before) = forgettable(kept, near) {
                    self.send(n, PendingLogRequest::Trim(before, begun[&before]));
                }
            }
            owner::OwnerEffect::Fence(reason) => self.fence(n, &reason),
        }
    }

    /// Kills the child processes, whose pending work is lost, and starts a new standby.
    pub(super) fn fence(&mut self, n: usize, reason: &OwnershipLoss) {
        self.trace(|| format!("n{n} is deposed: {reason}"));
        match reason {
            OwnershipLoss::Sealed { .. }
            | OwnershipLoss::Overtaken { .. }
            | OwnershipLoss::Released { .. } => {
                self.seen.note("sealed");
            }
            OwnershipLoss::TailTaken { .. }
            | OwnershipLoss::TailTooLong { .. }
            | OwnershipLoss::Strange(_) => {
                self.seen.note("said");
                self.has_said.push(reason.to_string());
            }
        }
        let node = &mut self.nodes[n];
        let SimulatedRole::Owner(owner) = &node.role else {
            return;
        };
        node.disk.chain = owner.machine.chain().clone();
        node.disk.tree = node.tree.clone();
        node.disk.files = FilesState::PerhapsAhead;
        if self.plan.bug == Bug::KeepsFilesOfAnOwner {
            node.disk.files = FilesState::AsNoted;
            node.disk.should_be = node.tree.clone();
        }
        node.role = SimulatedRole::Down;
        self.start(n);
    }

    pub(super) fn accept(&mut self, n: usize, event: u64) {
        let Some(owner) = self.nodes[n].owner() else {
            return;
        };
        if !owner.machine.has_room() {
            return;
        }
        match owner.events.get(&event) {
            None => self.write_line(n, event, EventStep::Accepted),
            // The owner's journal contains the event and nothing is in flight, so the event is
            // acknowledged.
            Some(_) if owner.batches.is_empty() && owner.machine.is_quiet() => {
                self.acknowledged.insert(event);
            }
            Some(_) => {}
        }
    }

    pub(super) fn write_line(&mut self, n: usize, event: u64, said: EventStep) {
        if said == EventStep::Unknown {
            self.seen.note("unknown outcome");
        }
        self.write(n, BatchPurpose::Line(event, said));
    }

    /// Writes a batch: changes its files and passes it to the owner. Sync and append then proceed
    /// independently.
    pub(super) fn write(&mut self, n: usize, purpose: BatchPurpose) {
        let node = &mut self.nodes[n];
        let operations = match purpose {
            BatchPurpose::Line(event, said) => application::line(&node.tree, event, said),
            BatchPurpose::Chore => application::chore(&node.tree, &mut self.rng),
            BatchPurpose::Snapshot => return,
        };
        let Some(owner) = node.owner() else {
            return;
        };
        owner.next_batch += 1;
        let id = BatchId(owner.next_batch);
        owner.batches.insert(id, purpose);
        if let BatchPurpose::Line(event, said) = purpose {
            owner.events.insert(event, said);
        }
        for operation in &operations {
            node.tree.apply(operation).unwrap();
        }
        let is_awaited = matches!(purpose, BatchPurpose::Line(..)) || self.rng.bool();
        let input = owner::OwnerInput::Batch {
            id,
            operations,
            is_awaited,
        };
        self.owner_input(n, input);
        let life = self.nodes[n].life;
        let ms = self.rng.u64(1..30);
        self.after(ms, SimulatedEvent::Arrives(n, life, Arrival::Synced(id)));
    }

    pub(super) fn acknowledge(&mut self, n: usize, id: BatchId) {
        let Some(owner) = self.nodes[n].owner() else {
            return;
        };
        let position = owner.machine.chain().clone();
        let Some(purpose) = owner.batches.remove(&id) else {
            return;
        };
        // Acknowledged records are on the owner's disk, so this position survives a kill.
        self.nodes[n].disk.chain = position;
        if let BatchPurpose::Line(event, said) = purpose {
            self.go_on(n, event, said);
        }
    }

    /// Continues an event after one of its lines is acknowledged.
    pub(super) fn go_on(&mut self, n: usize, event: u64, said: EventStep) {
        match said {
            EventStep::Accepted => {
                self.seen.note("acknowledged");
                self.acknowledged.insert(event);
                self.write_line(n, event, EventStep::Started);
            }
            EventStep::Started => {
                *self.tool_runs.entry(event).or_default() += 1;
                let life = self.nodes[n].life;
                let ms = self.rng.u64(10..2_000);
                self.after(
                    ms,
                    SimulatedEvent::Arrives(n, life, Arrival::ToolEnded(event)),
                );
            }
            EventStep::Unknown if self.rng.bool() => self.write_line(n, event, EventStep::Started),
            EventStep::Ended | EventStep::Unknown => self.write_line(n, event, EventStep::Answered),
            EventStep::Answered => {}
        }
    }
}
