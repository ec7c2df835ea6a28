//! Compares an instance's files with its manifest, and records losses (`MSG-11`).

use std::collections::BTreeMap;
use std::path::Path;

use goondan_durable::disk::Disk;
use goondan_durable::manifest::{ClaimMatch, Manifest};
use goondan_durable::{Finding, FindingKind};

use super::base::BASE;
use super::manifest_claims::{KnownFiles, TurnClaim};
use super::{INBOX, InstanceStore};
use crate::error::StoreError;

/// Name of the manifest in the instance's directory, outside the folder it covers.
pub(crate) const MANIFEST: &str = "manifest.jsonl";

/// Returns the finding for a journal that lost records of a turn.
pub(super) fn shortened_turn(path: &Path, claim: &TurnClaim, events: u64) -> Finding {
    let problem = format!(
        "turn `{}` had {} message events; {events} are readable, and it continues from there",
        claim.turn_id, claim.events
    );
    Finding::new(path, FindingKind::MissingRecords, problem)
}

/// True if `findings` already reports missing or damaged records of a file.
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
    /// Compares inbox and journal with the manifest. Call it before any recovery changes them.
    pub(super) fn find_shortened(&mut self) -> Result<(), StoreError> {
        if let Some(claim) = self.manifest.claim(INBOX) {
            let standing = self.inbox.standing(claim)?;
            let is_told =
                standing == ClaimMatch::Replaced && is_told(&self.findings, self.inbox.path());
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

    /// True if a turn that is not in the journal ended properly.
    fn is_past(&mut self, claim: &TurnClaim) -> Result<bool, StoreError> {
        let known = self.inbox.table();
        let is_past = known.is_parked(&claim.event_id) || known.is_over(&claim.event_id);
        Ok(is_past || self.base.names_turn(&claim.turn_id)?)
    }

    /// Compares the base with the manifest. Call it when no commit is pending.
    pub(super) fn stands_of_base(&mut self) -> Result<Option<Finding>, StoreError> {
        let Some(claim) = self.manifest.claim(BASE) else {
            return Ok(None);
        };
        let standing = self.base.standing(claim)?;
        Ok(standing.finding(self.base.path(), claim))
    }

    /// Records losses, then updates the manifest with the durable state.
    pub(super) fn remember_findings(&mut self) -> Result<(), StoreError> {
        self.manifest.remember(&self.findings)?;
        self.base.sync()?;
        self.note_files();
        Ok(())
    }

    /// Updates the manifest with the durable state.
    pub(crate) fn note_files(&mut self) {
        let mut files = BTreeMap::new();
        let inbox = self.inbox.claim().or_else(|| self.manifest.claim(INBOX));
        let base = self.base.claim().or_else(|| self.manifest.claim(BASE));
        files.extend(inbox.map(|claim| (INBOX.to_owned(), claim)));
        files.extend(base.map(|claim| (BASE.to_owned(), claim)));
        let turn = self.turn.claim();
        self.manifest.note(KnownFiles { files, turn });
    }

    /// Drops the claim about the open turn before the turn leaves its journal without a fold.
    /// Durable when it returns.
    pub(super) fn release_turn(&mut self) -> Result<(), StoreError> {
        let mut known = self.manifest.state().clone();
        if known.turn.take().is_none() {
            return Ok(());
        }
        Ok(self.manifest.note_durably(self.disk.as_ref(), known)?)
    }

    /// Returns losses found now or earlier that are not acknowledged.
    #[must_use]
    pub fn unacknowledged(&self) -> &[Finding] {
        self.manifest.unacknowledged()
    }
}

/// Opens the manifest of the instance in `dir`.
pub(super) fn open(disk: &dyn Disk, dir: &Path) -> Result<Manifest<KnownFiles>, StoreError> {
    Ok(Manifest::open(disk, &dir.join(MANIFEST))?)
}
