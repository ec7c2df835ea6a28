//! Limits on the growth of agents' work (`SEC-8`), because agents that send each other work could
//! multiply without end. Pure: counters with the time as a parameter.
//!
//! A *tree* is all work caused by one external event: the turns of the agents that received work
//! for it, directly or indirectly. A tree has one quota of conversations, and a turn may use at
//! most half of the remaining quota, so one branch cannot starve the others.

use std::collections::{BTreeMap, BTreeSet};

use goondan_protocol::event::Chain;
use goondan_protocol::ids::{EventId, InstanceKey};

use crate::limits::{
    OBSERVATIONS_DROPPED_MAX, OBSERVATIONS_PER_S, OBSERVATIONS_PER_TURN_BURST,
    REACHED_PER_STEP_MAX, REACHED_PER_TREE_MAX, REACHED_PER_TURN_MAX, TREE_MEMORY_MS,
    WORKSPACE_REACH_BURST, WORKSPACE_REACH_PER_S,
};
use crate::refusals::AgentRequestError;

#[derive(Debug, Clone, Copy)]
pub(super) struct Bucket {
    /// Available tokens, in thousandths.
    left_milli: u64,
    burst: u64,
    per_s: u64,
    filled_ms: u64,
}

impl Bucket {
    pub(super) fn new(burst: u64, per_s: u64, now_ms: u64) -> Self {
        Self {
            left_milli: burst.saturating_mul(1_000),
            burst,
            per_s,
            filled_ms: now_ms,
        }
    }

