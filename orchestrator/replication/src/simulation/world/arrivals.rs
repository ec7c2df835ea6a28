//! Delivery of input to nodes.

use super::*;

impl World {
    pub(super) fn arrive(&mut self, n: usize, life: Incarnation, arrival: Arrival) {
        if self.nodes[n].life != life || matches!(self.nodes[n].role, SimulatedRole::Down) {
            return;
        }
        if matches!(arrival, Arrival::Tick) {
            self.after(TICK_MS, SimulatedEvent::Arrives(n, life, Arrival::Tick));
        }
        if self.nodes[n].paused_until_ms > self.now_ms {
            if !matches!(arrival, Arrival::Tick) {
                self.nodes[n].waiting.push_back(arrival);
            }
            return;
        }
        // Input queued while the node was paused comes first.
        while let Some(waited) = self.nodes[n].waiting.pop_front() {
            self.take(n, waited);
            if self.nodes[n].life != life {
                return;
            }
        }
        self.take(n, arrival);
    }

    pub(super) fn take(&mut self, n: usize, arrival: Arrival) {
        match arrival {
            Arrival::Put(attempt, answer) => self.put_answered(n, attempt, answer),
            Arrival::Looked(attempt, answer) => {
                let answer = self.overlooked(answer);
                self.owner_input(n, owner::OwnerInput::Looked(attempt, answer));
            }
            Arrival::Sealed(attempt, answer) => {
                self.standby_input(n, standby::StandbyInput::Sealed(attempt, answer));
            }
            Arrival::Read(attempt, answer) => {
                self.standby_input(n, standby::StandbyInput::Read(attempt, answer));
            }
            Arrival::Heard(acknowledged) => {
                self.standby_input(n, standby::StandbyInput::Heard { acknowledged });
            }
            Arrival::Synced(id) => {
                if self.plan.bug == Bug::AcknowledgesBeforeAppend {
                    self.owner_effect(n, owner::OwnerEffect::Acknowledge(id));
                }
                self.owner_input(n, owner::OwnerInput::Synced(id));
            }
            Arrival::Event(event) => self.accept(n, event),
            Arrival::ToolEnded(event) => self.write_line(n, event, EventStep::Ended),
            Arrival::SnapshotKept(at, digest) => {
                self.owner_input(n, owner::OwnerInput::SnapshotKept { at, digest });
            }
            Arrival::Applied(outcome) => {
                if let SimulatedRole::Standby(machine) = &self.nodes[n].role
                    && machine.has_read_on()
                {
                    self.seen.note("read on");
                }
                self.standby_input(n, standby::StandbyInput::Applied(outcome));
            }
            Arrival::Tick => self.tick(n),
        }
    }

    pub(super) fn put_answered(&mut self, n: usize, attempt: Attempt, answer: PutAnswer) {
        let answer = match (self.plan.bug, answer) {
            (Bug::IgnoresSeals, PutAnswer::Taken(_)) => PutAnswer::Done,
            (Bug::TakesLostForFailed, PutAnswer::Unknown) => {
                let again = self.nodes[n]
                    .owner()
                    .map(|it| it.batches.values().copied().collect::<Vec<_>>());
                for purpose in again.unwrap_or_default() {
                    self.write(n, purpose);
                }
                PutAnswer::Unknown
            }
            (_, answer) => answer,
        };
        self.owner_input(n, owner::OwnerInput::Put(attempt, answer));
    }

    pub(super) fn overlooked(&self, answer: ReadAnswer) -> ReadAnswer {
        match answer {
            ReadAnswer::Page(mut page) if self.plan.bug == Bug::IgnoresSeals => {
                page.records.clear();
                ReadAnswer::Page(page)
            }
            answer => answer,
        }
    }

    pub(super) fn tick(&mut self, n: usize) {
        let now_ms = self.now_ms;
        self.owner_input(n, owner::OwnerInput::Tick);
        self.standby_input(n, standby::StandbyInput::Tick);
        let is_cut = self.nodes[n].cut_off_until_ms > now_ms;
        let Some(owner) = self.nodes[n]
            .owner()
            .filter(|it| it.heartbeat_due_ms <= now_ms)
        else {
            return;
        };
        owner.heartbeat_due_ms = now_ms + HEARTBEAT_MS;
        let position = owner.machine.position();
        if self.rng.u8(0..4) == 0 {
            self.write(n, BatchPurpose::Chore);
        }
        for other in (0..NODES).filter(|other| *other != n && !is_cut) {
            if self.nodes[other].cut_off_until_ms <= now_ms {
                let life = self.nodes[other].life;
                self.after(
                    1,
                    SimulatedEvent::Arrives(other, life, Arrival::Heard(position)),
                );
            }
        }
    }
}
