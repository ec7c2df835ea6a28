//! Notifications to people by connections, and their outcomes. No task waits for them.

use goondan_protocol::control::{TaskAsk, TaskAskKind};
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::task::{Notice, Notify, NotifyOn};
use goondan_protocol::time::Timestamp;

use super::{Task, TaskEffect};
use crate::fact::{Notification, PauseReason, TaskEvent};
use crate::limits::{NOTICE_CHARS_MAX, NOTIFICATIONS_OPEN_MAX};
use crate::state::{NotificationStage, State};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotificationTrigger {
    on: NotifyOn,
    need: String,
    command: String,
}

impl NotificationTrigger {
    /// Returns the occasion for a notification that a fact is, if any; `state` includes the fact.
    #[must_use]
    pub fn of(state: &State, fact: &TaskEvent, workspace: &WorkspaceId) -> Option<Self> {
        let task = &state.task.task_id;
        let typed = |command: String| format!("gdn {command} --workspace {workspace}");
        let (on, need, command) = match fact {
            TaskEvent::QuestionAsked { id, .. } | TaskEvent::DependencyRequested { id, .. } => {
                let ask = state.ask(id)?;
                (occasion_of(&ask), need_of(&ask), ask.command(task, true))
            }
            TaskEvent::ReviewRequested { phase } => {
                let of = state.task.total_phases;
                let mut need = format!("Phase {phase} of {of} is complete and waits for a review.");
                need.push_str(&state.proposal_in_words());
                let command = format!("task approve {task} --phase {phase}");
                (NotifyOn::Review, need, command)
            }
            TaskEvent::TaskPaused { reason, .. } if *reason == PauseReason::Budget => {
                let percent = state.tokens.percent_of(&state.task.budget);
                let need = format!(
                    "{percent} % of the budget are used, and the next run might exceed it. Raise \
                     the budget, then resume the task."
                );
                (NotifyOn::Budget, need, format!("task show {task}"))
            }
            TaskEvent::TaskPaused { why: Some(why), .. } => {
                let need = format!("{why}. It resumes automatically when the budget allows it.");
                (NotifyOn::Budget, need, format!("task show {task}"))
            }
            TaskEvent::TaskPaused { reason, .. } if *reason == PauseReason::Quota => {
                let need =
                    "The work area exceeds its disk limit. Remove files, then resume the task.";
                let command = format!("task show {task}");
                (NotifyOn::Budget, need.to_owned(), command)
            }
            TaskEvent::TaskCompleted {} => {
                let need = "The task is completed.".to_owned();
                (NotifyOn::Completed, need, format!("task show {task}"))
            }
            TaskEvent::TaskFailed { reason } => {
                let need = format!("The task failed: {reason}");
                (NotifyOn::Failed, need, format!("task show {task}"))
            }
            TaskEvent::TaskCancelled {} => {
                let need = "The task was canceled.".to_owned();
                (NotifyOn::Cancelled, need, format!("task show {task}"))
            }
            _ => return None,
        };
        Some(Self {
            on,
            need: shortened(need),
            command: typed(command),
        })
    }

    /// Returns the text for an entry of the agent's `notify`, if the entry covers this occasion.
    #[must_use]
    pub fn told_by(
        &self,
        notify: &Notify,
        state: &State,
        workspace_id: &WorkspaceId,
    ) -> Option<Notification> {
        let notice = Notice {
            workspace_id,
            task_id: &state.task.task_id,
            title: &state.task.title,
            on: self.on,
            need: &self.need,
            command: &self.command,
        };
        notify.on.contains(&self.on).then(|| Notification {
            on: self.on,
            connection: notify.connection.clone(),
            service: notify.service.clone(),
            action: notify.action.clone(),
            args: notice.fill(&notify.args),
        })
    }
}

fn occasion_of(ask: &TaskAsk) -> NotifyOn {
    match ask.kind {
        TaskAskKind::Question => NotifyOn::Question,
        TaskAskKind::Permission => NotifyOn::Permission,
        TaskAskKind::Secret | TaskAskKind::Dependency => NotifyOn::Dependency,
    }
}

