//! Jobs handed to the store, and what each of them is for.

use std::collections::BTreeMap;

use goondan_protocol::agents::AgentAnswer;
use goondan_protocol::call::CallId;
use goondan_protocol::control::Sent;
use goondan_protocol::event::{AgentEvent, TurnOutcome};
#[cfg(test)]
use goondan_protocol::ids::InstanceKey;
use goondan_protocol::ids::{AgentName, EventId, InstanceRef, TurnId, WorkspaceId};
use goondan_store::ledger::Entry;
use goondan_store::writer::{Completion, Job, Op};

use super::agents::TurnContext;
use super::answers::{Asker, How};
use super::former_keys::Arrival;
use super::parking::Decision;
use super::{Core, Effect, LogEvent, ProcessId, RequestToken};

/// Who is told that an event is durable.
#[derive(Debug)]
pub(super) enum AcceptReply {
    /// A connector.
    Connector {
        process: ProcessId,
        request_id: Option<u64>,
        /// The event's id in the connector's own words.
        said: EventId,
    },
    /// An agent that asked. `reply` is what is to bring the answer, if it comes as an event.
    Agent {
        asker: Asker,
        how: How,
        question: EventId,
        reply: Box<AgentEvent>,
    },
    /// Nobody: the event is the answer to a question of its instance.
    Answer,
    /// A client; with `wait`, only when the turn is over.
    Client {
        token: RequestToken,
        sent: Sent,
        wait: bool,
    },
}

/// What a job is for.
#[derive(Debug)]
pub(super) enum Purpose {
    Accept {
        instance: InstanceRef,
        event: Box<AgentEvent>,
        reply: AcceptReply,
    },
    /// Whose the conversation was that had the event's key before.
    FindOwner {
        instance: InstanceRef,
        arrival: Box<Arrival>,
    },
    Open {
        instance: InstanceRef,
    },
    Begin {
        instance: InstanceRef,
        process: ProcessId,
        context: TurnContext,
    },
    Append {
        instance: InstanceRef,
        process: ProcessId,
    },
    CountReply {
        instance: InstanceRef,
        turn_id: TurnId,
        call_id: CallId,
    },
    /// What a call took that failed all the same.
    CountFailure {
        instance: InstanceRef,
        entry: Box<Entry>,
    },
    RecordReply {
        instance: InstanceRef,
        turn_id: TurnId,
        call_id: CallId,
    },
    Complete {
        instance: InstanceRef,
        process: ProcessId,
        turn_id: TurnId,
        event_id: EventId,
        /// Events it took in on the way.
        also: Vec<EventId>,
        outcome: TurnOutcome,
    },
    AwaitThenAsk {
        instance: InstanceRef,
        asker: Asker,
        target: InstanceRef,
        agent: AgentName,
        event: Box<AgentEvent>,
        reply: Box<AgentEvent>,
        how: How,
    },
    AwaitThenTell {
        instance: InstanceRef,
        asker: Asker,
        target: InstanceRef,
        question: EventId,
        reply: Box<AgentEvent>,
        note: String,
    },
    ForgoThenTell {
        instance: InstanceRef,
        asker: Asker,
        question: EventId,
        answer: Box<AgentAnswer>,
    },
    LookUpQuestion {
        instance: InstanceRef,
        question: EventId,
        target: InstanceRef,
        turn_is_open: bool,
    },
    Observe {
        instance: InstanceRef,
    },
    LogLlm {
        instance: InstanceRef,
    },
    NoteAttempt {
        instance: InstanceRef,
    },
    Park {
        instance: InstanceRef,
        event_id: EventId,
        reason: String,
    },
    Decide {
        instance: InstanceRef,
        token: RequestToken,
        event_id: EventId,
        decision: Decision,
    },
    InspectEvents {
        instance: InstanceRef,
        token: RequestToken,
    },
    Verify {
        instance: InstanceRef,
        token: RequestToken,
        is_repair: bool,
    },
    /// The files of a workspace, or of none.
    VerifyOwnFiles {
        token: RequestToken,
        /// Whose losses a person acknowledges.
        repaired: Option<WorkspaceId>,
    },
    Export {
        instance: InstanceRef,
        token: RequestToken,
    },
    Import {
        instance: InstanceRef,
        agent: AgentName,
        token: RequestToken,
    },
    PageForAgent {
        instance: InstanceRef,
        process: ProcessId,
        request_id: Option<u64>,
    },
    PageForClient {
        instance: InstanceRef,
        token: RequestToken,
    },
    LookUp {
        instance: InstanceRef,
        event_id: EventId,
    },
    Inspect {
        instance: InstanceRef,
        token: RequestToken,
    },
    Close {
        instance: InstanceRef,
    },
    Delete {
        instance: InstanceRef,
    },
    Audit,
}