    /// Takes one token, if available.
    pub(super) fn take(&mut self, now_ms: u64) -> bool {
        let gained = now_ms
            .saturating_sub(self.filled_ms)
            .saturating_mul(self.per_s);
        let full = self.burst.saturating_mul(1_000);
        self.left_milli = self.left_milli.saturating_add(gained).min(full);
        self.filled_ms = self.filled_ms.max(now_ms);
        match self.left_milli.checked_sub(1_000) {
            Some(left) => {
                self.left_milli = left;
                true
            }
            None => false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReportDecision {
    Kept,
    /// Over the limit. `first` is true for the first one of this turn.
    Dropped {
        first: bool,
    },
    /// Far over the limit: the process is faulty.
    Flood,
}

#[derive(Debug, Clone)]
pub(super) struct TurnUse {
    /// Bytes appended to its conversation.
    appended_bytes: u64,
    observations: Bucket,
    dropped: u64,
    /// The conversations that received work from it, and the latest step that gave work to a new
    /// one.
    reached: BTreeSet<InstanceKey>,
    step: (u32, usize),
}

impl TurnUse {
    pub(super) fn new(now_ms: u64) -> Self {
        Self {
            appended_bytes: 0,
            observations: Bucket::new(OBSERVATIONS_PER_TURN_BURST, OBSERVATIONS_PER_S, now_ms),
            dropped: 0,
            reached: BTreeSet::new(),
            step: (0, 0),
        }
    }

    /// Counts appended bytes and returns the total.
    pub(super) fn append(&mut self, bytes: usize) -> u64 {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.appended_bytes = self.appended_bytes.saturating_add(bytes);
        self.appended_bytes
    }

    pub(super) fn observe(&mut self, now_ms: u64) -> ReportDecision {
        if self.observations.take(now_ms) {
            return ReportDecision::Kept;
        }
        self.dropped = self.dropped.saturating_add(1);
        if self.dropped > OBSERVATIONS_DROPPED_MAX {
            return ReportDecision::Flood;
        }
        ReportDecision::Dropped {
            first: self.dropped == 1,
        }
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// The external event at the root of a tree.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Root {
    instance: InstanceKey,
    event: EventId,
}

impl Root {
    pub(super) fn of(chain: &Chain) -> Self {
        Self {
            instance: chain.root_instance.clone(),
            event: chain.root_event.clone(),
        }
    }
}

#[derive(Debug)]
struct Tree {
    /// The conversations that received work in it.
    reached: BTreeSet<InstanceKey>,
    used_ms: u64,
}

/// Recently active trees of a workspace.
#[derive(Debug, Default)]
pub(super) struct Trees {
    trees: BTreeMap<Root, Tree>,
    /// Rate of conversations that get work; `None` until the first one.
    rate: Option<Bucket>,
}

impl Trees {
    /// Counts that a turn of a tree gives work to a conversation.
    ///
    /// # Errors
    ///
    /// `E_TOO_MANY_AGENTS`, with the limit that was reached.
    pub(super) fn reach(
        &mut self,
        root: Root,
        (turn, step): (&mut TurnUse, u32),
        target: &InstanceKey,
        now_ms: u64,
    ) -> Result<(), AgentRequestError> {
        let refused = |what: &str, max: usize, advice: &str| {
            let message = format!(
                "{what} gave work to {max} other conversations, which is the limit; {advice}"
            );
            Err(AgentRequestError::new("E_TOO_MANY_AGENTS", message))
        };
        let tree = self.trees.entry(root).or_insert_with(|| Tree {
            reached: BTreeSet::new(),
            used_ms: now_ms,
        });
        tree.used_ms = now_ms;
        if turn.reached.contains(target) {
            return Ok(());
        }
        if turn.step.0 != step {
            turn.step = (step, 0);
        }
        if turn.step.1 >= REACHED_PER_STEP_MAX {
            let advice = "request the rest in another step";
            return refused("this step", REACHED_PER_STEP_MAX, advice);
        }
        if turn.reached.len() >= REACHED_PER_TURN_MAX {
            let advice = "use existing conversations, or answer with the results so far";
            return refused("this turn", REACHED_PER_TURN_MAX, advice);
        }
        if !tree.reached.contains(target) {
            let left = REACHED_PER_TREE_MAX.saturating_sub(tree.reached.len());
            let share = (left + turn.reached.len()).div_ceil(2);
            if left == 0 {
                let what = "all turns that this event led to";
                let advice = "use existing conversations, or answer with the results so far";
                return refused(what, REACHED_PER_TREE_MAX, advice);
            }
            if turn.reached.len() >= share {
                let advice =
                    "the other turns of this event need the rest; use existing conversations";
                return refused("this turn", turn.reached.len(), advice);
            }
            let (burst, per_s) = (WORKSPACE_REACH_BURST, WORKSPACE_REACH_PER_S);
            let rate = self
                .rate
                .get_or_insert_with(|| Bucket::new(burst, per_s, now_ms));
            if !rate.take(now_ms) {
                let message = format!(
                    "the agents of this project give work to more than {per_s} other conversations \
                     a second; wait, then try again"
                );
                return Err(AgentRequestError::new("E_TOO_MANY_AGENTS", message));
            }
            tree.reached.insert(target.clone());
        }
        turn.reached.insert(target.clone());
        turn.step.1 += 1;
        Ok(())
    }

    /// Drops trees that have not grown recently.
    pub(super) fn forget(&mut self, now_ms: u64) {
        let is_young = |used_ms: u64| now_ms.saturating_sub(used_ms) < TREE_MEMORY_MS;
        self.trees.retain(|_, tree| is_young(tree.used_ms));
        self.rate.take_if(|rate| !is_young(rate.filled_ms));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(event: &str) -> Root {
        Root {
            instance: "main".parse().unwrap(),
            event: event.parse().unwrap(),
        }
    }

    fn key(number: usize) -> InstanceKey {
        format!("helper:{number}").parse().unwrap()
    }

    /// Number of the next conversations that a turn can give work to, one per step.
    fn reached(trees: &mut Trees, first: usize) -> usize {
        let mut turn = TurnUse::new(0);
        let tries = 0..2 * REACHED_PER_TREE_MAX;
        tries
            .take_while(|n| {
                let step = u32::try_from(*n).unwrap();
                let target = key(first + n);
                let now_ms = 1_000 * u64::try_from(first + n).unwrap();
                let reached = trees.reach(root("e"), (&mut turn, step), &target, now_ms);
                reached.is_ok()
            })
            .count()
    }

    #[test]
    fn sec_8_tree_shares_an_allowance_and_turns_take_half_at_most() {
        let mut trees = Trees::default();
        let mut all = Vec::new();
        loop {
            let more = reached(&mut trees, 1_000 * (all.len() + 1));
            if more == 0 {
                break;
            }
            all.push(more);
        }
        assert_eq!(all.iter().sum::<usize>(), REACHED_PER_TREE_MAX);
        assert_eq!(all.first(), Some(&REACHED_PER_TURN_MAX));
        assert!(all.is_sorted_by(|before, after| before >= after), "{all:?}");
        // Another event has a separate quota.
        let mut turn = TurnUse::new(0);
        let late_ms = 1_000_000_000;
        let other = trees.reach(root("other"), (&mut turn, 1), &key(1), late_ms);
        assert!(other.is_ok());
        trees.forget(late_ms + TREE_MEMORY_MS);
        assert!(trees.trees.is_empty());
    }

    #[test]
    fn sec_8_step_delegations_are_limited_and_repeats_count_once() {
        let (mut trees, mut turn) = (Trees::default(), TurnUse::new(0));
        for n in 0..REACHED_PER_STEP_MAX {
            for _ in 0..3 {
                trees.reach(root("e"), (&mut turn, 1), &key(n), 0).unwrap();
            }
        }
        let more = trees.reach(root("e"), (&mut turn, 1), &key(1_000), 0);
        assert_eq!(more.unwrap_err().code, "E_TOO_MANY_AGENTS");
        assert!(
            trees
                .reach(root("e"), (&mut turn, 2), &key(1_000), 0)
                .is_ok()
        );
    }

    #[test]
    fn sec_8_trees_grow_at_a_rate() {
        let mut trees = Trees::default();
        let mut grown = 0;
        for n in 0..10 * WORKSPACE_REACH_BURST {
            let mut turn = TurnUse::new(0);
            let root = root(&n.to_string());
            grown += u64::from(trees.reach(root, (&mut turn, 1), &key(1), 0).is_ok());
        }
        assert_eq!(grown, WORKSPACE_REACH_BURST);
        let mut turn = TurnUse::new(0);
        assert!(
            trees
                .reach(root("x"), (&mut turn, 1), &key(1), 1_000)
                .is_ok()
        );
    }

    #[test]
    fn sec_8_turn_reports_are_bounded_and_a_flood_is_reported_once() {
        let mut turn = TurnUse::new(0);
        for _ in 0..OBSERVATIONS_PER_TURN_BURST {
            assert_eq!(turn.observe(0), ReportDecision::Kept);
        }
        assert_eq!(turn.observe(0), ReportDecision::Dropped { first: true });
        assert_eq!(turn.observe(1_000), ReportDecision::Kept);
        for _ in 1..OBSERVATIONS_PER_S {
            turn.observe(1_000);
        }
        assert_eq!(
            turn.observe(1_000),
            ReportDecision::Dropped { first: false }
        );
        assert_eq!(turn.dropped(), 2);
        for _ in 2..OBSERVATIONS_DROPPED_MAX {
            turn.observe(1_000);
        }
        assert_eq!(turn.observe(1_000), ReportDecision::Flood);
    }
}
