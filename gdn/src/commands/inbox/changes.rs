//! Changes of the inbox while it is open, in any workspace.

use goondan_protocol::control::{WatchUpdate, WatchWorkspace};
use goondan_protocol::lifecycle::LifecycleEvent as Event;
use tokio::sync::Notify;

use crate::client::{Notice, RequestTimeout};
use crate::commands::follow;
use crate::context::Context;

/// Notifies of changes, across restarts of the daemon, until the future is dropped.
pub(super) async fn follow(changed: &Notify, context: &Context) {
    loop {
        if let Ok(mut client) = context.connect().await {
            let mut take = |notice| {
                if let Notice::Change(change) = notice
                    && let WatchUpdate::Event(event) = &change.told
                    && is_about_decision(event)
                {
                    changed.notify_one();
                }
            };
            let all = WatchWorkspace::default();
            // The connection ends with the daemon.
            drop(client.watch(all, RequestTimeout::Endless, &mut take).await);
        }
        follow::rest().await;
        // A daemon that was restarted may have decided something.
        changed.notify_one();
    }
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
