//! `usage.jsonl`: the usage of each model reply, for a whole workspace.
//!
//! A line is written and synced **before** its reply is recorded in the turn. So every reply that
//! any agent has seen is counted, whenever a process is killed. A reply that was counted and then
//! lost in a crash stays counted, because it was paid for; the reply requested instead is another
//! one. The ledger belongs to the workspace, so usage still counts after its conversation is
//! deleted.
//!
//! A large file is compacted: sums replace old lines, one for each day, agent, conversation and
//! model.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use goondan_durable::disk::Disk;
use goondan_durable::journal::Journal;
use goondan_durable::sealed_log::{self, SealedLog};
use goondan_durable::{FileError, Finding, FindingKind, IoContext as _, Severity};
use goondan_protocol::ids::{
    AgentName, InstanceKey, ResourceName, RevisionId, StepId, TurnId, WorkspaceId,
};
use goondan_protocol::task::TaskId;
use goondan_protocol::time::{Day, Timestamp};
use goondan_protocol::usage::{Charge, MicroUsd, ReplyCost, Usage, UsageTotal};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::error::StoreError;
use crate::limits::{LEDGER_COMPACT_BYTES, LEDGER_REMEMBERED_REPLIES};
use crate::root::Layout;

/// The ledger's file in the folder of a workspace.
pub const LEDGER_FILE: &str = "usage.jsonl";

/// A task, unambiguous across reuse of its id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LedgerTask {
    pub id: TaskId,
    /// Creation time, because a new task can reuse the id of a removed one.
    pub created_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub enum ReplyPurpose {
    /// A step of a turn.
    Step {
        turn_id: TurnId,
        step_id: StepId,
        /// The task that the conversation works for, if any (`TASK-8`).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<LedgerTask>,
        /// The revision of the conversation's own configuration, if it has one (`BUNDLE-7`).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bundle_revision: Option<RevisionId>,
    },
    /// A task: the usage its agent's program reported since its previous line (`TASK-6`).
    Task { task: LedgerTask },
}

/// Usage of one reply, or one usage report of a task's agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LedgerEntry {
    /// Id of the reply. A duplicate counts once.
    pub id: Uuid,
    pub at: Timestamp,
    pub agent_name: AgentName,
    /// The conversation; for a task, a placeholder name.
    pub instance_key: InstanceKey,
    /// Other conversations charged: those that requested the turn or the task, directly or
    /// indirectly.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked_by: Vec<InstanceKey>,
    /// Agents of these conversations, which are charged too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked_by_agents: Vec<AgentName>,
    #[serde(flatten)]
    pub purpose: ReplyPurpose,
    /// The Model; for a task, the model name reported by its program, or its agent.
    pub model: ResourceName,
    /// Token usage, if the provider reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Cost, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_micro_usd: Option<MicroUsd>,
    /// Charge against budgets in place of unknown usage.
    #[serde(default, skip_serializing_if = "Charge::is_nothing")]
    pub assumed: Charge,
}

impl LedgerEntry {
    /// Returns the known usage.
    #[must_use]
    pub fn spent(&self) -> ReplyCost {
        ReplyCost {
            usage: self.usage,
            cost: self.cost_micro_usd,
        }
    }

    /// Returns a sum with this entry only.
    #[must_use]
    pub fn into_line(self) -> LedgerSum {
        let mut spending = UsageTotal::default();
        spending.add_reply(&self.spent());
        let (task, bundle_revision) = match self.purpose {
            ReplyPurpose::Task { task } => (Some(task), None),
            ReplyPurpose::Step {
                task,
                bundle_revision,
                ..
            } => (task, bundle_revision),
        };
        LedgerSum {
            day: self.at.day(),
            agent_name: self.agent_name,
            instance_key: self.instance_key,
            task,
            bundle_revision,
            asked_by: self.asked_by,
            asked_by_agents: self.asked_by_agents,
            model: self.model,
            spending,
            assumed: self.assumed,
        }
    }
}

