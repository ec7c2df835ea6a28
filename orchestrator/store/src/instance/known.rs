//! What was last known of an instance's files, and what is missing of them (`MSG-11`).

use std::collections::BTreeMap;
use std::path::Path;

use goondan_durable::disk::Disk;
use goondan_durable::manifest::{Manifest, Standing};
use goondan_durable::{Finding, FindingKind};

use super::base::BASE;
use super::claims::{KnownFiles, TurnClaim};
use super::{INBOX, InstanceStore};
use crate::error::StoreError;

/// The manifest's name in the instance's directory, outside of the folder it speaks of.
pub(crate) const MANIFEST: &str = "manifest.jsonl";

/// What is to be said of a journal that holds less of a turn than it did.
pub(super) fn shortened_turn(path: &Path, claim: &TurnClaim, events: u64) -> Finding {
    let problem = format!(
        "turn `{}` had {} message events on record, and {events} can be read: it goes on from these",
        claim.turn_id, claim.events
    );
    Finding::new(path, FindingKind::MissingRecords, problem)
}

/// Whether a finding of `findings` says already that records of a file are not there or not whole.
pub(super) fn is_told(findings: &[Finding], path: &Path) -> bool {
    findings.iter().any(|finding| {
        let is_damage = matches!(
            finding.kind,
            FindingKind::MissingRecords
                | FindingKind::DamagedRecord
                | FindingKind::MisplacedRecord
                | FindingKind::RepeatedRecord
                | FindingKind::UnknownRecord
        );
        finding.path == path && is_damage && finding.line.is_some()
    })
}

impl InstanceStore {
    /// Holds inbox and journal, as they were found, against what was last known of them. To be called
    /// before anything is done again.
    pub(super) fn find_shortened(&mut self) -> Result<(), StoreError> {
        if let Some(claim) = self.manifest.claim(INBOX) {
            let standing = self.inbox.standing(claim)?;
            let is_told =
                standing == Standing::Replaced && is_told(&self.findings, self.inbox.path());
            if !is_told {
                self.findings
                    .extend(standing.finding(self.inbox.path(), claim));
            }
        }
        if let Some(claim) = self.manifest.state().turn.clone() {
            let events = self.turn.events_of_turn(&claim.turn_id);
            let is_short = events.is_some_and(|events| events < claim.events)
                || (events.is_none() && !self.is_past(&claim)?);
            if is_short && !is_told(&self.findings, self.turn.path()) {
                let finding = shortened_turn(self.turn.path(), &claim, events.unwrap_or(0));
                self.findings.push(finding);
            }
        }
        Ok(())
    }

    /// Whether a turn that is not in the journal left it as it should.
    fn is_past(&mut self, claim: &TurnClaim) -> Result<bool, StoreError> {
        let known = self.inbox.table();
        let is_past = known.is_parked(&claim.event_id) || known.is_over(&claim.event_id);
        Ok(is_past || self.base.names_turn(&claim.turn_id)?)
    }

    /// Holds the base against what was last known of it. To be called when no commit is pending.
    pub(super) fn stands_of_base(&mut self) -> Result<Option<Finding>, StoreError> {
        let Some(claim) = self.manifest.claim(BASE) else {
            return Ok(None);
        };
        let standing = self.base.standing(claim)?;
        Ok(standing.finding(self.base.path(), claim))
    }

    /// Remembers what was found to be lost, and notes what is durable now.
    pub(super) fn remember_findings(&mut self) -> Result<(), StoreError> {
        self.manifest.remember(&self.findings)?;
        self.base.sync()?;
        self.note_files();
        Ok(())
    }

    /// Notes what is durable now.
    pub(super) fn note_files(&mut self) {
        let mut files = BTreeMap::new();
        let inbox = self.inbox.claim().or_else(|| self.manifest.claim(INBOX));
        let base = self.base.claim().or_else(|| self.manifest.claim(BASE));
        files.extend(inbox.map(|claim| (INBOX.to_owned(), claim)));
        files.extend(base.map(|claim| (BASE.to_owned(), claim)));
        let turn = self.turn.claim();
        self.manifest.note(KnownFiles { files, turn });
    }

    /// Takes back what is claimed of the open turn, which is about to leave its journal without having
    /// become part of the conversation. Durable when it returns.
    pub(super) fn release_turn(&mut self) -> Result<(), StoreError> {
        let mut known = self.manifest.state().clone();
        if known.turn.take().is_none() {
            return Ok(());
        }
        Ok(self.manifest.note_durably(self.disk.as_ref(), known)?)
    }

    /// What was found to be lost when it was opened now or before, and nobody acknowledged.
    #[must_use]
    pub fn unacknowledged(&self) -> &[Finding] {
        self.manifest.unacknowledged()
    }
}

/// Opens the manifest of the instance in `dir`.
pub(super) fn open(disk: &dyn Disk, dir: &Path) -> Result<Manifest<KnownFiles>, StoreError> {
    Ok(Manifest::open(disk, &dir.join(MANIFEST))?)
}
