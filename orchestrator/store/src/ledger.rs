//! `usage.jsonl`: what each reply of a model took, for a whole workspace.
//!
//! A line is written and synced **before** the reply it is about is recorded in its turn. So every reply
//! that any agent has seen is counted, whatever is killed when. A reply that was received, counted and
//! then lost in a crash stays counted: it was paid for, and the one that is asked for in its place is
//! another. Nothing here belongs to an instance: what a conversation took still counts when the
//! conversation is deleted.
//!
//! A file that has grown large is written anew with sums in the place of old lines: one for each day,
//! agent, conversation and model.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use goondan_durable::disk::Disk;
use goondan_durable::journal::Journal;
use goondan_durable::sealed::{self, SealedLog};
use goondan_durable::{FileError, Finding, FindingKind, IoContext as _, Severity};
use goondan_protocol::ids::{
    AgentName, InstanceKey, ResourceName, RevisionId, StepId, TurnId, WorkspaceId,
};
use goondan_protocol::task::TaskId;
use goondan_protocol::time::{Day, Timestamp};
use goondan_protocol::usage::{Charge, MicroUsd, Spending, Spent, Usage};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::error::StoreError;
use crate::limits::{LEDGER_COMPACT_BYTES, LEDGER_REMEMBERED_REPLIES};
use crate::root::Layout;

/// The ledger's file in the folder of a workspace.
pub const LEDGER_FILE: &str = "usage.jsonl";

/// A task, among all that ever had its id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LedgerTask {
    /// Its id.
    pub id: TaskId,
    /// When it was made: a task that was removed may leave its id to another.
    pub created_at: Timestamp,
}

/// What a reply was for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub enum Purpose {
    /// A step of a turn.
    Step {
        /// The turn.
        turn_id: TurnId,
        /// The step.
        step_id: StepId,
        /// The task that the conversation works for, if it does (`TASK-8`).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<LedgerTask>,
        /// The revision of its configuration that the conversation worked with, if it has one of its own (`BUNDLE-7`).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bundle_revision: Option<RevisionId>,
    },
    /// A task: what its agent's program told since the last line of it (`TASK-6`).
    Task {
        /// The task.
        task: LedgerTask,
    },
}

/// What one reply took, or what the agent of a task told at one time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Names the reply: the same one twice counts once.
    pub id: Uuid,
    /// When it was received.
    pub at: Timestamp,
    /// Whose turn it was in.
    pub agent_name: AgentName,
    /// The conversation; of a task a name in its place.
    pub instance_key: InstanceKey,
    /// The other conversations it counts against: those that had asked for the turn or the task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked_by: Vec<InstanceKey>,
    /// The other agents it counts against: those of these conversations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked_by_agents: Vec<AgentName>,
    /// What it was for.
    #[serde(flatten)]
    pub purpose: Purpose,
    /// The Model; of a task what its program calls it, or its agent.
    pub model: ResourceName,
    /// Its tokens, if the provider told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// What it cost, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_micro_usd: Option<MicroUsd>,
    /// What counts against budgets in the place of what is not known.
    #[serde(default, skip_serializing_if = "Charge::is_nothing")]
    pub assumed: Charge,
}

impl Entry {
    /// What it took, as far as that is known.
    #[must_use]
    pub fn spent(&self) -> Spent {
        Spent {
            usage: self.usage,
            cost: self.cost_micro_usd,
        }
    }