impl Purpose {
    /// The instance the job is about.
    pub(super) fn instance(&self) -> Option<&InstanceRef> {
        match self {
            Self::Accept { instance, .. }
            | Self::FindOwner { instance, .. }
            | Self::Open { instance }
            | Self::Begin { instance, .. }
            | Self::Append { instance, .. }
            | Self::CountReply { instance, .. }
            | Self::CountFailure { instance, .. }
            | Self::RecordReply { instance, .. }
            | Self::Complete { instance, .. }
            | Self::AwaitThenAsk { instance, .. }
            | Self::AwaitThenTell { instance, .. }
            | Self::ForgoThenTell { instance, .. }
            | Self::LookUpQuestion { instance, .. }
            | Self::Observe { instance }
            | Self::LogLlm { instance }
            | Self::NoteAttempt { instance }
            | Self::Park { instance, .. }
            | Self::Decide { instance, .. }
            | Self::InspectEvents { instance, .. }
            | Self::Verify { instance, .. }
            | Self::Export { instance, .. }
            | Self::Import { instance, .. }
            | Self::PageForAgent { instance, .. }
            | Self::PageForClient { instance, .. }
            | Self::LookUp { instance, .. }
            | Self::Inspect { instance, .. }
            | Self::Close { instance }
            | Self::Delete { instance } => Some(instance),
            Self::VerifyOwnFiles { .. } | Self::Audit => None,
        }
    }
}

/// The jobs that are not reported yet.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    next_token: u64,
    open: BTreeMap<u64, Purpose>,
}

impl Jobs {
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(super) fn any(&self, mut test: impl FnMut(&InstanceRef) -> bool) -> bool {
        self.open
            .values()
            .filter_map(Purpose::instance)
            .any(&mut test)
    }

    /// Whether the store is asked what became of an event.
    #[cfg(test)]
    pub(super) fn is_looking_up(&self, key: &InstanceKey, event_id: &EventId) -> bool {
        self.open.values().any(|purpose| match purpose {
            Purpose::LookUp {
                instance,
                event_id: looked_up,
            } => instance.instance_key == *key && looked_up == event_id,
            _ => false,
        })
    }

    fn add(&mut self, purpose: Purpose) -> u64 {
        self.next_token += 1;
        self.open.insert(self.next_token, purpose);
        self.next_token
    }
}

impl Core {
    pub(super) fn store(&mut self, op: Op, purpose: Purpose) {
        let token = self.jobs.add(purpose);
        self.push(Effect::Store(Job { token, op }));
    }

