//! Plan of a task's agent, and its completed steps (`TASK-4`).

use goondan_protocol::task::{PlanStep, PlanStepState};

use super::State;

impl State {
    /// Records the agent's plan. The step in progress becomes the step of the task.
    pub(super) fn planned(&mut self, steps: &[PlanStep]) {
        self.plan = steps.to_vec();
        let begun = steps
            .iter()
            .find(|step| step.state == PlanStepState::InProgress);
        if let Some(step) = begun {
            self.step = Some(step.title.clone());
        }
    }

    /// Completed steps of the plan; without a plan, the documents that the agent wrote.
    pub(crate) fn completed_steps(&self) -> impl Iterator<Item = &str> {
        let documents: &[String] = if self.plan.is_empty() {
            &self.documents
        } else {
            &[]
        };
        let done = self.steps_of_plan(PlanStepState::Completed);
        documents.iter().map(String::as_str).chain(done)
    }

    /// Planned steps that have not started.
    pub(crate) fn pending_steps(&self) -> impl Iterator<Item = &str> {
        self.steps_of_plan(PlanStepState::Pending)
    }

    fn steps_of_plan(&self, state: PlanStepState) -> impl Iterator<Item = &str> {
        let steps = self.plan.iter().filter(move |step| step.state == state);
        steps.map(|step| step.title.as_str())
    }
}
