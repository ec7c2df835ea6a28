//! Redo of folds that a crash may have interrupted, from the journal alone (`MSG-8`).
//!
//! Redo does not need to know which folds reached the base: it truncates the base to its state
//! before the first one and appends all of them again. Only a rewrite's file names show if it is in
//! place.
//!
//! A damaged journal removes nothing from the base: where the journal cannot provide a turn's
//! messages, the base keeps its current content, and so does everything after it.

use std::collections::HashSet;

use goondan_durable::checksum::crc32;
use goondan_durable::{Finding, FindingKind, Severity, files};
use goondan_protocol::event::TurnOutcome;

use super::answer::AnswerRef;
use super::turn::{EndedTurn, FoldMode};
use super::{EVENTS, InstanceStore, MESSAGES, fold};
use crate::error::StoreError;

/// Error code of a committed turn with an unreadable outcome.
const OUTCOME_LOST: &str = "E_OUTCOME_LOST";

/// Outcome of a turn that is only known to be committed.
pub(super) fn outcome_lost() -> TurnOutcome {
    TurnOutcome::Failed {
        code: OUTCOME_LOST.to_owned(),
        message: "the turn was committed, but its outcome is unreadable".to_owned(),
    }
}

/// Planned content of the base.
#[derive(Default)]
struct RedoPlan {
    /// Truncation lengths of the base and its checksums, in bytes; `None` if no commit has them.
    from: Option<(u64, Option<u64>)>,
    /// Lines to append after truncation.
    lines: Vec<u8>,
    /// Offset where these lines should end.
    end: u64,
    /// Messages of turns with unreadable commits that are not among the lines yet.
    loose: Vec<u8>,
}

impl InstanceStore {
    /// Folds the ended turns of the journal into the base, marks their events as done, and removes
    /// the turns from the journal. Durable when it returns.
    pub(super) fn redo(&mut self) -> Result<(), StoreError> {
        let mut ended = self.turn.take_ended();
        let event = self.turn.open.as_ref().and_then(|open| open.event.as_ref());
        if event.is_some_and(|event| self.inbox.is_over(&event.event_id, event.inbox_seq)) {
            // The turn was committed, because its event is done. A rewrite is complete by then.
            let is_rewritten = !self.turn.has_only_appends;
            let last = self.turn.end_open().filter(|_| !is_rewritten);
            if let Some(turn) = last
                && !self.holds_turn(&turn.turn_id)?
            {
                ended.push(turn);
            }
        }
        let rewrite = ended.iter().rposition(EndedTurn::is_rewrite);
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

    /// Installs the base prepared for a turn, unless its event is done. An event is done only after
    /// its base is installed, so a prepared base that exists then belongs to another turn.
    fn reinstall(&mut self, turn: &EndedTurn) -> Result<(), StoreError> {
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

    fn redo_deltas(&mut self, ended: &[EndedTurn]) -> Result<(), StoreError> {
        let mut plan = RedoPlan::default();
        let answers: Vec<AnswerRef> = ended.iter().flat_map(AnswerRef::of_ended).collect();
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
        // If the plan has a start, the answers are listed with its lines.
        let named = if plan.from.is_some() {
            &[][..]
        } else {
            &answers
        };
        let loose = lines_not_in(&behind, &plan.loose);
        self.base.append_delta(&loose, named)
    }

    /// True if the base holds the whole plan intact, followed by turns that the journal lacks. The
    /// journal is then an older copy, and no redo is needed.
    fn is_ahead_of(&mut self, from: u64, plan: &RedoPlan) -> Result<bool, StoreError> {
        let len = self.base.len();
        if len <= plan.end || !plan.loose.is_empty() || self.base.covered() != Some(len) {
            return Ok(false);
        }
        let held = self.base.read(from, plan.lines.len())?;
        Ok(held == plan.lines && from + plan.lines.len() as u64 == plan.end)
    }

    /// Extends the plan to byte `base_bytes`, where the next turn begins.
    fn place(
        &mut self,
        plan: &mut RedoPlan,
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

    /// Returns the messages of a turn as lines. If the journal was damaged after the commit, uses
    /// the base's current content.
    fn delta_again(&mut self, turn: &EndedTurn) -> Result<Vec<u8>, StoreError> {
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
            "a committed turn added {bytes} bytes of messages; only {} are readable",
            delta.len()
        );
        self.note_missing(problem, Severity::Error);
        Ok(delta)
    }

    /// Redoes the steps after a fold.
    fn conclude_again(&mut self, turn: &EndedTurn) -> Result<(), StoreError> {
        let event = turn.event.as_ref();
        if event.is_some_and(|event| self.inbox.is_over(&event.event_id, event.inbox_seq)) {
            // Extension states may already belong to a later turn with an unreadable commit.
            return turn
                .commit
                .as_ref()
                .map_or(Ok(()), |commit| self.mark_events(commit));
        }
        if let Some(commit) = &turn.commit {
            return self.conclude(commit);
        }
        let problem = format!(
            "the commit of turn `{}` is unreadable; later records show that it was committed",
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

    /// Reports an installed base that differs from the prepared one.
    pub(super) fn check_installed(&mut self, bytes: Option<u64>) {
        if let Some(bytes) = bytes.filter(|bytes| *bytes != self.base.len()) {
            let problem = format!(
                "the base has {} bytes, but the committed one had {bytes}",
                self.base.len()
            );
            let finding = Finding::new(self.base.path(), FindingKind::MissingRecords, problem);
            self.findings.push(finding);
        }
    }
}

/// Returns the lines of `lines` that are not in `held`.
fn lines_not_in(held: &[u8], lines: &[u8]) -> Vec<u8> {
    let held: HashSet<&[u8]> = held.split_inclusive(|byte| *byte == b'\n').collect();
    let lines = lines.split_inclusive(|byte| *byte == b'\n');
    lines
        .filter(|line| !held.contains(line))
        .flatten()
        .copied()
        .collect()
}
