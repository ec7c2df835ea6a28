//! Kinds of requests, by how long they can take: whoever serves them keeps those that wait out of the way of those that
//! end a wait.

use super::Call;

/// Kind of a request, by how long it can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallKind {
    /// It waits for something outside of the daemon: a turn, a person, an authorization server, another node, or
    /// whatever happens next.
    Waits,
    /// It decides something, shows what waits for a decision, or administers the daemon: what ends a wait. Always
    /// answered soon.
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
            | Call::ListProcesses(_)
            | Call::ListNodes(_)
            | Call::DrainNode(_)
            | Call::LeaveNodes(_)
            // `gdn` looks the workspace up before it decides anything.
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
            | Call::ListUnknownCalls(_)
            | Call::SettleCall(_)
            | Call::ListTasks(_)
            | Call::ShowTask(_)
            | Call::PauseTask(_)
            | Call::CancelTask(_)
            | Call::ProvideTask(_)
            | Call::AnswerTask(_)
            | Call::ApproveTask(_)
            | Call::ReworkTask(_) => Self::Decides,
            _ => Self::Other,
        }
    }
}
