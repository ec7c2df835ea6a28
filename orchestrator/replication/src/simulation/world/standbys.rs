//! The shell around a standby.

use super::*;

impl World {
    pub(super) fn standby_input(&mut self, n: usize, input: standby::StandbyInput) {
        let now_ms = self.now_ms;
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let SimulatedRole::Standby(machine) = &mut self.nodes[n].role else {
                return;
            };
            let effects = machine.handle(now_ms, input);
            if !machine.is_changing() {
                self.note(n);
            }
            for effect in effects {
                self.trace(|| format!("n{n}: {effect:?}"));
                inputs.extend(self.standby_effect(n, effect));
            }
        }
    }

    /// Notes a standby's progress: its files are on disk, and the note is written from time to
    /// time.
    pub(super) fn note(&mut self, n: usize) {
        let is_noted = self.rng.bool();
        let node = &mut self.nodes[n];
        let SimulatedRole::Standby(machine) = &node.role else {
            return;
        };
        if node.disk.files == FilesState::PerhapsAhead {
            return;
        }
        node.disk.tree = node.tree.clone();
        if is_noted {
            node.disk.chain = machine.chain().clone();
            node.disk.should_be = node.should_be.clone();
        }
    }

    pub(super) fn standby_effect(
        &mut self,
        n: usize,
        effect: standby::StandbyEffect,
    ) -> Option<standby::StandbyInput> {
        match effect {
            standby::StandbyEffect::Read(attempt, from) => {
                self.send(n, PendingLogRequest::Read(attempt, from));
            }
            standby::StandbyEffect::Apply(changes) => {
                // Before the changes are applied, the files match the note.
                self.note(n);
                let node = &mut self.nodes[n];
                for record in &changes {
                    drop(record.make_in(&mut node.should_be));
                }
                let mut each = changes.iter();
                let outcome = each.try_for_each(|record| record.make_in(&mut node.tree));
                // Records read meanwhile may arrive first.
                let (life, ms) = (node.life, self.rng.u64(1..30));
                self.after(
                    ms,
                    SimulatedEvent::Arrives(n, life, Arrival::Applied(outcome)),
                );
            }
            standby::StandbyEffect::Digest => {
                return Some(standby::StandbyInput::Digested(self.nodes[n].tree.digest()));
            }
            standby::StandbyEffect::Verify => {
                let node = &self.nodes[n];
                return Some(standby::StandbyInput::Verified(node.tree == node.should_be));
            }
            standby::StandbyEffect::Seal(attempt, put) => {
                if self.plan.bug == Bug::TakesOverWithoutSeal {
                    let SimulatedRole::Standby(machine) = &self.nodes[n].role else {
                        unreachable!()
                    };
                    let mut chain = machine.chain().clone();
                    chain.follow_bytes(put.record.bytes().to_vec()).unwrap();
                    self.own(n, chain, put);
                } else {
                    self.send(n, PendingLogRequest::Seal(attempt, put));
                }
            }
            standby::StandbyEffect::Restore(reference) => {
                self.seen.note("made anew");
                let restored = reference.map(|it| self.snapshots[it.as_str()].0.clone());
                let node = &mut self.nodes[n];
                node.tree = restored.unwrap_or_default();
                node.should_be = node.tree.clone();
                node.disk.files = FilesState::AsNoted;
                // From here on the log matches the disk; it is noted before the next change.
                node.disk.tree = node.tree.clone();
                let noted = standby::StandbyInput::Restored(true);
                let SimulatedRole::Standby(machine) = &mut node.role else {
                    unreachable!()
                };
                let effects = machine.handle(self.now_ms, noted);
                node.disk.chain = machine.chain().clone();
                node.disk.should_be = node.should_be.clone();
                for effect in effects {
                    self.standby_effect(n, effect);
                }
            }
            standby::StandbyEffect::Own { chain, seal } => self.own(n, *chain, seal),
            standby::StandbyEffect::Say(trouble) => self.on_standby_trouble(n, &trouble),
        }
        None
    }

    pub(super) fn on_standby_trouble(&mut self, n: usize, trouble: &StandbyTrouble) {
        self.trace(|| format!("n{n} says: {trouble}"));
        match trouble {
            StandbyTrouble::Differs { .. }
            | StandbyTrouble::Misfit { .. }
            | StandbyTrouble::Altered { .. }
            | StandbyTrouble::TooFarBehind { .. } => {}
            StandbyTrouble::NoSnapshot { .. } => panic!("{trouble}"),
            StandbyTrouble::DiffersAgain { .. }
            | StandbyTrouble::TailLost { .. }
            | StandbyTrouble::Replaced { .. }
            | StandbyTrouble::Strange(_) => {
                self.seen.note("said");
                self.has_said.push(trouble.to_string());
            }
        }
    }

    pub(super) fn own(&mut self, n: usize, chain: Chain, seal: PutRequest) {
        self.seen.note("taken over");
        let life = self.nodes[n].life;
        self.owners
            .entry(chain.epoch())
            .or_default()
            .insert((n, life.0));
        let events = application::read(&self.nodes[n].tree);
        let node = &mut self.nodes[n];
        node.disk.files = FilesState::PerhapsAhead;
        node.disk.chain = chain.clone();
        node.role = SimulatedRole::Owner(Box::new(Ownership {
            machine: WorkspaceOwner::new(chain, seal, self.now_ms),
            batches: HashMap::new(),
            events: events
                .iter()
                .map(|(event, said)| (*event, *said.last().unwrap()))
                .collect(),
            next_batch: 0,
            snapshots: 0,
            begun: BTreeMap::new(),
            kept: Vec::new(),
            heartbeat_due_ms: self.now_ms,
        }));
        // Work in progress at the seal has an unknown outcome.
        for (event, said) in events {
            match said.last().unwrap() {
                EventStep::Started if self.plan.bug == Bug::ForgetsWhatWasUnderWay => {
                    self.write_line(n, event, EventStep::Started);
                }
                EventStep::Started => self.write_line(n, event, EventStep::Unknown),
                last @ (EventStep::Accepted | EventStep::Ended | EventStep::Unknown) => {
                    self.go_on(n, event, *last);
                }
                EventStep::Answered => {}
            }
        }
    }
}