/// Sum of replies that differ only in the time of day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LedgerSum {
    /// The day, in UTC.
    pub day: Day,
    pub agent_name: AgentName,
    /// The conversation; for a task, a placeholder name.
    pub instance_key: InstanceKey,
    /// The task, if the replies were for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<LedgerTask>,
    /// The revision of the conversation's own configuration, if it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle_revision: Option<RevisionId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked_by: Vec<InstanceKey>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked_by_agents: Vec<AgentName>,
    pub model: ResourceName,
    pub spending: UsageTotal,
    /// Additional charge against budgets for unknown usage.
    #[serde(default, skip_serializing_if = "Charge::is_nothing")]
    pub assumed: Charge,
}

impl LedgerSum {
    /// Returns the charge against budgets.
    #[must_use]
    pub fn charge(&self) -> Charge {
        let known = Charge {
            tokens: self.spending.usage.total(),
            micro_usd: self.spending.cost_micro_usd,
        };
        known.plus(self.assumed)
    }
}

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
enum LedgerRecord {
    Reply(LedgerEntry),
    Sum(LedgerSum),
}

impl LedgerRecord {
    fn read(bytes: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }

    fn to_raw(&self) -> Result<Box<RawValue>, FileError> {
        serde_json::value::to_raw_value(self).map_err(|error| FileError::Unwritable {
            problem: error.to_string(),
        })
    }
}

