//! Decides the next step of an upgrade, from its journal and the current state (`REL-1`). No I/O.
//!
//! The decision depends only on the observed state, so after a kill at any point the same step is chosen again, and a
//! half-done step is repeated. Every step is therefore idempotent.

use super::journal::{Journal, PriorDaemonState, UpgradeDirection, UpgradeStep};

/// Target of the link `current`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CurrentLinkTarget {
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ObservedVersions {
    pub(super) leads: CurrentLinkTarget,
    pub(super) runs: Runs,
    /// True if the caller has found the new daemon healthy.
    pub(super) is_checked: bool,
}

pub(super) fn next_step(journal: &Journal, observed: ObservedVersions) -> UpgradeStep {
    let is_wanted = journal.ran != PriorDaemonState::Not;
    match &journal.way {
        UpgradeDirection::Forward => forward(observed, is_wanted),
        UpgradeDirection::Back { .. } => back(observed, is_wanted),
    }
}

fn forward(observed: ObservedVersions, is_wanted: bool) -> UpgradeStep {
    match (observed.leads, observed.runs) {
        (CurrentLinkTarget::ToOld | CurrentLinkTarget::Elsewhere, Runs::Nothing) => {
            UpgradeStep::Swap
        }
        (CurrentLinkTarget::ToOld | CurrentLinkTarget::Elsewhere, _) => UpgradeStep::Drain,
        // Another process started the daemon in the meantime, by the path of its version.
        (CurrentLinkTarget::ToNew, Runs::Old | Runs::Other) => UpgradeStep::Drain,
        (CurrentLinkTarget::ToNew, Runs::Nothing) if is_wanted => UpgradeStep::Start,
        (CurrentLinkTarget::ToNew, Runs::Nothing) => UpgradeStep::Finish,
        (CurrentLinkTarget::ToNew, Runs::New) if observed.is_checked => UpgradeStep::Finish,
        (CurrentLinkTarget::ToNew, Runs::New | Runs::Silent) => UpgradeStep::Check,
    }
}

