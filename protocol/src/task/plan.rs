//! The plan of an agent that works for a task: what it has done, does and means to do (`TASK-4`).

use serde::{Deserialize, Serialize};

/// Steps of one plan that are kept at most.
pub const PLAN_STEPS_MAX: usize = 100;

/// Characters of one step's title that are kept at most.
pub const PLAN_STEP_CHARS_MAX: usize = 500;

/// One step of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlanStep {
    /// What is done in it.
    pub title: String,
    /// How it stands.
    pub state: PlanStepState,
}

/// How a step of a plan stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanStepState {
    /// It has not begun.
    Pending,
    /// The agent works on it.
    InProgress,
    /// It is done.
    Completed,
}

impl PlanStep {
    /// A plan within its limits: what is beyond [`PLAN_STEPS_MAX`] or [`PLAN_STEP_CHARS_MAX`] is cut off, and steps
    /// without a title are left out.
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
