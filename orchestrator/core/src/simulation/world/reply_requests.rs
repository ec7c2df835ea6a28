//! The connection requests the replies to its events, abandons some requests, and repeats them
//! (`MSG-13`).

use goondan_protocol::ids::EventId;
use goondan_protocol::ipc::ToOrchestrator;
use goondan_protocol::reply::{Reply, ReplyAwait, ReplyForget};

use super::World;
use crate::ProcessId;
use crate::simulation::config::CONNECTION;

impl World {
    /// Abandons a request, repeats one, or requests the reply to a foreign event.
    pub(in crate::simulation) fn change_mind(&mut self) {
        match self.rng.u64(0..12) {
            0 => {
                let listening = self.listening(CONNECTION);
                if let Some(process) = self.rng.choice(&listening).copied() {
                    self.give_up(process);
                }
            }
            1 | 2 => {
                let told = self.replies.answered_events();
                if let Some((event_id, key)) = self.rng.choice(&told).cloned() {
                    self.replies.want(event_id, key);
                }
            }
            3 => {
                let known: Vec<_> = self.oracle.unanswered().collect();
                if let Some((event_id, key)) = self.rng.choice(&known).cloned() {
                    self.replies.want(event_id, key);
                }
            }
            _ => {}
        }
    }

    fn give_up(&mut self, process: ProcessId) {
        let Some(child) = self.children.get_mut(&process) else {
            return;
        };
        if let Some((request, event_id)) = child.replies.give_up() {
            self.replies.lose(&event_id);
            let request_ids = vec![request];
            let forget = ToOrchestrator::ReplyForget(ReplyForget { request_ids });
            self.say(process, forget, None);
        }
    }

    /// Requests all wanted replies, if the connection listens.
    pub(in crate::simulation) fn await_replies(&mut self) {
        let listening = self.listening(CONNECTION);
        for process in &listening {
            let ended_ms = |event_id: &EventId| self.oracle.ended_ms(event_id);
            self.children[process]
                .replies
                .assert_told(self.mono_ms, ended_ms);
        }
        for (event_id, instance_key) in self.replies.due() {
            let Some(process) = self.rng.choice(&listening).copied() else {
                return;
            };
            let Some(child) = self.children.get_mut(&process) else {
                return;
            };
            child.next_request += 1;
            let request = child.next_request;
            child.replies.make(request, event_id.clone(), self.mono_ms);
            self.replies.ask(event_id.clone());
            let asked = ReplyAwait {
                instance_key,
                event_id,
            };
            self.say(process, ToOrchestrator::ReplyAwait(asked), Some(request));
        }
    }

    /// Delivers a reply to the connection.
    pub(super) fn hear_reply(&mut self, process: ProcessId, request: u64, reply: &Reply) {
        let child = self.children.get_mut(&process);
        let Some(event_id) = child.and_then(|child| child.replies.answer(request)) else {
            return;
        };
        let is_excused = self.oracle.is_excused(&event_id);
        self.replies.hear(&event_id, reply, is_excused);
    }
}