fn path_of(layout: &Layout, id: &WorkspaceId) -> PathBuf {
    layout.workspace(id).join(LEDGER_FILE)
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LedgerContent {
    /// Sums, oldest first.
    pub lines: Vec<LedgerSum>,
    /// Number of unreadable records, which are not counted.
    pub unreadable: u64,
}

/// Reads the ledger of a workspace; empty if the file does not exist. Changes nothing, and is safe
/// while a writer thread appends.
///
/// # Errors
///
/// [`FileError::Io`].
pub fn read(
    disk: &dyn Disk,
    layout: &Layout,
    id: &WorkspaceId,
) -> Result<LedgerContent, StoreError> {
    let path = path_of(layout, id);
    let mut found = LedgerContent::default();
    if disk.stat(&path).during("inspect", &path)?.is_none() {
        return Ok(found);
    }
    let mut journal = Journal::open_read(disk, &path)?;
    let reading = sealed_log::read(&mut journal)?;
    found.unreadable = reading.broken.len() as u64;
    for span in reading.records {
        let len = usize::try_from(span.len).unwrap_or(usize::MAX);
        match LedgerRecord::read(&journal.read(span.offset, len)?) {
            Ok(LedgerRecord::Reply(entry)) => found.lines.push(entry.into_line()),
            Ok(LedgerRecord::Sum(line)) => found.lines.push(line),
            Err(_) => found.unreadable += 1,
        }
    }
    Ok(found)
}

/// Logs the findings of opening a ledger.
pub(crate) fn report(id: &WorkspaceId, findings: &[Finding]) {
    for finding in findings {
        tracing::warn!(
            workspace_id = %id,
            path = %finding.path.display(),
            problem = finding.problem,
            "found while opening the usage ledger"
        );
    }
}

/// Checks the records of a ledger. Changes nothing.
pub(crate) fn check(
    journal: &mut Journal,
    reading: &sealed_log::SealedRead,
    findings: &mut Vec<Finding>,
) -> Result<(), StoreError> {
    for span in &reading.records {
        let len = usize::try_from(span.len).unwrap_or(usize::MAX);
        if let Err(problem) = LedgerRecord::read(&journal.read(span.offset, len)?) {
            let problem = format!("line {}: {problem}; it is not counted", span.line);
            let finding = span.finding(journal.path(), FindingKind::UnknownRecord, problem);
            findings.push(finding.severity(Severity::Error));
        }
    }
    Ok(())
}

/// The ledger of a workspace, open for writing.
#[derive(Debug)]
pub(crate) struct Ledger {
    log: SealedLog,
    /// Replies that have a line of their own.
    known: BTreeSet<Uuid>,
    /// File length that triggers compaction.
    compact_at: u64,
    /// Replies that keep their own line after compaction.
    remembered: usize,
}

impl Ledger {
    /// Opens or creates the file and truncates the remains of a crash. The whole content is durable
    /// when it returns.
    pub(crate) fn open(
        disk: &dyn Disk,
        layout: &Layout,
        id: &WorkspaceId,
    ) -> Result<(Self, Vec<Finding>), StoreError> {
        let path = path_of(layout, id);
        let (log, reading) = SealedLog::open(disk, &path)?;
        let mut ledger = Self {
            compact_at: LEDGER_COMPACT_BYTES.max(log.len()),
            log,
            known: BTreeSet::new(),
            remembered: LEDGER_REMEMBERED_REPLIES,
        };
        for span in reading.records {
            match LedgerRecord::read(&ledger.log.record(span)?) {
                Ok(LedgerRecord::Reply(entry)) => drop(ledger.known.insert(entry.id)),
                Ok(LedgerRecord::Sum(_)) => {}
                Err(_) => ledger.log.mark_damaged(),
            }
        }
        ledger.log.sync()?;
        // The file name may be visible without being durable, after a failed attempt or a killed
        // process.
        let dir = layout.workspace(id);
        disk.sync_dir(&dir).during("sync", &dir)?;
        Ok((ledger, reading.findings))
    }

    /// Appends an entry unless its reply is known. Durable only after [`Self::sync`].
    pub(crate) fn append(&mut self, entry: &LedgerEntry) -> Result<(), StoreError> {
        if self.known.contains(&entry.id) {
            return Ok(());
        }
        self.log.append(&LedgerRecord::Reply(entry.clone()))?;
        self.known.insert(entry.id);
        Ok(())
    }

    /// Syncs all appended entries.
    pub(crate) fn sync(&mut self) -> Result<(), StoreError> {
        Ok(self.log.sync()?)
    }

    pub(crate) fn len(&self) -> u64 {
        self.log.len()
    }

    /// Makes compaction due and sums up all replies but the newest.
    #[cfg(test)]
    pub(crate) fn make_large(&mut self) {
        (self.compact_at, self.remembered) = (1, 1);
    }

    /// True if compaction is due.
    pub(crate) fn is_compact_due(&self) -> bool {
        self.log.len() >= self.compact_at
    }

    /// Compacts the file if it is due: sums replace all but the newest lines. Durable when it
    /// returns.
    pub(crate) fn compact(&mut self, disk: &dyn Disk) -> Result<(), StoreError> {
        if !self.is_compact_due() {
            return Ok(());
        }
        let reading = {
            let mut journal = Journal::open_read(disk, self.log.path())?;
            sealed_log::read(&mut journal)?
        };
        let mut sums: BTreeMap<LedgerSumKey, LedgerSum> = BTreeMap::new();
        let mut replies = Vec::new();
        for span in reading.records {
            // Unreadable records survive in the copy that `replace` keeps.
            match LedgerRecord::read(&self.log.record(span)?) {
                Ok(LedgerRecord::Reply(entry)) => replies.push(entry),
                Ok(LedgerRecord::Sum(line)) => add(&mut sums, line),
                Err(_) => {}
            }
        }
        let kept = replies.split_off(replies.len().saturating_sub(self.remembered));
        for entry in replies {
            add(&mut sums, entry.into_line());
        }
        self.known = kept.iter().map(|entry| entry.id).collect();
        let sums = sums.into_values().map(LedgerRecord::Sum);
        let records = sums.chain(kept.into_iter().map(LedgerRecord::Reply));
        let records: Vec<_> = records.map(|r| r.to_raw()).collect::<Result<_, _>>()?;
        self.log.replace(disk, &records)?;
        self.compact_at = LEDGER_COMPACT_BYTES.max(self.log.len() * 2);
        Ok(())
    }
}

/// Common attributes of the replies of a sum.
type LedgerSumKey = (Day, AgentName, LedgerOwner, Callers, ResourceName);
type LedgerOwner = (InstanceKey, Option<LedgerTask>, Option<RevisionId>);
type Callers = (Vec<InstanceKey>, Vec<AgentName>);

fn add(sums: &mut BTreeMap<LedgerSumKey, LedgerSum>, line: LedgerSum) {
    let key = (
        line.day,
        line.agent_name.clone(),
        (
            line.instance_key.clone(),
            line.task.clone(),
            line.bundle_revision.clone(),
        ),
        (line.asked_by.clone(), line.asked_by_agents.clone()),
        line.model.clone(),
    );
    match sums.entry(key) {
        std::collections::btree_map::Entry::Vacant(free) => drop(free.insert(line)),
        std::collections::btree_map::Entry::Occupied(mut sum) => {
            let sum = sum.get_mut();
            sum.spending.add(&line.spending);
            sum.assumed = sum.assumed.plus(line.assumed);
        }
    }
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
