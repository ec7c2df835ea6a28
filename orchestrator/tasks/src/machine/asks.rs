//! Asks to people and their answers: each is accepted once, by its id (`PROTO-2`, `PROTO-3`).

use goondan_cli_agents::blocks::{DependencyRequest, UserQuestion};
use goondan_cli_agents::reply::PermissionDecision;
use goondan_protocol::time::Timestamp;

use super::{InputRefusal, Task, TaskEffect, check_text, open_ask, plus, refusal_of};
use crate::fact::{InputOutcome, Origin, Provision, TaskEvent};
use crate::limits::{ASKS_MAX, OPEN_ASKS_MAX, OPTIONAL_WAIT_MS};
use crate::state::{GIVE_UP, PersonInputKind};

impl Task {
    /// Next id, or the reason why nothing more can be asked. goondan's own questions are not
    /// limited, because the task could not continue without them.
    fn next_ask(&self, kind: char, is_own: bool) -> Result<String, &'static str> {
        if is_own {
            return Ok(self.next_id(kind));
        }
        if self.state.asks.len() >= ASKS_MAX {
            return Err("the task has reached its limit of requests");
        }
        if self.state.open_asks().count() >= OPEN_ASKS_MAX {
            return Err("too many requests are already waiting for an answer");
        }
        Ok(self.next_id(kind))
    }

    fn next_id(&self, kind: char) -> String {
        format!("{kind}-{:04}", self.state.asks.len() + 1)
    }

    pub(super) fn ask(
        &mut self,
        origin: Origin,
        question: UserQuestion,
        wait_ms: Option<i64>,
        now: Timestamp,
    ) -> bool {
        match self.next_ask('q', origin == Origin::Supervisor) {
            Ok(id) => {
                let until = wait_ms.map(|wait| plus(now, wait));
                self.record(
                    now,
                    TaskEvent::QuestionAsked {
                        id,
                        origin,
                        question,
                        until,
                    },
                );
                true
            }
            Err(problem) => {
                self.refuse("USER_QUESTION", problem.to_owned(), now);
                false
            }
        }
    }

    /// Adds a question of the agent, unless the same one is already open. An agent that asks by a
    /// tool and by a block may word only the question the same.
    pub(super) fn question_asked(&mut self, question: UserQuestion, now: Timestamp) {
        let is_open = self.state.open_asks().any(|(_, ask)| match &ask.what {
            PersonInputKind::Question(Origin::Agent, asked, None) => {
                asked.question == question.question
            }
            _ => false,
        });
        let wait = (!question.required).then_some(OPTIONAL_WAIT_MS);
        if !is_open && self.ask(Origin::Agent, question, wait, now) {
            self.effect(TaskEffect::MakeCheckpoint {
                kind: "user_question",
            });
            self.let_exit(now);
        }
    }

    /// Adds a dependency of the agent, unless the same one is already open.
    pub(super) fn dependency_requested(&mut self, request: DependencyRequest, now: Timestamp) {
        let is_open = self.state.open_asks().any(|(_, ask)| {
            matches!(&ask.what, PersonInputKind::Dependency(asked, None) if asked.name == request.name)
        });
        if is_open {
            return;
        }
        match self.next_ask('d', false) {
            Ok(id) => {
                let until = (!request.required).then(|| plus(now, OPTIONAL_WAIT_MS));
                self.record(now, TaskEvent::DependencyRequested { id, request, until });
                self.effect(TaskEffect::MakeCheckpoint {
                    kind: "dependency_request",
                });
                self.let_exit(now);
            }
            Err(problem) => self.refuse("DEPENDENCY_REQUEST", problem.to_owned(), now),
        }
    }

    /// Asks again for secrets that were provided, by their variable names, because their values can
    /// no longer be read.
    pub(super) fn ask_again(&mut self, names: &[String], now: Timestamp) {
        let asked = |name: &String| {
            let asks = self.state.asks.values().rev();
            asks.filter_map(|ask| match &ask.what {
                PersonInputKind::Dependency(request, Some(Provision::Secret(_))) => Some(request),
                _ => None,
            })
            .find(|request| request.name == *name)
            .cloned()
        };
        let requests: Vec<DependencyRequest> = names.iter().filter_map(asked).collect();
        for request in requests {
            let id = self.next_id('d');
            let request = DependencyRequest {
                required: true,
                ..request
            };
            let until = None;
            self.record(now, TaskEvent::DependencyRequested { id, request, until });
        }
    }

    pub(super) fn refuse(&mut self, protocol: &str, problem: String, now: Timestamp) {
        let protocol = protocol.to_owned();
        self.record(now, TaskEvent::ProtocolRefused { protocol, problem });
    }

    pub(super) fn provide(
        &mut self,
        id: &str,
        provision: Provision,
        now: Timestamp,
    ) -> Result<(), InputRefusal> {
        self.live()?;
        let PersonInputKind::Dependency(request, _) = open_ask(&self.state, id)? else {
            return Err(InputRefusal::WrongKind(id.to_owned()));
        };
        match &provision {
            // Environment variables may be secret, so their values are never written to the
            // history.
            Provision::Ready(_) if request.kind.is_environment() => {
                return Err(InputRefusal::WrongKind(id.to_owned()));
            }
            Provision::Ready(text) | Provision::Secret(text) => check_text(text)?,
            Provision::TimedOut(_) => return Err(InputRefusal::WrongKind(id.to_owned())),
        }
        let id = id.to_owned();
        self.record(now, TaskEvent::DependencyProvided { id, provision });
        Ok(())
    }

    pub(super) fn answer(
        &mut self,
        id: &str,
        text: &str,
        now: Timestamp,
    ) -> Result<(), InputRefusal> {
        self.live()?;
        let PersonInputKind::Question(origin, question, _) = open_ask(&self.state, id)? else {
            return Err(InputRefusal::WrongKind(id.to_owned()));
        };
        check_text(text)?;
        let text = text.trim().to_owned();
        let is_free = match origin {
            Origin::Permission { request, .. } => {
                refusal_of(&text).is_some() || self.watch.program_asks.contains_key(request)
            }
            Origin::Agent | Origin::Supervisor => false,
        };
        if !is_free && !question.options.is_empty() && !question.options.contains(&text) {
            return Err(InputRefusal::NoOption {
                answer: text,
                options: question.options.join(", "),
            });
        }
        let origin = origin.clone();
        let answer = InputOutcome::Person(text.clone());
        self.record(
            now,
            TaskEvent::QuestionAnswered {
                id: id.to_owned(),
                answer,
            },
        );
        match origin {
            Origin::Agent => {}
            Origin::Permission { .. } => self.program_answered(origin, &text, now),
            Origin::Supervisor if text == GIVE_UP => {
                let reason = "abandoned by a person".to_owned();
                self.record(now, TaskEvent::TaskFailed { reason });
            }
            Origin::Supervisor => {}
        }
        Ok(())
    }

    pub(super) fn answer_permission(
        &mut self,
        run: u64,
        request: String,
        decision: PermissionDecision,
        now: Timestamp,
    ) {
        if self.is_current(run) {
            self.watch.active_at = Some(now);
            self.effect(TaskEffect::AnswerPermission {
                run,
                request,
                decision,
            });
        }
    }

    pub(super) fn waits_for_permission(&self, run: u64) -> bool {
        self.state.open_asks().any(|(_, ask)| {
            matches!(&ask.what, PersonInputKind::Question(Origin::Permission { run: of, .. }, ..) if *of == run)
        })
    }

    /// Withdraws a request for a permission, by its id.
    pub(super) fn withdraw_permission(&mut self, of: u64, id: Option<&str>, now: Timestamp) {
        let open = self.state.open_asks().filter(|(_, ask)| match &ask.what {
            PersonInputKind::Question(Origin::Permission { run, request, .. }, ..) => {
                *run == of && id.is_none_or(|id| id == request)
            }
            _ => false,
        });
        let ids: Vec<String> = open.map(|(id, _)| id.to_owned()).collect();
        for id in ids {
            let answer = InputOutcome::Withdrawn;
            self.record(now, TaskEvent::QuestionAnswered { id, answer });
        }
    }

    /// Withdraws goondan's own questions, because a person's action has answered them.
    pub(super) fn withdraw_own_questions(&mut self, now: Timestamp) {
        let open = self.state.open_asks();
        let own = open.filter(|(_, ask)| {
            matches!(&ask.what, PersonInputKind::Question(Origin::Supervisor, ..))
        });
        let ids: Vec<String> = own.map(|(id, _)| id.to_owned()).collect();
        for id in ids {
            let answer = InputOutcome::Withdrawn;
            self.record(now, TaskEvent::QuestionAnswered { id, answer });
        }
    }

    /// Withdraws the permissions of a run that is over.
    pub(super) fn withdraw_permissions(&mut self, run: u64, now: Timestamp) {
        self.withdraw_permission(run, None, now);
    }

    /// Applies defaults to asks that were not answered in time.
    pub(super) fn close_late_asks(&mut self, now: Timestamp) {
        if self.state.ended.is_some() {
            return;
        }
        let late = self.state.open_asks();
        let late = late.filter(|(_, ask)| ask.until.is_some_and(|until| now >= until));
        let late: Vec<(String, PersonInputKind)> = late
            .map(|(id, ask)| (id.to_owned(), ask.what.clone()))
            .collect();
        for (id, what) in late {
            match what {
                PersonInputKind::Dependency(request, _) => {
                    let provision = Provision::TimedOut(request.default);
                    self.record(now, TaskEvent::DependencyProvided { id, provision });
                }
                PersonInputKind::Question(origin, question, _) => {
                    let answer = InputOutcome::TimedOut(question.default);
                    self.record(now, TaskEvent::QuestionAnswered { id, answer });
                    if let Origin::Permission { run, request, .. } = origin {
                        let why = "not answered in time".to_owned();
                        self.answer_permission(run, request, PermissionDecision::Refuse(why), now);
                    }
                }
            }
        }
    }
}
