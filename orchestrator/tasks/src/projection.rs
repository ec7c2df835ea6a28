//! Task information for clients.

use std::path::Path;

use goondan_protocol::control::{
    TaskAsk, TaskAskKind, TaskDetail, TaskDrill, TaskHistoryLine, TaskInfo, TaskLastRun,
    TaskProposal, TaskRun,
};
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::time::Timestamp;

use crate::display::outcome_words;
use crate::fact::{Origin, PauseReason, RunOutcome};
use crate::state::{PersonInput, PersonInputKind, State};

/// Maximum files of a proposal listed for a reviewer.
const FILES_LISTED: usize = 10;

impl State {
    /// Phase under review.
    #[must_use]
    pub fn review(&self) -> Option<u32> {
        self.review
    }

    /// Phase in which its agent stopped without completing it: a person may approve it as is.
    #[must_use]
    pub fn stopped_phase(&self) -> Option<u32> {
        // goondan asks how to continue, and nothing else is pending.
        let is_own = |ask: &PersonInput| {
            matches!(&ask.what, PersonInputKind::Question(Origin::Supervisor, ..))
        };
        let mut asks = self.open_asks().peekable();
        let is_asked = asks.peek().is_some() && asks.all(|(_, ask)| is_own(ask));
        let has_ended = self.run.is_none() && self.review.is_none() && self.has_begun;
        let is_stopped = is_asked && has_ended && self.current_phase > 0;
        is_stopped.then_some(self.current_phase)
    }

    /// Proposal of the last completed work.
    #[must_use]
    pub fn proposal(&self) -> Option<&TaskProposal> {
        self.proposing.proposal()
    }

    /// The proposal that must be in the project before a phase is approved: only for the last
    /// phase, and only if the task would accept the approval.
    #[must_use]
    pub fn to_deliver(&self, phase: u32) -> Option<&TaskProposal> {
        let is_last = self.review == Some(phase)
            && phase >= self.task.total_phases
            // A canceled task keeps its review.
            && self.ended.is_none()
            && !self.has_message();
        let proposal = self.proposing.proposal().filter(|_| is_last);
        proposal.filter(|proposal| !proposal.is_delivered)
    }

    /// Describes the proposal for the reviewer; empty for a task without a source.
    pub(crate) fn proposal_in_words(&self) -> String {
        let proposing = &self.proposing;
        let mut text = String::new();
        if let Some(problem) = proposing.problem() {
            text.push_str(&format!("\nIt proposes nothing: {problem}"));
        } else if let Some(proposal) = proposing.proposal() {
            text.push_str("\nIt changes these files of the project:");
            for file in proposal.files.iter().take(FILES_LISTED) {
                text.push_str(&format!("\n- {} ({})", file.path, file.status.as_str()));
            }
            let known = proposal.files.len().saturating_sub(FILES_LISTED);
            let more = known.saturating_add(proposal.more_files);
            if more > 0 {
                text.push_str(&format!("\n- and {more} more"));
            }
            let (task, agent) = (&self.task.task_id, &self.task.agent);
            text.push_str(&format!("\n`gdn proposal diff {task} {agent}` shows how."));
        }
        match proposing.verdict() {
            None => {}
            Some(verdict) if verdict.passed => text.push_str("\n`verify` passed."),
            Some(verdict) => text.push_str(&format!("\n`verify` failed: {}", verdict.why)),
        }
        text
    }

    /// Current step, as reported by its agent.
    #[must_use]
    pub fn step(&self) -> Option<&str> {
        self.step.as_deref()
    }

    /// Progress of the phase in percent, as reported by the agent.
    #[must_use]
    pub fn progress(&self) -> u8 {
        self.progress
    }

    /// Number of runs so far, those of its commands included.
    #[must_use]
    pub fn runs(&self) -> u64 {
        self.runs
    }

    #[must_use]
    pub fn created_at(&self) -> Timestamp {
        self.created_at
    }

