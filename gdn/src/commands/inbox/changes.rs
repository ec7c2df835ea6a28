//! Changes of the inbox while it is open, in any workspace.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use goondan_protocol::control::{WatchUpdate, WatchWorkspace};
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::lifecycle::LifecycleEvent as Event;
use tokio::sync::Notify;

use crate::client::{CallError, Notice, RequestTimeout};
use crate::commands::follow::RECONNECT_MS;
use crate::context::Context;

/// Longest pause between two attempts to watch, in milliseconds.
const PAUSE_MAX_MS: u64 = 15_000;

/// Changes of the inbox, and the state of the watch that reports them.
#[derive(Debug, Default)]
pub(in crate::commands) struct LiveChanges {
    /// Notified of a change of the inbox or of the watch.
    pub(in crate::commands) changed: Notify,
    problem: RefCell<Option<String>>,
    stale: RefCell<Stale>,
}

/// Parts of the inbox that must be read again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::commands) enum Stale {
    Everything,
    Workspaces(BTreeSet<WorkspaceId>),
}

impl Default for Stale {
    fn default() -> Self {
        Self::Workspaces(BTreeSet::new())
    }
}

impl Stale {
    fn add(&mut self, other: Self) {
        match (&mut *self, other) {
            (Self::Everything, _) => {}
            (_, Self::Everything) => *self = Self::Everything,
            (Self::Workspaces(ids), Self::Workspaces(more)) => ids.extend(more),
        }
    }
}

impl LiveChanges {
    /// Reason why changes are not received now, with the time of the next attempt.
    pub(in crate::commands) fn problem(&self) -> Option<String> {
        self.problem.borrow().clone()
    }

    /// Marks parts of the inbox as changed.
    pub(in crate::commands) fn mark(&self, stale: Stale) {
        self.stale.borrow_mut().add(stale);
    }

    /// Marks a workspace as changed.
    pub(in crate::commands) fn mark_workspace(&self, id: &WorkspaceId) {
        self.mark(Stale::Workspaces(BTreeSet::from([id.clone()])));
    }

    /// The parts that changed since the last call.
    pub(in crate::commands) fn take_stale(&self) -> Stale {
        self.stale.take()
    }

    fn set_problem(&self, problem: Option<String>) {
        let is_new = *self.problem.borrow() != problem;
        *self.problem.borrow_mut() = problem;
        if is_new {
            self.changed.notify_one();
        }
    }

    /// Receives changes, across restarts of the daemon, until the future is dropped.
    pub(in crate::commands) async fn follow(&self, context: &Context) {
        let mut failures = 0;
        loop {
            let ended = self.watch(context, &mut failures).await;
            let pause = pause(failures);
            failures = failures.saturating_add(1);
            let seconds = pause.as_millis().div_ceil(1_000);
            self.set_problem(Some(format!(
                "not live: {ended}; next attempt in {seconds} s"
            )));
            tokio::time::sleep(pause).await;
        }
    }

    /// Watches one daemon. Returns the reason why that has ended.
    async fn watch(&self, context: &Context, failures: &mut u32) -> String {
        let mut client = match context.connect().await {
            Ok(client) => client,
            Err(failure) => return failure.message,
        };
        let mut take = |notice| {
            let Notice::Change(change) = notice else {
                return;
            };
            *failures = 0;
            self.set_problem(None);
            match &change.told {
                // Changes before it are in no event.
                WatchUpdate::Snapshot(_) => {
                    self.mark(Stale::Everything);
                    self.changed.notify_one();
                }
                WatchUpdate::Event(event) if is_about_decision(event) => {
                    self.mark_workspace(&change.workspace_id);
                    self.changed.notify_one();
                }
                WatchUpdate::Event(_) => {}
            }
        };
        let all = WatchWorkspace::default();
        match client.watch(all, RequestTimeout::Endless, &mut take).await {
            Ok(_) => "the daemon ended the watch".to_owned(),
            Err(CallError::Refused(refused) | CallError::Replaced(refused)) => refused.message,
            Err(error) => error.to_string(),
        }
    }
}

