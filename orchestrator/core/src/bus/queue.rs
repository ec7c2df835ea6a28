//! Messages that wait to be delivered, and their order.

use std::collections::{BTreeSet, VecDeque};

use goondan_protocol::ids::{InstanceRef, WorkspaceId};

use crate::exchange::oauth_calls::{OAuthCall, OAuthCallResult, TokenReport};
use crate::exchange::schedules::SubmittedOccurrence;
use crate::exchange::task_calls::{TaskCall, TaskCallResult};
use crate::exchange::tasks::SandboxStep;
use crate::exchange::{ProposalWork, TaskRef};
use crate::fleet::agent_replies::pending_replies::Requester;
use crate::fleet::conversation_run::{ConversationRun, RunUpdate};

/// A message to another machine.
#[derive(Debug)]
pub(crate) enum Message {
    Notice(Notice),
    /// To tasks: progress of a run's event.
    Run(ConversationRun, RunUpdate),
    /// To schedules: the result of a submitted occurrence.
    Submitted(Box<SubmittedOccurrence>),
    /// To requests: delete the conversation of a removed task.
    DeleteConversation(InstanceRef),
    /// To requests: an operation on the sandbox of a task.
    Sandbox(SandboxStep, Box<ProposalWork>),
    /// To requests: an operation on the proposal of a task, for an agent.
    Proposal(Requester, Box<ProposalWork>),
    /// To calls.
    TaskCall(Box<TaskCall>),
    /// To tasks.
    TaskCallDone(TaskCallResult),
    /// To calls.
    OAuthCall(OAuthCall),
    /// To OAuth.
    OAuthCallDone(OAuthCallResult),
    /// To OAuth, and its ruling to calls.
    Token(Box<TokenReport>),
}

/// A message without content: its receiver reads the current state. One that waits already is not
/// sent again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Notice {
    /// To the starts of agents: a process must start, if there is capacity.
    Start(InstanceRef),
    /// To its workspace: an operation on the bundle of a conversation waits.
    BundleWork(InstanceRef),
    /// To requests: a frozen conversation may have a next step.
    Frozen(InstanceRef),
    /// To tasks: the total of a task must be read from the ledger.
    Reckon(TaskRef),
    /// To tasks: the ledger of a workspace has new entries.
    Charged(WorkspaceId),
    /// To calls: the durable usage of a task has grown.
    Spent(TaskRef),
    /// To calls, and the answer to tasks: a run waits for the decision of its budgets.
    Budget(TaskRef),
    /// To calls, and the answers to tasks: the budgets of a workspace have less room.
    Budgets(WorkspaceId),
    /// To the core: decisions of a workspace that its chats show may have changed.
    Decisions(WorkspaceId),
}

/// Order of delivery. A message is delivered when none of an earlier lane waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Lane {
    Work,
    /// Usage, counted before a budget decides.
    Usage,
    /// Decisions of budgets, which depend on everything else.
    Budget,
}

impl Message {
    fn lane(&self) -> Lane {
        match self {
            Self::Notice(Notice::Spent(_)) => Lane::Usage,
            Self::Notice(Notice::Budget(_) | Notice::Budgets(_)) => Lane::Budget,
            Self::Notice(
                Notice::Start(_)
                | Notice::BundleWork(_)
                | Notice::Frozen(_)
                | Notice::Reckon(_)
                | Notice::Charged(_)
                | Notice::Decisions(_),
            )
            | Self::Run(..)
            | Self::Submitted(_)
            | Self::DeleteConversation(_)
            | Self::Sandbox(..)
            | Self::Proposal(..)
            | Self::TaskCall(_)
            | Self::TaskCallDone(_)
            | Self::OAuthCall(_)
            | Self::OAuthCallDone(_)
            | Self::Token(_) => Lane::Work,
        }
    }
}

/// The messages that wait, by lane.
#[derive(Debug, Default)]
pub(crate) struct MessageQueue {
    work: VecDeque<Message>,
    usage: VecDeque<Message>,
    budget: VecDeque<Message>,
    notices: BTreeSet<Notice>,
}

impl MessageQueue {
    /// Sends a message.
    pub(crate) fn send(&mut self, message: Message) {
        if let Message::Notice(notice) = &message
            && !self.notices.insert(notice.clone())
        {
            return;
        }
        match message.lane() {
            Lane::Work => self.work.push_back(message),
            Lane::Usage => self.usage.push_back(message),
            Lane::Budget => self.budget.push_back(message),
        }
    }

    /// Takes the next message to deliver.
    pub(crate) fn next(&mut self) -> Option<Message> {
        let next = self.work.pop_front();
        let next = next.or_else(|| self.usage.pop_front());
        let next = next.or_else(|| self.budget.pop_front())?;
        if let Message::Notice(notice) = &next {
            self.notices.remove(notice);
        }
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace(name: &str) -> WorkspaceId {
        name.parse().unwrap()
    }

    fn task(name: &str) -> TaskRef {
        TaskRef::new(&workspace("w"), &name.parse().unwrap())
    }

    fn conversation(key: &str) -> InstanceRef {
        InstanceRef {
            workspace_id: workspace("w"),
            instance_key: key.parse().unwrap(),
        }
    }

    fn drain(queue: &mut MessageQueue) -> Vec<String> {
        let next = std::iter::from_fn(|| queue.next());
        next.map(|message| match message {
            Message::Notice(Notice::Frozen(at)) => format!("frozen {}", at.instance_key),
            Message::Notice(Notice::Spent(at)) => format!("spent {}", at.task_id),
            Message::Notice(Notice::Budget(at)) => format!("budget {}", at.task_id),
            Message::DeleteConversation(at) => format!("delete {}", at.instance_key),
            other => format!("{other:?}"),
        })
        .collect()
    }

    #[test]
    fn work_comes_in_order_then_usage_then_budgets() {
        let mut queue = MessageQueue::default();
        queue.send(Message::Notice(Notice::Budget(task("a"))));
        queue.send(Message::Notice(Notice::Spent(task("a"))));
        queue.send(Message::DeleteConversation(conversation("z")));
        queue.send(Message::Notice(Notice::Frozen(conversation("b"))));
        assert_eq!(
            drain(&mut queue),
            ["delete z", "frozen b", "spent a", "budget a"]
        );
    }

    #[test]
    fn a_notice_that_waits_is_not_sent_again() {
        let mut queue = MessageQueue::default();
        let notice = || Message::Notice(Notice::Frozen(conversation("a")));
        queue.send(notice());
        queue.send(Message::DeleteConversation(conversation("a")));
        queue.send(notice());
        queue.send(Message::DeleteConversation(conversation("a")));
        assert_eq!(drain(&mut queue), ["frozen a", "delete a", "delete a"]);
        queue.send(notice());
        assert_eq!(drain(&mut queue), ["frozen a"]);
    }
}
