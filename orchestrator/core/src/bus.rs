//! Delivery of messages between the machines.
//!
//! A machine that needs something from one that it does not call sends a [`Message`]. After each
//! input, this module delivers all messages, including those that they cause:
//!
//! 1. In the order in which they were sent, but
//! 2. usage of tasks when no other message waits, and decisions of budgets after that, so that a
//!    budget decides with everything counted.
//! 3. When no message waits, questions whose call has ended are withdrawn, and chats are notified.
//!    Then workspaces and the daemon end if nothing is left to wait for. That sends no message.

use crate::Core;
use crate::exchange::task_budgets::TaskSpending;
use crate::fleet::conversation::DeleteReply;
use crate::requests::proposals::ProposalRequester;

pub(crate) mod context;
pub(crate) mod queue;

use queue::{Message, Notice};

impl Core {
    /// Delivers messages until none waits, then ends workspaces and the daemon if nothing is left
    /// to wait for.
    pub(crate) fn settle(&mut self) {
        self.deliver_all();
        self.calls.withdraw_questions(&mut self.fleet);
        // Chats show the withdrawn questions as closed.
        self.deliver_all();
        self.finish_what_is_ending();
        debug_assert!(
            self.fleet.cx().next_message().is_none(),
            "a message would wait for the next input"
        );
    }

    fn deliver_all(&mut self) {
        while let Some(message) = self.fleet.cx().next_message() {
            self.deliver(message);
        }
    }

    fn deliver(&mut self, message: Message) {
        let fleet = &mut self.fleet;
        match message {
            Message::Notice(notice) => self.deliver_notice(&notice),
            Message::Run(of, update) => self.tasks.on_run_news(fleet, &of, update),
            Message::Submitted(submitted) => self.schedules.on_submitted(fleet, *submitted),
            Message::DeleteConversation(at) => {
                self.delete_instance(&at, None, DeleteReply::Policy);
            }
            Message::Sandbox(step, work) => {
                self.use_proposals(ProposalRequester::Task(step), *work);
            }
            Message::Proposal(requester, work) => {
                self.use_proposals(ProposalRequester::Agent(requester), *work);
            }
            Message::TaskCall(call) => {
                // The task may have been removed since the message was sent.
                if self.tasks.is_known(call.of.at()) {
                    self.calls.on_task_call(fleet, *call);
                }
            }
            Message::TaskCallDone(done) => self.tasks.on_called(fleet, done),
            Message::OAuthCall(call) => self.calls.on_oauth_call(fleet, call),
            Message::OAuthCallDone(done) => self.oauth.on_called(fleet, done),
            Message::Token(report) => {
                let ruling = self.oauth.on_verdict(fleet, &report);
                self.calls.on_ruling(fleet, &report, ruling);
            }
        }
    }

    fn deliver_notice(&mut self, notice: &Notice) {
        let fleet = &mut self.fleet;
        match notice {
            Notice::Start(at) => fleet.starts().start_agent(at),
            Notice::BundleWork(at) => match fleet.workspace_and_cx(&at.workspace_id) {
                Some((workspace, cx)) => workspace.begin_bundle_work(cx, at),
                None => fleet.cx().drop_bundle_work(at),
            },
            Notice::Frozen(at) => self.go_on_with_hold(at),
            Notice::Decisions(id) => self.show_decisions(id),
            Notice::Reckon(at) => {
                if let Some(task) = self.tasks.ledger_task_of(at) {
                    let taken = self.calls.taken_by(&at.workspace_id, &task);
                    self.tasks.on_reckoned(fleet, at, taken);
                }
            }
            Notice::Charged(id) => {
                for at in self.tasks.conversing_in(id) {
                    fleet.post(Message::Notice(Notice::Reckon(at)));
                }
                fleet.post(Message::Notice(Notice::Budgets(id.clone())));
            }
            Notice::Spent(at) => {
                if let Some(spending) = self.tasks.charged_spending_of(at) {
                    self.calls.on_task_spending(fleet, &spending);
                }
            }
            Notice::Budget(at) => {
                let spending = self.tasks.spending_of(at);
                self.hold_to_budgets(spending);
            }
            Notice::Budgets(id) => {
                let bound = self.tasks.bound_by_budgets(id);
                self.hold_to_budgets(bound);
            }
        }
    }

    /// Lets budgets decide about the runs of tasks.
    pub(crate) fn hold_to_budgets(&mut self, bound: impl IntoIterator<Item = TaskSpending>) {
        for task in bound {
            let shortage = self.calls.shortage_of(&self.fleet, &task);
            self.tasks.on_budgets(&mut self.fleet, &task.at, shortage);
        }
    }
}