    /// Time when it was completed, failed or was canceled.
    #[must_use]
    pub fn ended_at(&self) -> Option<Timestamp> {
        self.ended.map(|(_, at)| at)
    }

    /// The newest checkpoint.
    #[must_use]
    pub fn checkpoint(&self) -> Option<&str> {
        self.checkpoint.as_deref()
    }

    /// The last restore drill.
    #[must_use]
    pub fn drill(&self) -> Option<&TaskDrill> {
        self.drill.as_ref()
    }

    /// True if it continues although the last drill could not restore its newest checkpoint.
    #[must_use]
    pub fn is_drill_failed(&self) -> bool {
        let drill = self.drill.as_ref().filter(|_| self.ended.is_none());
        drill.is_some_and(|drill| drill.problem.is_some())
    }

    /// Warning for people that does not block the task.
    fn warning(&self) -> Option<String> {
        if self.ended.is_some() {
            return None;
        }
        if let Some(why) = &self.shared_budget {
            return Some(why.clone());
        }
        if let Some(phase) = self.review
            && !self.missing_documents.is_empty()
        {
            let missing = self.missing_documents.join(", ");
            return Some(format!(
                "phase {phase} lists documents that do not exist: {missing}"
            ));
        }
        if let (Some(phase), Some(failed)) = (self.review, self.proposing.failed_verdict()) {
            return Some(format!("phase {phase}: `verify` failed: {}", failed.why));
        }
        if let Some(near) = self.near_budget() {
            return Some(near);
        }
        let drill = self.drill.as_ref()?;
        let problem = drill.problem.as_ref()?;
        let id = &drill.checkpoint_id;
        Some(format!("the restore drill of {id} failed: {problem}"))
    }

    /// Warning that its budget is nearly spent (`TASK-6`), while it can still be raised.
    fn near_budget(&self) -> Option<String> {
        let is_held = self.is_paused == Some(PauseReason::Budget);
        (self.budget_warned && !is_held).then(|| {
            let percent = self.tokens.percent_of(&self.task.budget);
            let id = &self.task.task_id;
            format!("{percent} % of its budget are spent; raise it with `gdn task budget {id}`")
        })
    }

    /// Shared budget that blocks it, if one does.
    #[must_use]
    pub fn shared_budget(&self) -> Option<&str> {
        self.shared_budget.as_deref()
    }

    /// True if it cannot continue without a person.
    #[must_use]
    pub fn needs_person(&self) -> bool {
        let is_held = matches!(
            self.is_paused,
            Some(PauseReason::Budget | PauseReason::SharedBudget | PauseReason::Quota)
        );
        self.ended.is_none()
            && (self.review.is_some() || is_held || self.open_asks().next().is_some())
    }

    /// Reason why it waits: as in `agent-state.json`, or the `budget`, `shared_budget` or `quota`
    /// that blocks it.
    #[must_use]
    pub fn waits_for(&self) -> Option<String> {
        let waits_for = match self.is_paused.filter(|_| self.ended.is_none()) {
            Some(PauseReason::Budget) => Some("budget"),
            Some(PauseReason::SharedBudget) => Some("shared_budget"),
            Some(PauseReason::Quota) => Some("quota"),
            Some(PauseReason::Person) | None => self.blocked_by(),
        };
        waits_for.map(ToOwned::to_owned)
    }

    /// Ask as shown to clients, by its id.
    pub(crate) fn ask(&self, id: &str) -> Option<TaskAsk> {
        self.asks.get(id).map(|ask| ask_info(id, ask))
    }