    pub(super) fn on_stored(&mut self, completion: Completion) {
        // Long: one arm for each kind of job.
        let Some(purpose) = self.jobs.open.remove(&completion.token) else {
            self.log(LogEvent::error("the store reported a job twice"));
            return;
        };
        let result = completion.result;
        match purpose {
            Purpose::Accept {
                instance,
                event,
                reply,
            } => {
                self.on_accepted(&instance, *event, reply, result);
            }
            Purpose::FindOwner { instance, arrival } => {
                self.on_owner_found(&instance, *arrival, result);
            }
            Purpose::Open { instance } => self.on_opened(&instance, result),
            Purpose::Begin {
                instance,
                process,
                context,
            } => {
                self.on_began(&instance, process, context, result);
            }
            Purpose::Append { instance, process } => self.on_appended(&instance, process, result),
            Purpose::CountReply {
                instance,
                turn_id,
                call_id,
            } => self.on_reply_counted(&instance, &turn_id, call_id, result),
            Purpose::CountFailure { instance, entry } => {
                self.on_failure_counted(&instance, *entry, result);
            }
            Purpose::RecordReply {
                instance,
                turn_id,
                call_id,
            } => self.on_reply_recorded(&instance, &turn_id, call_id, result),
            Purpose::Complete {
                instance,
                process,
                turn_id,
                event_id,
                also,
                outcome,
            } => {
                let events = (&event_id, also.as_slice());
                self.on_committed(&instance, process, &turn_id, events, &outcome, result);
            }
            Purpose::AwaitThenAsk {
                instance: _,
                asker,
                target,
                agent,
                event,
                reply,
                how,
            } => {
                let asking = (asker, how, reply);
                self.on_awaiting_then_ask(target, &agent, *event, asking, result);
            }
            Purpose::AwaitThenTell {
                instance: _,
                asker,
                target,
                question,
                reply,
                note,
            } => {
                let asked = (&target, &question);
                self.on_awaiting_then_tell(&asker, asked, &reply, note, result);
            }
            Purpose::ForgoThenTell {
                instance: _,
                asker,
                question,
                answer,
            } => self.on_forgone(&asker, &question, *answer, result),
            Purpose::LookUpQuestion {
                instance,
                question,
                target,
                turn_is_open,
            } => self.on_question_looked_up(&instance, &question, &target, turn_is_open, result),
            Purpose::PageForAgent {
                instance,
                process,
                request_id,
            } => {
                self.on_page_for_agent(&instance, process, request_id, result);
            }
            Purpose::PageForClient { instance, token } => {
                self.on_page_for_client(&instance, token, result);
            }
            Purpose::LookUp { instance, event_id } => {
                self.on_looked_up(&instance, &event_id, result);
            }
            Purpose::Inspect { instance, token } => self.on_inspected(&instance, token, result),
            Purpose::Delete { instance } => self.on_deleted(&instance, result),
            Purpose::Park {
                instance,
                event_id,
                reason,
            } => self.on_parked(&instance, &event_id, &reason, result),
            Purpose::Decide {
                instance,
                token,
                event_id,
                decision,
            } => self.on_decided(&instance, token, &event_id, decision, result),
            Purpose::Verify {
                instance,
                token,
                is_repair,
            } => self.on_verified(&instance, token, is_repair, result),
            Purpose::VerifyOwnFiles { token, repaired } => {
                self.on_own_files_verified(token, repaired, result);
            }
            Purpose::Export { instance, token } => self.on_exported(&instance, token, result),
            Purpose::Import {
                instance,
                agent,
                token,
            } => self.on_imported(&instance, &agent, token, result),
            Purpose::InspectEvents { instance, token } => {
                self.on_events_inspected(&instance, token, result);
            }
            Purpose::Observe { instance }
            | Purpose::LogLlm { instance }
            | Purpose::NoteAttempt { instance }
            | Purpose::Close { instance } => {
                if let Err(error) = result {
                    let event = LogEvent::warn("the store could not write").of(&instance);
                    self.log(event.with("error", goondan_log::error_chain(&error)));
                }
            }
            Purpose::Audit => {
                if let Err(error) = result {
                    let event = LogEvent::error("the audit log could not be written");
                    self.log(event.with("error", goondan_log::error_chain(&error)));
                }
            }
        }
    }
}