    /// The sum of it alone.
    #[must_use]
    pub fn into_line(self) -> Line {
        let mut spending = Spending::default();
        spending.add_reply(&self.spent());
        let (task, bundle_revision) = match self.purpose {
            Purpose::Task { task } => (Some(task), None),
            Purpose::Step {
                task,
                bundle_revision,
                ..
            } => (task, bundle_revision),
        };
        Line {
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

/// What replies took that have everything in common but the time of day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    /// The day, in UTC.
    pub day: Day,
    /// The agent.
    pub agent_name: AgentName,
    /// The conversation; of a task a name in its place.
    pub instance_key: InstanceKey,
    /// The task, if they were for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<LedgerTask>,
    /// The revision of its configuration that the conversation worked with, if it had one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle_revision: Option<RevisionId>,
    /// The other conversations it counts against.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked_by: Vec<InstanceKey>,
    /// The other agents it counts against.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked_by_agents: Vec<AgentName>,
    /// The Model.
    pub model: ResourceName,
    /// What they took.
    pub spending: Spending,
    /// What counts against budgets beside it.
    #[serde(default, skip_serializing_if = "Charge::is_nothing")]
    pub assumed: Charge,
}

impl Line {
    /// What counts against budgets.
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
enum Record {
    Reply(Entry),
    Sum(Line),
}

impl Record {
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

/// What a ledger holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ledgered {
    /// What was taken, oldest first.
    pub lines: Vec<Line>,
    /// Records that cannot be read; what they say is not counted.
    pub unreadable: u64,
}

/// Reads the ledger of a workspace; an empty one, if it has none. Changes nothing, and may be done while
/// a writer thread appends.
///
/// # Errors
///
/// [`FileError::Io`].
pub fn read(disk: &dyn Disk, layout: &Layout, id: &WorkspaceId) -> Result<Ledgered, StoreError> {
    let path = path_of(layout, id);
    let mut found = Ledgered::default();
    if disk.stat(&path).during("look at", &path)?.is_none() {
        return Ok(found);
    }
    let mut journal = Journal::open_read(disk, &path)?;
    let reading = sealed::read(&mut journal)?;
    found.unreadable = reading.broken.len() as u64;
    for span in reading.records {
        let len = usize::try_from(span.len).unwrap_or(usize::MAX);
        match Record::read(&journal.read(span.offset, len)?) {
            Ok(Record::Reply(entry)) => found.lines.push(entry.into_line()),
            Ok(Record::Sum(line)) => found.lines.push(line),
            Err(_) => found.unreadable += 1,
        }
    }
    Ok(found)
}

/// Says what was found wrong with a ledger that was opened.
pub(crate) fn report(id: &WorkspaceId, findings: &[Finding]) {
    for finding in findings {
        tracing::warn!(
            workspace_id = %id,
            path = %finding.path.display(),
            problem = finding.problem,
            "found while opening what replies of models took"
        );
    }
}

/// Looks at the records of a ledger. Changes nothing.
pub(crate) fn check(
    journal: &mut Journal,
    reading: &sealed::Reading,
    findings: &mut Vec<Finding>,
) -> Result<(), StoreError> {
    for span in &reading.records {
        let len = usize::try_from(span.len).unwrap_or(usize::MAX);
        if let Err(problem) = Record::read(&journal.read(span.offset, len)?) {
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
    /// The replies that have a line of their own.
    known: BTreeSet<Uuid>,
    /// Length from which writing the file anew is worth its cost.
    compact_at: u64,
    /// Replies that keep a line of their own then.
    remembered: usize,
}

impl Ledger {
    /// Opens the file, making it if it is missing, and cuts off what a crash left over. Durable, whoever
    /// wrote it, when it returns.
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
            match Record::read(&ledger.log.record(span)?) {
                Ok(Record::Reply(entry)) => drop(ledger.known.insert(entry.id)),
                Ok(Record::Sum(_)) => {}
                Err(_) => ledger.log.mark_damaged(),
            }
        }
        ledger.log.sync()?;
        // A name that a failed attempt or a killed process made may be seen without being durable.
        let dir = layout.workspace(id);
        disk.sync_dir(&dir).during("sync", &dir)?;
        Ok((ledger, reading.findings))
    }

    /// Appends what a reply took; does nothing if that is known. Not durable before [`Self::sync`].
    pub(crate) fn append(&mut self, entry: &Entry) -> Result<(), StoreError> {
        if self.known.contains(&entry.id) {
            return Ok(());
        }
        self.log.append(&Record::Reply(entry.clone()))?;
        self.known.insert(entry.id);
        Ok(())
    }

    /// Makes everything appended so far durable.
    pub(crate) fn sync(&mut self) -> Result<(), StoreError> {
        Ok(self.log.sync()?)
    }

    pub(crate) fn len(&self) -> u64 {
        self.log.len()
    }

    /// Takes the file for large now, and sums up all replies but the latest one.
    #[cfg(test)]
    pub(crate) fn make_large(&mut self) {
        (self.compact_at, self.remembered) = (1, 1);
    }

    /// Whether the file has grown large.
    pub(crate) fn is_compact_due(&self) -> bool {
        self.log.len() >= self.compact_at
    }

    /// Writes the file anew, if it has grown large: with sums in the place of all lines but the latest.
    /// Durable when it returns.
    pub(crate) fn compact(&mut self, disk: &dyn Disk) -> Result<(), StoreError> {
        if !self.is_compact_due() {
            return Ok(());
        }
        let reading = {
            let mut journal = Journal::open_read(disk, self.log.path())?;
            sealed::read(&mut journal)?
        };
        let mut sums: BTreeMap<Key, Line> = BTreeMap::new();
        let mut replies = Vec::new();
        for span in reading.records {
            // What cannot be read is kept in the copy that replacing makes.
            match Record::read(&self.log.record(span)?) {
                Ok(Record::Reply(entry)) => replies.push(entry),
                Ok(Record::Sum(line)) => add(&mut sums, line),
                Err(_) => {}
            }
        }
        let kept = replies.split_off(replies.len().saturating_sub(self.remembered));
        for entry in replies {
            add(&mut sums, entry.into_line());
        }
        self.known = kept.iter().map(|entry| entry.id).collect();
        let sums = sums.into_values().map(Record::Sum);
        let records = sums.chain(kept.into_iter().map(Record::Reply));
        let records: Vec<_> = records.map(|r| r.to_raw()).collect::<Result<_, _>>()?;
        self.log.replace(disk, &records)?;
        self.compact_at = LEDGER_COMPACT_BYTES.max(self.log.len() * 2);
        Ok(())
    }
}

/// What the replies of a sum have in common.
type Key = (Day, AgentName, Whose, Callers, ResourceName);
type Whose = (InstanceKey, Option<LedgerTask>, Option<RevisionId>);
type Callers = (Vec<InstanceKey>, Vec<AgentName>);

fn add(sums: &mut BTreeMap<Key, Line>, line: Line) {
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
