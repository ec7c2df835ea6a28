//! Progress of an attempt to land proposals.

use crate::entry::{Revision, Stage};

/// Progress of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attempt {
    pub(crate) number: u64,
    pub(crate) step: Step,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// The service is asked about earlier pull requests.
    Looking,
    Rebasing,
    Proving {
        base: Revision,
        result: Revision,
    },
    Landing,
}

impl Attempt {
    pub(crate) fn looking(number: u64) -> Self {
        let step = Step::Looking;
        Self { number, step }
    }

    pub(crate) fn rebasing(number: u64) -> Self {
        let step = Step::Rebasing;
        Self { number, step }
    }

    pub(crate) fn landing(number: u64) -> Self {
        let step = Step::Landing;
        Self { number, step }
    }

    pub(crate) fn stage(&self) -> Stage {
        match self.step {
            Step::Looking | Step::Rebasing => Stage::Rebasing,
            Step::Proving { .. } => Stage::Proving,
            Step::Landing => Stage::Landing,
        }
    }
}
