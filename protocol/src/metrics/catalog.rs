//! Catalog of all metrics: names, meanings and labels.

use serde::{Deserialize, Serialize};

use super::Label::{
    Agent, Connection, ErrorType, GenAiTokenType, Model, Outcome, Period, Protocol, Reason, Scope,
    TokenType, Unit, Version, Workspace,
};
use super::{Label, MetricKind, Micros};

/// Static description of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetricInfo {
    /// Name in OpenMetrics, without the suffixes of a counter's samples.
    pub name: &'static str,
    /// Type of the metric.
    pub kind: MetricKind,
    /// Unit at the end of the name, if any.
    pub unit: Option<&'static str>,
    /// Help text.
    pub help: &'static str,
    /// The labels that its series may have.
    pub labels: &'static [Label],
    /// Bucket bounds of a histogram, in ascending order.
    pub bounds: &'static [Micros],
}

macro_rules! metrics {
    ($(
        $name:ident = $wire:literal $kind:ident [$($label:ident),*]
        $(unit $unit:literal)? $(bounds $bounds:ident)? : $help:literal;
    )*) => {
        /// A metric.
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        pub enum Metric {
            $(#[doc = $help] #[serde(rename = $wire)] $name,)*
        }

        impl Metric {
            /// All metrics, in output order.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Static description of the metric.
            #[must_use]
            pub fn info(self) -> MetricInfo {
                match self {
                    $(Self::$name => MetricInfo {
                        name: $wire,
                        kind: MetricKind::$kind,
                        unit: metrics!(@unit $($unit)?),
                        help: $help,
                        labels: &[$($label),*],
                        bounds: metrics!(@bounds $($bounds)?),
                    },)*
                }
            }
        }
    };
    (@unit) => { None };
    (@unit $unit:literal) => { Some($unit) };
    (@bounds) => { &[] };
    (@bounds $bounds:ident) => { $bounds };
}

metrics! {
    Build = "goondan_build" Info [Version, Protocol]: "Version of the running daemon.";
    StartTime = "goondan_start_time_seconds" Gauge [] unit "seconds":
        "Start time of the daemon, in seconds since 1970.";
    WorkspaceProblem = "goondan_workspace_problem" Gauge [Workspace]:
        "1 while the configuration of a workspace cannot run, even if its last known good one does.";
    EventOldestAge = "goondan_event_oldest_age_seconds" Gauge [Workspace, Agent] unit "seconds":
        "Age of the oldest event that waits for its acknowledgment or its turn, or is in progress, except events paused by a person; 0 without one.";
    UnacknowledgedTime = "goondan_unacknowledged_seconds" Gauge [Workspace] unit "seconds":
        "Time for which the log of a replicated workspace has confirmed nothing, so that nothing is acknowledged; 0 while it confirms.";
    EventsWaiting = "goondan_events_waiting" Gauge [Workspace, Agent]:
        "Events that wait for a turn or are in progress.";
    EventsIgnored = "goondan_events_ignored" Counter [Workspace, Connection, Reason]:
        "Events of a service that were acknowledged and passed over, by reason, such as noRule if no ingress rule matches.";
    EventsParked = "goondan_events_parked" Gauge [Workspace]:
        "Events parked after repeated crashes or failed starts.";
    WaitingForPerson = "goondan_waiting_for_person" Gauge [Workspace]:
        "Approvals, questions and logins that wait for a person.";
    Processes = "goondan_processes" Gauge [Workspace, Agent, Connection, Model]:
        "Running processes.";
    BackoffProcesses = "goondan_backoff_processes" Gauge [Workspace, Agent, Connection, Model]:
        "Processes in back-off after repeated crashes.";
    UnreadyProcesses = "goondan_unready_processes" Gauge [Workspace, Connection, Model]:
        "Connections and models that run but are not ready.";
    WaitingStarts = "goondan_waiting_starts" Gauge []:
        "Conversations with work that wait for resources to start their agent.";
    ChildCrashes = "goondan_child_crashes" Counter [Workspace, Agent, Connection, Model]:
        "Processes that ended unexpectedly.";
    Turns = "goondan_turns" Counter [Workspace, Agent, Outcome]: "Committed turns.";
    TurnDuration = "goondan_turn_duration_seconds" Histogram [Workspace, Agent]
        unit "seconds" bounds TURN_SECONDS:
        "Time from sending a turn to its process to its commit; of the last attempt.";
    ModelRequests = "goondan_model_requests" Counter [Workspace, Model, Outcome]:
        "Requests to a model, including retries.";
    ModelSuspended = "goondan_model_suspended" Gauge [Workspace, Model]:
        "1 while a model is not called because its last calls failed; a probe ends it.";
    CallsUnknown = "goondan_calls_unknown" Counter [Workspace, Connection, Model]:
        "Interrupted outgoing calls with an unknown outcome.";
    StoreSync = "goondan_store_sync_seconds" Histogram [] unit "seconds" bounds SYNC_SECONDS:
        "Duration of syncs of files and directories.";
    BudgetLimit = "goondan_budget_limit" Gauge [Workspace, Agent, Scope, Period, Unit]:
        "Limit of a budget; of conversation budgets, the one closest to its limit.";
    BudgetSpent = "goondan_budget_spent" Gauge [Workspace, Agent, Scope, Period, Unit]:
        "Spent part of the budget.";
    BudgetReserved = "goondan_budget_reserved" Gauge [Workspace, Agent, Scope, Period, Unit]:
        "Part of the budget reserved for calls in progress.";
    Replies = "goondan_replies" Counter [Workspace, Agent, Model]:
        "Model replies in the ledger, which is kept on disk.";
    Tokens = "goondan_tokens" Counter [Workspace, Agent, Model, TokenType]:
        "Tokens in the ledger, which is kept on disk.";
    Cost = "goondan_cost_usd" Counter [Workspace, Agent, Model] unit "usd":
        "Cost of the replies in the ledger in US dollars, where prices are known.";
    GenAiTokenUsage = "gen_ai_client_token_usage" Histogram
        [Workspace, Agent, Model, GenAiTokenType] bounds GEN_AI_TOKENS:
        "Tokens per reply since the daemon started.";
    GenAiOperationDuration = "gen_ai_client_operation_duration_seconds" Histogram
        [Workspace, Model, ErrorType] unit "seconds" bounds GEN_AI_SECONDS:
        "Duration of each request to a model.";
    DiskFree = "goondan_disk_free_bytes" Gauge [] unit "bytes":
        "Free space of the file system of the state root.";
    DiskSize = "goondan_disk_size_bytes" Gauge [] unit "bytes":
        "Size of the file system of the state root.";
    OpenFiles = "goondan_open_files" Gauge []: "Open file descriptors of the daemon.";
    OpenFilesLimit = "goondan_open_files_limit" Gauge []:
        "Limit of the daemon's open file descriptors.";
    MemoryUsed = "goondan_memory_used_bytes" Gauge [] unit "bytes":
        "Used memory of the machine, or of the daemon's control group if less is free there.";
    MemoryLimit = "goondan_memory_limit_bytes" Gauge [] unit "bytes":
        "Memory of the machine, or the limit of the daemon's control group if less is free there.";
    SystemTasks = "goondan_system_tasks" Gauge []:
        "Processes and threads of the machine, or of the daemon's control group if fewer are free there.";
    SystemTasksLimit = "goondan_system_tasks_limit" Gauge []: "Limit of processes and threads.";
    LogLinesDropped = "goondan_log_lines_dropped" Counter []:
        "Log lines dropped because stdout was read too slowly.";
    SeriesDropped = "goondan_series_dropped" Gauge []:
        "Series aggregated as other because there are too many.";
}

impl Metric {
    /// True if the value is restored from disk, and so did not start at the daemon's start.
    #[must_use]
    pub fn is_kept(self) -> bool {
        matches!(self, Self::Replies | Self::Tokens | Self::Cost)
    }

    /// Name of the samples in a query; for a histogram, without the suffixes of its samples.
    #[must_use]
    pub fn sample_name(self) -> String {
        let info = self.info();
        match info.kind {
            MetricKind::Counter => format!("{}_total", info.name),
            MetricKind::Info => format!("{}_info", info.name),
            MetricKind::Gauge | MetricKind::Histogram => info.name.to_owned(),
        }
    }

    /// Number of output lines of one series.
    #[must_use]
    pub fn lines_per_series(self) -> usize {
        let info = self.info();
        match info.kind {
            // Each bound, `+Inf`, the count and the sum.
            MetricKind::Histogram => info.bounds.len() + 3,
            MetricKind::Counter | MetricKind::Gauge | MetricKind::Info => 1,
        }
    }
}

/// Bucket bounds of the duration of turns.
const TURN_SECONDS: &[Micros] = &[
    Micros::millis(50),
    Micros::millis(250),
    Micros::whole(1),
    Micros::whole(5),
    Micros::whole(15),
    Micros::whole(60),
    Micros::whole(300),
    Micros::whole(1_800),
];

/// Bucket bounds of the duration of syncs.
const SYNC_SECONDS: &[Micros] = &[
    Micros(250),
    Micros::millis(1),
    Micros::millis(4),
    Micros::millis(16),
    Micros::millis(64),
    Micros::millis(256),
    Micros::whole(1),
    Micros::whole(4),
];

/// Bucket bounds of the semantic conventions for `gen_ai.client.token.usage`.
const GEN_AI_TOKENS: &[Micros] = &[
    Micros::whole(1),
    Micros::whole(4),
    Micros::whole(16),
    Micros::whole(64),
    Micros::whole(256),
    Micros::whole(1_024),
    Micros::whole(4_096),
    Micros::whole(16_384),
    Micros::whole(65_536),
    Micros::whole(262_144),
    Micros::whole(1_048_576),
    Micros::whole(4_194_304),
    Micros::whole(16_777_216),
    Micros::whole(67_108_864),
];

/// Bucket bounds of the semantic conventions for `gen_ai.client.operation.duration`.
const GEN_AI_SECONDS: &[Micros] = &[
    Micros::millis(10),
    Micros::millis(20),
    Micros::millis(40),
    Micros::millis(80),
    Micros::millis(160),
    Micros::millis(320),
    Micros::millis(640),
    Micros::millis(1_280),
    Micros::millis(2_560),
    Micros::millis(5_120),
    Micros::millis(10_240),
    Micros::millis(20_480),
    Micros::millis(40_960),
    Micros::millis(81_920),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn obs_3_each_metric_is_named_once_and_as_open_metrics_wants_it() {
        let names: BTreeSet<&str> = Metric::ALL
            .iter()
            .map(|metric| metric.info().name)
            .collect();
        assert_eq!(names.len(), Metric::ALL.len());
        for metric in Metric::ALL {
            let info = metric.info();
            assert!(
                info.name
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'_'),
                "{}",
                info.name
            );
            if let Some(unit) = info.unit {
                assert!(info.name.ends_with(&format!("_{unit}")), "{}", info.name);
            }
            assert_eq!(
                info.bounds.is_empty(),
                info.kind != MetricKind::Histogram,
                "{}",
                info.name
            );
            assert!(info.bounds.is_sorted(), "{}", info.name);
        }
    }
}