fn back(observed: ObservedVersions, is_wanted: bool) -> UpgradeStep {
    match (observed.leads, observed.runs) {
        (_, Runs::New | Runs::Other | Runs::Silent) => UpgradeStep::EndNew,
        (CurrentLinkTarget::ToNew | CurrentLinkTarget::Elsewhere, _) => UpgradeStep::SwapBack,
        (CurrentLinkTarget::ToOld, Runs::Nothing) if is_wanted => UpgradeStep::StartOld,
        (CurrentLinkTarget::ToOld, Runs::Nothing | Runs::Old) => UpgradeStep::FinishBack,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::installation::VersionName;

    const LEADS: [CurrentLinkTarget; 3] = [
        CurrentLinkTarget::ToOld,
        CurrentLinkTarget::ToNew,
        CurrentLinkTarget::Elsewhere,
    ];
    const RUNS: [Runs; 5] = [
        Runs::Nothing,
        Runs::Old,
        Runs::New,
        Runs::Other,
        Runs::Silent,
    ];

    fn journal(ran: PriorDaemonState, way: UpgradeDirection) -> Journal {
        let name = |digit: &str| VersionName::new("0.1.0", &digit.repeat(12)).unwrap();
        let mut journal = Journal::new(name("a"), name("b"), Path::new("/s"), ran);
        journal.way = way;
        journal
    }

    fn back() -> UpgradeDirection {
        UpgradeDirection::Back {
            why: "it hangs".to_owned(),
        }
    }

    /// State after a step.
    fn done(step: UpgradeStep, mut observed: ObservedVersions) -> ObservedVersions {
        match step {
            UpgradeStep::Drain | UpgradeStep::EndNew => observed.runs = Runs::Nothing,
            UpgradeStep::Swap => observed.leads = CurrentLinkTarget::ToNew,
            UpgradeStep::SwapBack => observed.leads = CurrentLinkTarget::ToOld,
            UpgradeStep::Start => observed.runs = Runs::New,
            UpgradeStep::StartOld => observed.runs = Runs::Old,
            // By then a silent daemon responds, or the upgrade rolls back.
            UpgradeStep::Check => (observed.runs, observed.is_checked) = (Runs::New, true),
            UpgradeStep::Finish | UpgradeStep::FinishBack => {}
        }
        observed
    }

    /// All steps from this state to the end.
    fn steps(journal: &Journal, mut observed: ObservedVersions) -> Vec<UpgradeStep> {
        let mut steps = Vec::new();
        loop {
            let step = next_step(journal, observed);
            steps.push(step);
            if matches!(step, UpgradeStep::Finish | UpgradeStep::FinishBack) {
                return steps;
            }
            assert!(steps.len() < 10, "no end: {steps:?}");
            observed = done(step, observed);
        }
    }

    #[test]
    fn rel_1_the_usual_upgrade_drains_swaps_starts_and_checks() {
        let seen = |leads, runs| ObservedVersions {
            leads,
            runs,
            is_checked: false,
        };
        let usual = journal(PriorDaemonState::InBackground, UpgradeDirection::Forward);
        assert_eq!(
            steps(&usual, seen(CurrentLinkTarget::ToOld, Runs::Old)),
            [
                UpgradeStep::Drain,
                UpgradeStep::Swap,
                UpgradeStep::Start,
                UpgradeStep::Check,
                UpgradeStep::Finish
            ]
        );
        let without = journal(PriorDaemonState::Not, UpgradeDirection::Forward);
        assert_eq!(
            steps(&without, seen(CurrentLinkTarget::ToOld, Runs::Nothing)),
            [UpgradeStep::Swap, UpgradeStep::Finish]
        );
        let failed = journal(PriorDaemonState::AsService, back());
        assert_eq!(
            steps(&failed, seen(CurrentLinkTarget::ToNew, Runs::Silent)),
            [
                UpgradeStep::EndNew,
                UpgradeStep::SwapBack,
                UpgradeStep::StartOld,
                UpgradeStep::FinishBack
            ]
        );
        assert_eq!(
            steps(
                &journal(PriorDaemonState::Not, back()),
                seen(CurrentLinkTarget::ToNew, Runs::Nothing)
            ),
            [UpgradeStep::SwapBack, UpgradeStep::FinishBack]
        );
    }

    #[test]
    fn rel_1_upgrade_reaches_the_correct_end_from_every_state() {
        for ran in [
            PriorDaemonState::Not,
            PriorDaemonState::InBackground,
            PriorDaemonState::AsService,
        ] {
            for way in [UpgradeDirection::Forward, back()] {
                let journal = journal(ran, way.clone());
                for (leads, runs) in LEADS.into_iter().flat_map(|l| RUNS.map(|r| (l, r))) {
                    let mut observed = ObservedVersions {
                        leads,
                        runs,
                        is_checked: false,
                    };
                    let taken = steps(&journal, observed);
                    for step in &taken {
                        observed = done(*step, observed);
                    }
                    let (end, version) = match way {
                        UpgradeDirection::Forward => (CurrentLinkTarget::ToNew, Runs::New),
                        UpgradeDirection::Back { .. } => (CurrentLinkTarget::ToOld, Runs::Old),
                    };
                    assert_eq!(observed.leads, end, "{taken:?}");
                    let is_right = observed.runs == version
                        || (ran == PriorDaemonState::Not && observed.runs == Runs::Nothing);
                    assert!(is_right, "{observed:?} after {taken:?}");
                }
            }
        }
    }

    #[test]
    fn rel_1_no_swap_under_an_outgoing_daemon_nor_unchecked_finish() {
        for (leads, runs) in LEADS.into_iter().flat_map(|l| RUNS.map(|r| (l, r))) {
            let observed = ObservedVersions {
                leads,
                runs,
                is_checked: false,
            };
            let step = next_step(
                &journal(PriorDaemonState::InBackground, UpgradeDirection::Forward),
                observed,
            );
            assert!(
                step != UpgradeStep::Swap || runs == Runs::Nothing,
                "{observed:?}"
            );
            assert_ne!(step, UpgradeStep::Finish, "{observed:?}");
            let step = next_step(&journal(PriorDaemonState::InBackground, back()), observed);
            assert!(step != UpgradeStep::SwapBack || matches!(runs, Runs::Nothing | Runs::Old));
        }
    }
}
