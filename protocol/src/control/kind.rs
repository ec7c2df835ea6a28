//! Kinds of requests, by their duration, because requests that wait must not block the requests
//! that end the wait.

use super::Call;

/// Kind of a request, by how long it can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallKind {
    /// Waits for something outside of the daemon: a turn, a person, an authorization server,
    /// another node, or the next event.
    Waits,
    /// Makes a decision, shows pending decisions, or administers the daemon. Such a request can end
    /// a wait, and is always answered quickly.
    Decides,
    /// Everything else.
    Other,
}

impl From<&Call> for CallKind {
    fn from(call: &Call) -> Self {
        match call {
            Call::SendEvent(send) if send.wait => Self::Waits,
            Call::FollowLogs(follow) if follow.follow => Self::Waits,
            Call::WatchWorkspace(_)
            | Call::WatchProcesses(_)
            | Call::FollowTurns(_)
            | Call::Restart(_)
            | Call::Reload(_)
            | Call::MoveWorkspace(_)
            | Call::CheckpointInstance(_)
            | Call::RewindInstance(_)
            | Call::DeleteInstance(_)
            | Call::RehearseBundle(_)
            | Call::BeginLogin(_)
            | Call::FinishLogin(_)
            | Call::RefreshGrant(_)
            | Call::RevokeGrant(_) => Self::Waits,
            Call::Connect(_)
            | Call::Status(_)
            | Call::Stop(_)
            | Call::ReleaseWrites(_)
            | Call::ResumeDaemon(_)
            | Call::ListProcesses(_)
            | Call::ListNodes(_)
            | Call::DrainNode(_)
            | Call::LeaveNodes(_)
            // `gdn` requests the list before it makes a decision.
            | Call::ListWorkspaces(_)
            | Call::CloseWorkspace(_)
            | Call::ListEvents(_)
            | Call::CancelEvent(_)
            | Call::DropEvent(_)
            | Call::PauseEvent(_)
            | Call::ResumeEvent(_)
            | Call::MoveEvent(_)
            | Call::ListQuestions(_)
            | Call::ShowQuestion(_)
            | Call::AnswerQuestion(_)
            | Call::DeclineQuestion(_)
            | Call::ListApprovals(_)
            | Call::ShowApproval(_)
            | Call::DecideApproval(_)
            | Call::ListStandingApprovals(_)
            | Call::RevokeStandingApproval(_)
            | Call::ListUnknownCalls(_)
            | Call::SettleCall(_)
            | Call::ListSchedules(_)
            | Call::MoveSchedule(_)
            | Call::RemoveSchedule(_)
            | Call::ListTasks(_)
            | Call::ShowTask(_)
            | Call::PauseTask(_)
            | Call::CancelTask(_)
            | Call::ProvideTask(_)
            | Call::AnswerTask(_)
            | Call::ApproveTask(_)
            | Call::ReworkTask(_)
            | Call::SendTask(_)
            | Call::ListQueue(_)
            | Call::ChangeQueue(_) => Self::Decides,
            _ => Self::Other,
        }
    }
}
