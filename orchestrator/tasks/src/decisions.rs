//! Open points of a task that a person can decide in a chat (`NEED-2`).

use goondan_protocol::control::{TaskAsk, TaskAskKind};
use goondan_protocol::time::Timestamp;

use crate::fact::{HistoryEntry, InputOutcome, Provision, TaskEvent};
use crate::projection::ask_info;
use crate::state::{PersonInputKind, State};

/// Longest answer that an outcome repeats, in characters.
const ANSWER_CHARS_TOLD: usize = 100;

/// An open point of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenPoint {
    /// Identifies it within its task, and differs from that of every other point of the task.
    pub key: String,
    pub since: Timestamp,
    pub what: OpenPointKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenPointKind {
    /// A question, a permission or a dependency. No secret, because a chat would store it.
    Ask(TaskAsk),
    /// The work of a phase, with a summary.
    Review { phase: u32, summary: String },
}

/// The decision of a person in a chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatDecision {
    /// Key of the open point.
    pub about: String,
    /// The person, by connector and the service's user id.
    pub by: String,
    /// The outcome, for people to read.
    pub how: String,
}

impl ChatDecision {
    /// The answer to a question.
    #[must_use]
    pub fn answered(about: &str, by: String, answer: &str) -> Self {
        let how = format!("answered by {by}: {}", shortened(answer));
        Self::new(about, by, how)
    }

    #[must_use]
    pub fn approved(about: &str, by: String) -> Self {
        let how = format!("approved by {by}");
        Self::new(about, by, how)
    }

    /// Requested changes; without a text, those of the comments on the proposal.
    #[must_use]
    pub fn sent_back(about: &str, by: String, text: &str) -> Self {
        let mut how = format!("sent back by {by}");
        if !text.is_empty() {
            how.push_str(&format!(": {}", shortened(text)));
        }
        Self::new(about, by, how)
    }

    fn new(about: &str, by: String, how: String) -> Self {
        let about = about.to_owned();
        Self { about, by, how }
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(ANSWER_CHARS_TOLD) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

impl State {
    /// Open points that a chat may decide, the oldest questions first.
    #[must_use]
    pub fn open_points(&self) -> Vec<OpenPoint> {
        let asks = self.open_asks();
        let asks = asks.map(|(id, ask)| (ask.asked_at, ask_info(id, ask)));
        let asks = asks.filter(|(_, ask)| ask.kind != TaskAskKind::Secret);
        let asks = asks.map(|(since, ask)| OpenPoint {
            key: ask.id.clone(),
            since,
            what: OpenPointKind::Ask(ask),
        });
        let review = self.review().and_then(|phase| {
            let of = self.task.total_phases;
            let mut summary = format!("Phase {phase} of {of} is complete and waits for a review.");
            summary.push_str(&self.proposal_in_words());
            Some(OpenPoint {
                key: self.review_key()?,
                since: self.review_at,
                what: OpenPointKind::Review { phase, summary },
            })
        });
        asks.chain(review).collect()
    }

    /// Key of the work under review. Other work, or another proposal, has another key, so that a
    /// button never approves what its message did not show.
    fn review_key(&self) -> Option<String> {
        let phase = self.review()?;
        let proposal = self.proposal().map(|proposal| proposal.digest.as_str());
        let (runs, digest) = (self.runs(), proposal.unwrap_or("none"));
        Some(format!("review-{phase}-{runs}-{digest}"))
    }

    /// True if the point with this key is a review, and not an ask.
    #[must_use]
    pub fn is_review_key(&self, key: &str) -> bool {
        !self.asks.contains_key(key)
    }

    /// Keys of all points, except closed reviews that were not decided in a chat.
    pub fn point_keys(&self) -> impl Iterator<Item = String> {
        let asks = self.asks.keys().cloned();
        let decided = self.decided.keys().cloned();
        asks.chain(decided).chain(self.review_key())
    }

    /// Outcome of a point, for people to read; `None` while it is open, or if it is unknown.
    #[must_use]
    pub fn outcome_of(&self, key: &str) -> Option<String> {
        if let Some(how) = self.decided.get(key) {
            return Some(how.clone());
        }
        let in_time = |is_late: bool| match is_late {
            true => "not answered in time",
            false => "answered by a person",
        };
        match &self.asks.get(key)?.what {
            PersonInputKind::Question(_, _, Some(InputOutcome::Withdrawn)) => {
                Some("withdrawn".to_owned())
            }
            PersonInputKind::Question(_, _, Some(answer)) => {
                Some(in_time(matches!(answer, InputOutcome::TimedOut(_))).to_owned())
            }
            PersonInputKind::Dependency(_, Some(provision)) => {
                Some(in_time(matches!(provision, Provision::TimedOut(_))).to_owned())
            }
            PersonInputKind::Question(_, _, None) | PersonInputKind::Dependency(_, None) => None,
        }
    }
}

impl HistoryEntry {
    /// True if it opens or closes a point that a chat may decide.
    #[must_use]
    pub fn is_about_point(&self) -> bool {
        matches!(
            self.fact,
            TaskEvent::QuestionAsked { .. }
                | TaskEvent::QuestionAnswered { .. }
                | TaskEvent::DependencyRequested { .. }
                | TaskEvent::DependencyProvided { .. }
                | TaskEvent::ReviewRequested { .. }
                | TaskEvent::ReviewApproved { .. }
                | TaskEvent::ReviewReworked { .. }
                | TaskEvent::ReviewWithdrawn { .. }
                | TaskEvent::ProposalMade { .. }
                | TaskEvent::TaskCompleted {}
                | TaskEvent::TaskFailed { .. }
                | TaskEvent::TaskCancelled {}
        )
    }

    /// The fact of a decision in a chat.
    pub(crate) fn of_chat(decision: ChatDecision, timestamp: Timestamp) -> Self {
        let ChatDecision { about, by, how } = decision;
        let fact = TaskEvent::DecisionMade { about, by, how };
        Self { timestamp, fact }
    }
}