/// Pause after this many earlier failures in a row.
fn pause(failures: u32) -> Duration {
    let ms = RECONNECT_MS.saturating_mul(1_u64 << failures.min(16));
    Duration::from_millis(ms.min(PAUSE_MAX_MS))
}

/// True if the event can add an item to the inbox or remove one.
fn is_about_decision(event: &Event) -> bool {
    match event {
        Event::WorkspaceOpened { .. }
        | Event::WorkspaceStopped { .. }
        | Event::ConfigurationChanged { .. }
        | Event::ConfigurationRestored { .. }
        | Event::ConfigurationFellBack { .. }
        | Event::ProcessCrashed { .. }
        | Event::ProcessBroke { .. }
        | Event::ReadinessChanged { .. }
        | Event::InstanceRewound { .. }
        | Event::InstanceDeleted { .. }
        | Event::InstanceImported { .. }
        | Event::EventParked { .. }
        | Event::EventRetried { .. }
        | Event::EventDropped { .. }
        | Event::EventCancelled { .. }
        | Event::CallUnknown { .. }
        | Event::CallClosed { .. }
        | Event::CallSettled { .. }
        | Event::QuestionAsked { .. }
        | Event::QuestionClosed { .. }
        | Event::ApprovalAsked { .. }
        | Event::ApprovalClosed { .. }
        | Event::ProposalCreated { .. }
        | Event::ProposalReviewed { .. }
        | Event::ProposalApplied { .. }
        | Event::ProposalRejected { .. }
        | Event::ProposalReverted { .. }
        | Event::BundleChanged { .. }
        | Event::BudgetWarning { .. }
        | Event::TaskChanged { .. }
        | Event::TaskDecided { .. } => true,
        Event::ProcessStarted { .. }
        | Event::ProcessEnded { .. }
        | Event::ProcessKilled { .. }
        | Event::InstanceCreated { .. }
        | Event::InstanceRestarted { .. }
        | Event::InstanceCheckpointed { .. }
        | Event::EventAccepted { .. }
        | Event::EventRefused { .. }
        | Event::EventPaused { .. }
        | Event::EventResumed { .. }
        | Event::EventMoved { .. }
        | Event::ScheduleChanged { .. }
        | Event::TurnStarted { .. }
        | Event::TurnCommitted { .. }
        | Event::ProposalCommented { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn need_1_attempts_to_watch_back_off() {
        let pauses: Vec<u64> = (0..8)
            .map(|failures| u64::try_from(pause(failures).as_millis()).unwrap())
            .collect();
        assert_eq!(
            pauses,
            [500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000, 15_000]
        );
        assert_eq!(pause(u32::MAX), Duration::from_millis(PAUSE_MAX_MS));
    }

    #[test]
    fn need_1_only_changed_workspaces_are_read_again() {
        let live = LiveChanges::default();
        let (one, two): (WorkspaceId, WorkspaceId) = ("w1".parse().unwrap(), "w2".parse().unwrap());
        assert_eq!(live.take_stale(), Stale::default());
        live.mark_workspace(&two);
        live.mark_workspace(&one);
        live.mark_workspace(&two);
        let both = Stale::Workspaces(BTreeSet::from([one.clone(), two]));
        assert_eq!(live.take_stale(), both);
        assert_eq!(live.take_stale(), Stale::default());
        live.mark(Stale::Everything);
        live.mark_workspace(&one);
        assert_eq!(live.take_stale(), Stale::Everything);
    }

    #[tokio::test]
    async fn need_1_each_change_of_the_watch_is_notified_once() {
        let live = LiveChanges::default();
        live.set_problem(Some("not live: x".to_owned()));
        live.changed.notified().await;
        assert_eq!(live.problem().as_deref(), Some("not live: x"));
        live.set_problem(Some("not live: x".to_owned()));
        let again = tokio::time::timeout(Duration::from_millis(1), live.changed.notified());
        again.await.unwrap_err();
        live.set_problem(None);
        live.changed.notified().await;
        assert_eq!(live.problem(), None);
    }
}
