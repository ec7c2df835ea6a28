//! Doing the folds again that a crash may have cut short, from the journal alone (`MSG-8`).
//!
//! Which of them reached the base need not be known: the base is cut to what it was before the first of
//! them, and all are appended again. Only a rewrite tells by its name whether it is in place.
//!
//! A journal that is damaged takes nothing from the base: where it cannot say what a turn added, what
//! the base holds in that place stays, and so does what the base holds behind all of it.

use std::collections::HashSet;

use goondan_durable::checksum::crc32;
use goondan_durable::{Finding, FindingKind, Severity, files};
use goondan_protocol::event::TurnOutcome;

use super::answer::Answer;
use super::turn::{Ended, FoldMode};
use super::{EVENTS, InstanceStore, MESSAGES, fold};
use crate::error::StoreError;

/// The code of the outcome of a turn that was committed, and whose outcome cannot be read any more.
const OUTCOME_LOST: &str = "E_OUTCOME_LOST";

/// How a turn ended of which nothing more is known than that it was committed.
pub(super) fn outcome_lost() -> TurnOutcome {
    TurnOutcome::Failed {
        code: OUTCOME_LOST.to_owned(),
        message: "the turn was committed, and how it ended cannot be read any more".to_owned(),
    }
}

/// What is to become of the base.
#[derive(Default)]
struct Plan {
    /// What to cut the base and its checksums to, in bytes; none if no commit says where its turn begins.
    from: Option<(u64, Option<u64>)>,
    /// The lines that follow there.
    lines: Vec<u8>,
    /// Where they end, if they are as they were.
    end: u64,
    /// The messages of turns whose commits cannot be read, that are not among the lines yet.
    loose: Vec<u8>,
}

impl InstanceStore {
    /// Makes the turns that are over in the journal part of the base, marks their events as done, and
    /// takes them out of the journal. Durable when it returns.
    pub(super) fn redo(&mut self) -> Result<(), StoreError> {
        let mut ended = self.turn.take_ended();
        let event = self.turn.open.as_ref().and_then(|open| open.event.as_ref());
        if event.is_some_and(|event| self.inbox.is_over(&event.event_id, event.inbox_seq)) {
            // It was committed, or its event would not be over. After a rewrite nothing is left to do.
            let is_rewritten = !self.turn.has_only_appends;
            let last = self.turn.end_open().filter(|_| !is_rewritten);
            if let Some(turn) = last
                && !self.holds_turn(&turn.turn_id)?
            {
                ended.push(turn);
            }
        }
        let rewrite = ended.iter().rposition(Ended::is_rewrite);
        if let Some(turn) = rewrite.and_then(|at| ended.get(at)) {
            self.reinstall(turn)?;
        }
        let behind = rewrite.map_or(0, |at| at + 1);
        self.redo_deltas(ended.get(behind..).unwrap_or_default())?;
        for turn in &ended {
            self.conclude_again(turn)?;
        }
        self.clear_journal()
    }

    /// Puts the base in place that was prepared for a turn. Its event is over only once that is done; a
    /// base that is prepared then is another turn's.
    fn reinstall(&mut self, turn: &Ended) -> Result<(), StoreError> {
        let event = turn.event.as_ref();
        let is_over =
            event.is_some_and(|event| self.inbox.is_over(&event.event_id, event.inbox_seq));
        if let Some(commit) = &turn.commit
            && let FoldMode::Rewrite { bytes, .. } = commit.fold
            && !is_over
        {
            self.base.install(self.disk.as_ref())?;
            self.check_installed(bytes);
        }
        Ok(())
    }

    fn redo_deltas(&mut self, ended: &[Ended]) -> Result<(), StoreError> {
        let mut plan = Plan::default();
        let answers: Vec<Answer> = ended.iter().flat_map(Answer::of_ended).collect();
        for turn in ended {
            let delta = self.delta_again(turn)?;
            match turn.commit.as_ref().map(|commit| &commit.fold) {
                Some(FoldMode::Delta {
                    base_bytes,
                    sums_bytes,
                    bytes,
                    ..
                }) => {
                    self.place(&mut plan, *base_bytes, *sums_bytes)?;
                    plan.end = base_bytes + bytes.unwrap_or(delta.len() as u64);
                    plan.lines.extend(delta);
                }
                _ => plan.loose.extend(delta),
            }
        }
        if let Some((from, _)) = plan.from
            && self.is_ahead_of(from, &plan)?
        {
            return Ok(());
        }
        let disk = self.disk.as_ref();
        let behind = match plan.from {
            Some((from, sums_from)) => {
                let behind = self.base.read(plan.end, usize::MAX)?;
                if !behind.is_empty() {
                    files::keep_aside(disk, self.base.path(), "replaced", &behind)?;
                }
                self.base.cut_back(from, sums_from)?;
                self.base.append_delta(&plan.lines, &answers)?;
                self.base
                    .append_foreign(disk, &behind, &mut self.findings)?;
                behind
            }
            None if plan.loose.is_empty() => return Ok(()),
            None => self.base.read(0, usize::MAX)?,
        };
        // Where the plan began anywhere, they are named with its lines.
        let named = if plan.from.is_some() {
            &[][..]
        } else {
            &answers
        };
        let loose = lines_not_in(&behind, &plan.loose);
        self.base.append_delta(&loose, named)
    }

