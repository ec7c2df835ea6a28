//! Plan of an agent that runs a task: completed, current and planned steps (`TASK-4`).

use serde::{Deserialize, Serialize};

/// Largest number of steps in a plan.
pub const PLAN_STEPS_MAX: usize = 100;

/// Longest title of a step, in characters.
pub const PLAN_STEP_CHARS_MAX: usize = 500;

/// One step of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlanStep {
    /// Its title.
    pub title: String,
    /// Its state.
    pub state: PlanStepState,
}

/// State of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanStepState {
    /// It has not started.
    Pending,
    /// The agent is working on it.
    InProgress,
    /// It is completed.
    Completed,
}

impl PlanStep {
    /// Limits a plan: truncates it to [`PLAN_STEPS_MAX`] steps and titles to
    /// [`PLAN_STEP_CHARS_MAX`], and drops steps without a title.
    pub fn bounded(steps: impl IntoIterator<Item = Self>) -> Vec<Self> {
        let steps = steps.into_iter().map(|mut step| {
            step.title = step
                .title
                .trim()
                .chars()
                .take(PLAN_STEP_CHARS_MAX)
                .collect();
            step
        });
        let steps = steps.filter(|step| !step.title.is_empty());
        steps.take(PLAN_STEPS_MAX).collect()
    }
}
