//! Recovery of an instance after a crash: rolls committed turns forward and finds the event of the
//! open turn (`MSG-8`, `MSG-11`).
//!
//! Every step is idempotent and can itself be interrupted.

use goondan_durable::journal::Journal;
use goondan_durable::{Finding, FindingKind, Severity};
use goondan_protocol::conversation::MissingTarget;
use goondan_protocol::event::TurnOutcome;
use goondan_protocol::ids::TurnId;
use goondan_protocol::observe::{RuntimeEvent, RuntimeEventKind, detail_of};
use goondan_protocol::trace::{SpanId, TraceContext, TraceId};

use super::{INBOX, InstanceStore, MESSAGES, TurnEvent, dedup, fold};
use crate::error::StoreError;

impl InstanceStore {
    /// Recovers the instance from its files.
    pub(super) fn recover(&mut self) -> Result<(), StoreError> {
        // Data read here may never have been synced, and later steps depend on it.
        self.inbox.sync()?;
        self.turn.sync()?;
        self.base.sync()?;
        self.find_shortened()?;
        self.redo()?;
        if !self.redo_rewind()? {
            fold::discard_prepared(self.disk.as_ref(), &self.dir.join(MESSAGES))?;
        }
        let event = self.turn.open.as_ref().and_then(|open| open.event.as_ref());
        if event.is_some_and(|event| self.inbox.seq_of_parked(&event.event_id).is_some()) {
            self.set_turn_aside()?;
        }
        self.base.settle(self.disk.as_ref(), &mut self.findings)?;
        let shortened = self.stands_of_base()?;
        if !dedup::is_told(&self.findings, self.base.path()) {
            self.findings.extend(shortened);
        }
        self.restore_answers()?;
        self.end_answered_turn()?;
        self.name_answers()?;
        self.find_lost_event();
        self.adopt_turn()?;
        for log in [&mut self.observed, &mut self.llm] {
            cut_torn_end(log.current())?;
        }
        let status = self.status();
        let parked = self.inbox.parked().count() as u64;
        if self.metadata.status != status || self.metadata.parked_events != parked {
            (self.metadata.status, self.metadata.parked_events) = (status, parked);
            self.metadata_is_dirty = true;
        }
        self.remember_findings()
    }

    /// Ends an open turn that the conversation already holds, because the journal is an older copy.
    fn end_answered_turn(&mut self) -> Result<(), StoreError> {
        let Some(open) = &self.turn.open else {
            return Ok(());
        };
        let turn_id = open.turn_id.clone();
        if !open.is_foreign() && self.holds_turn(&turn_id)? {
            let problem = format!(
                "turn `{turn_id}` is open here, but the conversation holds it already; the file is an \
                 older copy and was put aside"
            );
            let kept = self.turn.set_aside(self.disk.as_ref(), "replaced")?;
            let finding = Finding::new(self.turn.path(), FindingKind::MissingRecords, problem);
            self.findings.push(finding.kept(&kept));
        }
        Ok(())
    }

    /// Assigns the next event to a turn with a damaged beginning, because events are handed out in
    /// order.
    fn find_lost_event(&mut self) {
        let path = self.turn.path().to_owned();
        if let Some(open) = &mut self.turn.open
            && open.event.is_none()
            && !open.is_foreign()
            && let Some((inbox_seq, event_id)) = self.inbox.next_waiting()
        {
            let problem = format!(
                "the beginning of turn `{}` is unreadable; assuming that it answers event `{event_id}`",
                open.turn_id
            );
            let event_id = event_id.clone();
            open.event = Some(TurnEvent {
                event_id,
                inbox_seq,
            });
            let finding = Finding::new(&path, FindingKind::MissingRecords, problem);
            self.findings.push(finding.severity(Severity::Warning));
        }
    }

    /// Folds a turn without a waiting event: another implementation left it, or its event is lost.
    /// It cannot be resumed, so its records become part of the base (`MSG-8`).
    fn adopt_turn(&mut self) -> Result<(), StoreError> {
        let Some(open) = self.turn.open.clone() else {
            return Ok(());
        };
        let event = open.event.as_ref();
        if event.is_some_and(|event| self.inbox.seq_of_waiting(&event.event_id).is_some()) {
            return Ok(());
        }
        let (code, message) = if event.is_none() {
            (
                "E_FOREIGN_TURN",
                "folded an open turn of another implementation",
            )
        } else {
            (
                "E_EVENT_LOST",
                "the turn's event is unreadable; the turn was folded with its current records",
            )
        };
        if let Some(event) = event {
            let problem = format!(
                "event `{}` is lost; its turn's records are part of the conversation",
                event.event_id
            );
            let kind = FindingKind::MissingRecords;
            let path = self.dir.join(MESSAGES).join(INBOX);
            self.findings.push(Finding::new(&path, kind, problem));
        }
        let outcome = TurnOutcome::Failed {
            code: code.to_owned(),
            message: message.to_owned(),
        };
        let at = self.metadata.updated_at;
        let missing = self.stage_commit(
            &open.turn_id,
            open.last_seq,
            Default::default(),
            outcome,
            at,
        )?;
        if open.is_foreign() {
            self.warn_of_missing(&open.turn_id, &missing)?;
        }
        self.sync()?;
        self.finish_turn()
    }

    /// Reports events of an adopted turn that target missing messages (`MSG-4`), because none of
    /// our agents warned about them.
    fn warn_of_missing(
        &mut self,
        turn_id: &TurnId,
        missing: &[MissingTarget],
    ) -> Result<(), StoreError> {
        let place = TraceContext::root(TraceId::of_turn(turn_id), SpanId::of_turn(turn_id));
        for target in missing {
            let problem = format!("turn `{turn_id}`: {target}; the event changed nothing");
            let finding = Finding::new(self.turn.path(), FindingKind::UnknownRecord, problem);
            self.findings
                .push(finding.advice("nothing to do: the other events of the turn were applied"));
            let metadata = &self.metadata;
            let whose = (metadata.agent_name.clone(), metadata.instance_key.clone());
            let kind = RuntimeEventKind::MessageWarning;
            let event = RuntimeEvent::new(kind, metadata.updated_at, place, whose, turn_id.clone());
            let event = RuntimeEvent {
                detail: Some(detail_of(&target.to_string())),
                ..event
            };
            let line = event
                .to_record()
                .map_err(|error| StoreError::InvalidEvent {
                    problem: error.to_string(),
                })?;
            self.observe(&line)?;
        }
        Ok(())
    }
}

/// Truncates a torn last line. It is normal in logs that are not synced line by line and never an
/// input of state.
fn cut_torn_end(journal: &mut Journal) -> Result<(), StoreError> {
    let len = journal.len();
    if len > 0 && journal.read(len - 1, 1)? != b"\n" {
        let good = journal.scan(|_, _| {})?;
        journal.cut(good)?;
    }
    Ok(())
}