    /// Whether the base holds, as it was written, all that the plan comes to, and turns behind it that the
    /// journal does not know of: an older copy of the journal, from which nothing is to be done again.
    fn is_ahead_of(&mut self, from: u64, plan: &Plan) -> Result<bool, StoreError> {
        let len = self.base.len();
        if len <= plan.end || !plan.loose.is_empty() || self.base.covered() != Some(len) {
            return Ok(false);
        }
        let held = self.base.read(from, plan.lines.len())?;
        Ok(held == plan.lines && from + plan.lines.len() as u64 == plan.end)
    }

    /// Fills the plan up to byte `base_bytes`, where the next turn begins.
    fn place(
        &mut self,
        plan: &mut Plan,
        base_bytes: u64,
        sums_bytes: Option<u64>,
    ) -> Result<(), StoreError> {
        let loose = std::mem::take(&mut plan.loose);
        let is_held = self.base.len() >= base_bytes;
        if plan.from.is_some() {
            let gap = base_bytes.saturating_sub(plan.end);
            if loose.len() as u64 != gap && is_held {
                let gap = usize::try_from(gap).unwrap_or(usize::MAX);
                self.base.read_into(&mut plan.lines, plan.end, gap)?;
            } else {
                plan.lines.extend(loose);
            }
        } else if is_held || loose.is_empty() {
            plan.from = Some((base_bytes, sums_bytes));
        } else {
            let from = base_bytes.saturating_sub(loose.len() as u64);
            plan.from = Some((from.min(self.base.len()), None));
            plan.lines = loose;
        }
        Ok(())
    }

    /// The messages of a turn as lines. The journal may have been damaged since the commit; what the base
    /// holds already is then taken as it is.
    fn delta_again(&mut self, turn: &Ended) -> Result<Vec<u8>, StoreError> {
        let delta = fold::delta_of(&self.turn.events_of(turn)?);
        let Some(FoldMode::Delta {
            base_bytes,
            bytes: Some(bytes),
            crc32: Some(sum),
            ..
        }) = turn.commit.as_ref().map(|commit| &commit.fold)
        else {
            return Ok(delta);
        };
        if delta.len() as u64 == *bytes && crc32(&delta) == *sum {
            return Ok(delta);
        }
        if self.base.has_delta(*base_bytes, *bytes, *sum)? {
            let len = usize::try_from(*bytes).unwrap_or(usize::MAX);
            return self.base.read(*base_bytes, len);
        }
        let problem = format!(
            "a committed turn added {bytes} bytes of messages; only {} of them can be read",
            delta.len()
        );
        self.note_missing(problem, Severity::Error);
        Ok(delta)
    }

    /// Does again what follows a fold.
    fn conclude_again(&mut self, turn: &Ended) -> Result<(), StoreError> {
        let event = turn.event.as_ref();
        if event.is_some_and(|event| self.inbox.is_over(&event.event_id, event.inbox_seq)) {
            // What extensions remember may be of a later turn by now, whose commit cannot be read.
            return turn
                .commit
                .as_ref()
                .map_or(Ok(()), |commit| self.mark_events(commit));
        }
        if let Some(commit) = &turn.commit {
            return self.conclude(commit);
        }
        let problem = format!(
            "the commit of turn `{}` cannot be read; what follows it says that it was committed",
            turn.turn_id
        );
        self.note_missing(problem, Severity::Warning);
        let outcome = outcome_lost();
        let at = self.metadata.updated_at;
        match &turn.event {
            Some(event) => self.inbox.finish(event, &turn.turn_id, at, &outcome),
            None => Ok(()),
        }
    }

    fn note_missing(&mut self, problem: String, severity: Severity) {
        let path = self.dir.join(MESSAGES).join(EVENTS);
        let finding = Finding::new(&path, FindingKind::MissingRecords, problem);
        self.findings.push(finding.severity(severity));
    }

    /// Notes if the base that a commit put in place is not the one that was prepared.
    pub(super) fn check_installed(&mut self, bytes: Option<u64>) {
        if let Some(bytes) = bytes.filter(|bytes| *bytes != self.base.len()) {
            let problem = format!(
                "it has {} bytes, but the new base that was committed had {bytes}",
                self.base.len()
            );
            let finding = Finding::new(self.base.path(), FindingKind::MissingRecords, problem);
            self.findings.push(finding);
        }
    }
}

/// Those of `lines` that are not among the lines of `held`.
fn lines_not_in(held: &[u8], lines: &[u8]) -> Vec<u8> {
    let held: HashSet<&[u8]> = held.split_inclusive(|byte| *byte == b'\n').collect();
    let lines = lines.split_inclusive(|byte| *byte == b'\n');
    lines
        .filter(|line| !held.contains(line))
        .flatten()
        .copied()
        .collect()
}