    /// Entry in the list of tasks.
    #[must_use]
    pub fn info(&self, workspace_id: &WorkspaceId) -> TaskInfo {
        let total = self.tokens.total();
        TaskInfo {
            workspace_id: workspace_id.clone(),
            task_id: self.task.task_id.clone(),
            title: self.task.title.clone(),
            kind: self.task.kind.clone(),
            agent: self.task.agent.clone(),
            status: self.status(),
            blocked_by: self.waits_for(),
            held: None,
            current_phase: self.current_phase,
            total_phases: self.task.total_phases,
            progress: self.progress,
            tokens: total.usage.total(),
            cost: total.cost,
            created_by: self.task.created_by.clone(),
            created_at: Some(self.created_at),
            updated_at: Some(self.updated_at),
            warning: self.warning(),
            damaged: None,
        }
    }

    #[must_use]
    pub fn detail(
        &self,
        workspace_id: &WorkspaceId,
        work_area: &Path,
        recent: Vec<TaskHistoryLine>,
    ) -> TaskDetail {
        // A finished task waits for nothing, even if asks were open.
        let is_live = self.ended.is_none();
        let asks = self.open_asks().filter(|_| is_live);
        let mut asks: Vec<TaskAsk> = asks.map(|(id, ask)| ask_info(id, ask)).collect();
        // Dependencies are listed before questions (`PROTO-5`).
        asks.sort_by_key(|ask| matches!(ask.kind, TaskAskKind::Question | TaskAskKind::Permission));
        TaskDetail {
            info: self.info(workspace_id),
            description: self.task.description.clone(),
            work_area: work_area.to_owned(),
            source: self.task.source.clone(),
            // Unknown here.
            sandbox: None,
            proposal: self.proposing.proposal().cloned(),
            proposal_problem: self.proposing.problem().map(ToOwned::to_owned),
            verified: self.proposing.verdict().cloned(),
            started_at: self.started_at,
            ended_at: self.ended.map(|(_, at)| at),
            failure: self.failure.clone(),
            messages: self.waiting_messages(),
            asks,
            // These belong to its conversation, which is unknown here.
            approvals: Vec::new(),
            review: self.review.filter(|_| is_live),
            documents: self.documents.clone(),
            missing_documents: self.missing_documents.clone(),
            step: self.step.clone(),
            plan: self.plan.clone(),
            run: self.run.as_ref().map(|run| TaskRun {
                number: run.number,
                pid: run.process.map(|(pid, _)| pid),
            }),
            runs: self.runs,
            last_run: self.last_run.as_ref().map(|run| TaskLastRun {
                number: run.number,
                is_ok: run.outcome == RunOutcome::Done,
                outcome: outcome_words(&run.outcome),
                last_words: run.last_words.clone(),
                stderr: run.stderr.clone(),
            }),
            not_before: self.not_before,
            agents: self.told_agents(),
            session: self.session.clone(),
            model: self.model.clone(),
            budget: self.task.budget,
            usage: self.tokens.total().usage,
            disk: None,
            checkpoint: self.checkpoint.clone(),
            drill: self.drill.clone(),
            notifications: self.told_notifications(),
            recent,
        }
    }
}

pub(crate) fn ask_info(id: &str, ask: &PersonInput) -> TaskAsk {
    let (kind, text, description, options, default) = match &ask.what {
        PersonInputKind::Dependency(request, _) => (
            if request.kind.is_environment() {
                TaskAskKind::Secret
            } else {
                TaskAskKind::Dependency
            },
            &request.name,
            request.description.clone(),
            Vec::new(),
            &request.default,
        ),
        PersonInputKind::Question(origin, question, _) => (
            match origin {
                // A permission times out; the program's own questions and plans wait indefinitely.
                Origin::Permission { .. } if !question.required => TaskAskKind::Permission,
                Origin::Permission { .. } | Origin::Agent | Origin::Supervisor => {
                    TaskAskKind::Question
                }
            },
            &question.question,
            String::new(),
            question.options.clone(),
            &question.default,
        ),
    };
    TaskAsk {
        id: id.to_owned(),
        kind,
        text: text.clone(),
        description,
        options,
        default: default.clone(),
        until: ask.until,
    }
}
