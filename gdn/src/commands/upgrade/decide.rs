//! Decides the next step of an upgrade, from its journal and the current state (`REL-1`). No I/O.
//!
//! The decision depends only on the observed state, so after a kill at any point the same step is chosen again, and a
//! half-done step is repeated. Every step is therefore idempotent.

use super::journal::{Journal, Ran, Step, Way};

/// Target of the link `current`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leads {
    ToOld,
    ToNew,
    /// A third version, or no version.
    Elsewhere,
}

/// Daemon that owns the state root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Runs {
    Nothing,
    Old,
    New,
    /// A daemon of a third version.
    Other,
    /// A daemon that does not respond.
    Silent,
}

/// Observed state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Observed {
    pub(super) leads: Leads,
    pub(super) runs: Runs,
    /// True if the caller has found the new daemon healthy.
    pub(super) is_checked: bool,
}

/// Returns the next step of an upgrade.
pub(super) fn next_step(journal: &Journal, observed: Observed) -> Step {
    let is_wanted = journal.ran != Ran::Not;
    match &journal.way {
        Way::Forward => forward(observed, is_wanted),
        Way::Back { .. } => back(observed, is_wanted),
    }
}

fn forward(observed: Observed, is_wanted: bool) -> Step {
    match (observed.leads, observed.runs) {
        (Leads::ToOld | Leads::Elsewhere, Runs::Nothing) => Step::Swap,
        (Leads::ToOld | Leads::Elsewhere, _) => Step::Drain,
        // Another process started the daemon in the meantime, by the path of its version.
        (Leads::ToNew, Runs::Old | Runs::Other) => Step::Drain,
        (Leads::ToNew, Runs::Nothing) if is_wanted => Step::Start,
        (Leads::ToNew, Runs::Nothing) => Step::Finish,
        (Leads::ToNew, Runs::New) if observed.is_checked => Step::Finish,
        (Leads::ToNew, Runs::New | Runs::Silent) => Step::Check,
    }
}

fn back(observed: Observed, is_wanted: bool) -> Step {
    match (observed.leads, observed.runs) {
        (_, Runs::New | Runs::Other | Runs::Silent) => Step::EndNew,
        (Leads::ToNew | Leads::Elsewhere, _) => Step::SwapBack,
        (Leads::ToOld, Runs::Nothing) if is_wanted => Step::StartOld,
        (Leads::ToOld, Runs::Nothing | Runs::Old) => Step::FinishBack,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::installation::VersionName;

    const LEADS: [Leads; 3] = [Leads::ToOld, Leads::ToNew, Leads::Elsewhere];
    const RUNS: [Runs; 5] = [
        Runs::Nothing,
        Runs::Old,
        Runs::New,
        Runs::Other,
        Runs::Silent,
    ];

    fn journal(ran: Ran, way: Way) -> Journal {
        let name = |digit: &str| VersionName::new("0.1.0", &digit.repeat(12)).unwrap();
        let mut journal = Journal::new(name("a"), name("b"), Path::new("/s"), ran);
        journal.way = way;
        journal
    }

    fn back() -> Way {
        Way::Back {
            why: "it hangs".to_owned(),
        }
    }

    /// State after a step.
    fn done(step: Step, mut observed: Observed) -> Observed {
        match step {
            Step::Drain | Step::EndNew => observed.runs = Runs::Nothing,
            Step::Swap => observed.leads = Leads::ToNew,
            Step::SwapBack => observed.leads = Leads::ToOld,
            Step::Start => observed.runs = Runs::New,
            Step::StartOld => observed.runs = Runs::Old,
            // By then a silent daemon responds, or the upgrade rolls back.
            Step::Check => (observed.runs, observed.is_checked) = (Runs::New, true),
            Step::Finish | Step::FinishBack => {}
        }
        observed
    }

    /// All steps from this state to the end.
    fn steps(journal: &Journal, mut observed: Observed) -> Vec<Step> {
        let mut steps = Vec::new();
        loop {
            let step = next_step(journal, observed);
            steps.push(step);
            if matches!(step, Step::Finish | Step::FinishBack) {
                return steps;
            }
            assert!(steps.len() < 10, "no end: {steps:?}");
            observed = done(step, observed);
        }
    }

    #[test]
    fn rel_1_the_usual_upgrade_drains_swaps_starts_and_checks() {
        let seen = |leads, runs| Observed {
            leads,
            runs,
            is_checked: false,
        };
        let usual = journal(Ran::InBackground, Way::Forward);
        assert_eq!(
            steps(&usual, seen(Leads::ToOld, Runs::Old)),
            [
                Step::Drain,
                Step::Swap,
                Step::Start,
                Step::Check,
                Step::Finish
            ]
        );
        let without = journal(Ran::Not, Way::Forward);
        assert_eq!(
            steps(&without, seen(Leads::ToOld, Runs::Nothing)),
            [Step::Swap, Step::Finish]
        );
        let failed = journal(Ran::AsService, back());
        assert_eq!(
            steps(&failed, seen(Leads::ToNew, Runs::Silent)),
            [
                Step::EndNew,
                Step::SwapBack,
                Step::StartOld,
                Step::FinishBack
            ]
        );
        assert_eq!(
            steps(
                &journal(Ran::Not, back()),
                seen(Leads::ToNew, Runs::Nothing)
            ),
            [Step::SwapBack, Step::FinishBack]
        );
    }

    #[test]
    fn rel_1_from_every_state_the_end_is_reached_and_is_the_right_one() {
        for ran in [Ran::Not, Ran::InBackground, Ran::AsService] {
            for way in [Way::Forward, back()] {
                let journal = journal(ran, way.clone());
                for (leads, runs) in LEADS.into_iter().flat_map(|l| RUNS.map(|r| (l, r))) {
                    let mut observed = Observed {
                        leads,
                        runs,
                        is_checked: false,
                    };
                    let taken = steps(&journal, observed);
                    for step in &taken {
                        observed = done(*step, observed);
                    }
                    let (end, version) = match way {
                        Way::Forward => (Leads::ToNew, Runs::New),
                        Way::Back { .. } => (Leads::ToOld, Runs::Old),
                    };
                    assert_eq!(observed.leads, end, "{taken:?}");
                    let is_right = observed.runs == version
                        || (ran == Ran::Not && observed.runs == Runs::Nothing);
                    assert!(is_right, "{observed:?} after {taken:?}");
                }
            }
        }
    }

    #[test]
    fn rel_1_no_link_is_swapped_under_a_daemon_that_is_to_go_and_none_is_trusted_unchecked() {
        for (leads, runs) in LEADS.into_iter().flat_map(|l| RUNS.map(|r| (l, r))) {
            let observed = Observed {
                leads,
                runs,
                is_checked: false,
            };
            let step = next_step(&journal(Ran::InBackground, Way::Forward), observed);
            assert!(step != Step::Swap || runs == Runs::Nothing, "{observed:?}");
            assert_ne!(step, Step::Finish, "{observed:?}");
            let step = next_step(&journal(Ran::InBackground, back()), observed);
            assert!(step != Step::SwapBack || matches!(runs, Runs::Nothing | Runs::Old));
        }
    }
}