/// Describes the ask and its possible answers.
fn need_of(ask: &TaskAsk) -> String {
    let mut need = ask.text.clone();
    if !ask.description.is_empty() {
        need.push_str(": ");
        need.push_str(&ask.description);
    }
    for option in &ask.options {
        need.push_str("\n- ");
        need.push_str(option);
    }
    need
}

fn shortened(text: String) -> String {
    match text.char_indices().nth(NOTICE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

impl Task {
    pub(super) fn notify(&mut self, notifications: Vec<Notification>, now: Timestamp) {
        for notification in notifications {
            let id = self.state.next_notification();
            let open = self.state.open_notifications().count();
            let requested = TaskEvent::NotificationRequested {
                id: id.clone(),
                notification,
            };
            self.record(now, requested);
            if open >= NOTIFICATIONS_OPEN_MAX {
                let why =
                    format!("{NOTIFICATIONS_OPEN_MAX} other notifications are already being sent");
                self.record(now, TaskEvent::NotificationFailed { id, why });
            } else {
                self.effect(TaskEffect::Notify { id });
            }
        }
    }

    pub(super) fn notification_begun(&mut self, id: String, now: Timestamp) {
        if self.state.stage_of(&id) == Some(&NotificationStage::Requested) {
            self.record(now, TaskEvent::NotificationBegun { id: id.clone() });
            self.effect(TaskEffect::SendNotification { id });
        }
    }

    pub(super) fn notification_ended(
        &mut self,
        id: String,
        result: Result<(), String>,
        now: Timestamp,
    ) {
        if self
            .state
            .stage_of(&id)
            .is_some_and(NotificationStage::is_open)
        {
            let fact = match result {
                Ok(()) => TaskEvent::Notified { id },
                Err(why) => TaskEvent::NotificationFailed {
                    id,
                    why: shortened(why),
                },
            };
            self.record(now, fact);
        }
    }
}

#[cfg(test)]
mod tests {
    use goondan_cli_agents::blocks::{QuestionCategory, UserQuestion};
    use serde_json::json;

    use super::*;
    use crate::fact::{Budget, NewTask, Origin, Runtime};
    use crate::machine::{Output, TaskInput};

    const NOW: i64 = 1_000;

    fn task() -> Task {
        let new = NewTask {
            runtime: Runtime::Cli,
            task_id: "shop".parse().unwrap(),
            title: "A shop".to_owned(),
            kind: "k".to_owned(),
            description: "Build it.".to_owned(),
            total_phases: 2,
            budget: Budget::default(),
            agent: "coder".parse().unwrap(),
            tells_result: true,
            created_by: None,
            source: Default::default(),
            checks: Default::default(),
            fallbacks: Vec::new(),
            model: None,
        };
        Task::create(new, at()).unwrap().0
    }

    fn at() -> Timestamp {
        Timestamp::from_unix_millis(NOW)
    }

    fn notify(on: &[NotifyOn]) -> Notify {
        Notify {
            connection: "ops".parse().unwrap(),
            service: "telegram".to_owned(),
            action: "send".to_owned(),
            args: json!({"chat": "1", "text": "${on}|${need}|${command}"}),
            on: on.to_vec(),
        }
    }

    /// Returns the notification text for a fact.
    fn notification_text(task: &mut Task, fact: &TaskEvent, on: &[NotifyOn]) -> Option<String> {
        task.record(at(), fact.clone());
        let workspace = "w".parse().unwrap();
        let occasion = NotificationTrigger::of(task.state(), fact, &workspace)?;
        let told = occasion.told_by(&notify(on), task.state(), &workspace)?;
        Some(told.args["text"].as_str().unwrap().to_owned())
    }

    fn asked(id: &str, origin: Origin, question: &str, options: &[&str]) -> TaskEvent {
        TaskEvent::QuestionAsked {
            id: id.to_owned(),
            origin,
            question: UserQuestion {
                category: QuestionCategory::Choice,
                question: question.to_owned(),
                options: options.iter().map(|it| (*it).to_owned()).collect(),
                default: None,
                required: true,
            },
            until: None,
        }
    }

    #[test]
    fn task_8_notification_has_the_question_and_reply_command() {
        let mut task = task();
        let waits = NotifyOn::WAITS;
        let question = asked("q-0001", Origin::Agent, "Which?", &["a b", "c"]);
        assert_eq!(
            notification_text(&mut task, &question, &waits).unwrap(),
            "question|Which?\n- a b\n- c|gdn task answer shop --id q-0001 'a b' --workspace w"
        );
        let permission = Origin::Permission {
            run: 1,
            request: "p".to_owned(),
            kind: String::new(),
        };
        let permission = asked("q-0002", permission, "May it?", &["allow", "refuse"]);
        let said = notification_text(&mut task, &permission, &waits).unwrap();
        assert!(said.ends_with("|gdn task answer shop --id q-0002 allow --workspace w"));
        let review = TaskEvent::ReviewRequested { phase: 1 };
        let said = notification_text(&mut task, &review, &waits).unwrap();
        assert!(
            said.ends_with("|gdn task approve shop --phase 1 --workspace w"),
            "{said}"
        );
        assert_eq!(
            notification_text(&mut task, &review, &[NotifyOn::Question]),
            None
        );
        let paused = TaskEvent::TaskPaused {
            reason: PauseReason::Person,
            why: None,
        };
        assert_eq!(notification_text(&mut task, &paused, &NotifyOn::ALL), None);
        let long = asked("q-0003", Origin::Agent, &"é".repeat(5_000), &[]);
        let said = notification_text(&mut task, &long, &waits).unwrap();
        assert!(
            said.chars().count() < 2 * NOTICE_CHARS_MAX,
            "{}",
            said.len()
        );
        let failed = TaskEvent::TaskFailed {
            reason: "no disk".to_owned(),
        };
        assert_eq!(notification_text(&mut task, &failed, &waits), None);
        let text = notification_text(&mut task, &failed, &[NotifyOn::Failed]).unwrap();
        assert!(
            text.starts_with("failed|The task failed: no disk|"),
            "{text}"
        );
    }

    fn feed(task: &mut Task, input: TaskInput) -> Output {
        task.handle(input, at()).unwrap()
    }

    #[test]
    fn task_8_a_notification_is_begun_once_and_ends_once() {
        let mut task = task();
        let mut notified = || {
            let wanted = Notification {
                on: NotifyOn::Review,
                connection: "ops".parse().unwrap(),
                service: "telegram".to_owned(),
                action: "send".to_owned(),
                args: json!({}),
            };
            feed(&mut task, TaskInput::Notify(vec![wanted]))
        };
        let id = "n-0001".to_owned();
        assert_eq!(notified().effects, [TaskEffect::Notify { id: id.clone() }]);
        for _ in 1..NOTIFICATIONS_OPEN_MAX {
            assert_eq!(notified().effects.len(), 1);
        }
        assert_eq!(notified().effects, [], "one too many has failed at once");
        let begin = || TaskInput::NotificationBegun { id: id.clone() };
        let send = TaskEffect::SendNotification { id: id.clone() };
        assert_eq!(feed(&mut task, begin()).effects, [send]);
        assert_eq!(feed(&mut task, begin()), Output::default());
        let ended = |result| TaskInput::NotificationEnded {
            id: id.clone(),
            result,
        };
        assert_eq!(feed(&mut task, ended(Ok(()))).facts.len(), 1);
        assert_eq!(
            feed(&mut task, ended(Err("late".to_owned()))),
            Output::default()
        );
        assert_eq!(
            task.state().notification("n-0001").unwrap().stage,
            NotificationStage::Sent
        );
        for number in 2..=NOTIFICATIONS_OPEN_MAX {
            let (id, result) = (format!("n-{number:04}"), Ok(()));
            feed(&mut task, TaskInput::NotificationEnded { id, result });
        }
        assert_eq!(task.state().open_notifications().count(), 0);
        let kept = task.state().told_notifications();
        assert_eq!(kept.len(), crate::limits::NOTIFICATIONS_KEPT);
    }
}
