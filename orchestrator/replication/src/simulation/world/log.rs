//! The log's server, and lost or late messages on the way to it.

use super::*;

impl World {
    pub(super) fn send(&mut self, n: usize, question: PendingLogRequest) {
        let is_cut = self.nodes[n].cut_off_until_ms > self.now_ms;
        if is_cut || (!self.is_healed && self.rng.u8(0..40) == 0) {
            return self.trace(|| format!("lost: {question:?}"));
        }
        // No caller waits for a trim, so it may arrive at any time.
        let late_in = if matches!(question, PendingLogRequest::Trim(..)) {
            3
        } else {
            60
        };
        let is_late = !self.is_healed && self.rng.u8(0..late_in) == 0;
        let ms = if is_late {
            self.rng.u64(3_000..9_000)
        } else {
            self.rng.u64(1..20)
        };
        if is_late {
            self.seen.note("late packet");
        }
        let life = self.nodes[n].life;
        self.after(ms, SimulatedEvent::Asks(n, life, question));
    }

    pub(super) fn ask(&mut self, n: usize, life: Incarnation, question: PendingLogRequest) {
        let is_down = self.log_down_until_ms > self.now_ms;
        let answer = match question {
            PendingLogRequest::Put(attempt, put) => Arrival::Put(attempt, self.put(&put, is_down)),
            PendingLogRequest::Seal(attempt, put) => {
                Arrival::Sealed(attempt, self.put(&put, is_down))
            }
            PendingLogRequest::Look(attempt, from) => {
                Arrival::Looked(attempt, self.read(from, is_down))
            }
            PendingLogRequest::Read(attempt, from) => {
                Arrival::Read(attempt, self.read(from, is_down))
            }
            PendingLogRequest::Trim(before, hash) => return self.trim(before, hash, is_down),
        };
        if self.nodes[n].cut_off_until_ms > self.now_ms {
            return;
        }
        let luck = if self.is_healed {
            99
        } else {
            self.rng.u8(0..100)
        };
        let answer = match (luck, answer) {
            (0..3, _) => {
                self.seen.note("lost answer");
                return;
            }
            (3..6, Arrival::Put(attempt, _)) => Arrival::Put(attempt, PutAnswer::Unknown),
            (3..6, Arrival::Sealed(attempt, _)) => Arrival::Sealed(attempt, PutAnswer::Unknown),
            (_, answer) => answer,
        };
        let ms = self.rng.u64(1..20);
        self.after(ms, SimulatedEvent::Arrives(n, life, answer));
    }

    /// The requester does not wait for the answer.
    fn trim(&mut self, before: Position, hash: Hash, is_down: bool) {
        if is_down {
            return;
        }
        let was = self.log.oldest();
        if self.plan.bug == Bug::TrimsToAPosition {
            self.log.trim_to(before);
        } else {
            self.log.trim(before, hash);
        }
        let oldest = self.log.oldest();
        if oldest != was {
            self.seen.note("forgotten");
            self.trims.push((self.log.head(), oldest));
        }
    }

    pub(super) fn put(&mut self, put: &PutRequest, is_down: bool) -> PutAnswer {
        if is_down {
            return PutAnswer::Unavailable;
        }
        let answer = self.log.put(put);
        match &answer {
            PutAnswer::Done => self.everything.push(put.record.bytes().to_vec()),
            PutAnswer::Behind { .. } => self.seen.note("refused as behind"),
            PutAnswer::Taken(bytes) if bytes == put.record.bytes() => {
                self.seen.note("found its own");
            }
            PutAnswer::Taken(_)
            | PutAnswer::Forgotten { .. }
            | PutAnswer::Unknown
            | PutAnswer::Unavailable => {}
        }
        answer
    }

    pub(super) fn read(&mut self, from: Position, is_down: bool) -> ReadAnswer {
        if is_down {
            return ReadAnswer::Unavailable;
        }
        // Some pages are short, so that reads need several pages.
        let records_max = if self.rng.bool() {
            READ_RECORDS_MAX
        } else {
            self.rng.usize(1..20)
        };
        ReadAnswer::Page(self.log.read_some(from, records_max))
    }
}
