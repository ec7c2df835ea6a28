//! Tracks the posted messages and decides the next action. Pure.

use std::collections::{HashMap, VecDeque};

use goondan_protocol::decision::{DecisionShow, DecisionSubject};
use goondan_protocol::ids::DecisionId;
use goondan_protocol::limits::MAX_DECISIONS_SHOWN;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::texts;
use super::{Message, Note};
use crate::gateway::DecisionNews;
use crate::limits::DECISION_NOTES_WAITING_MAX;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DecisionAction {
    Post(DecisionId, Message),
    /// Replace the message at this location.
    Edit(String, Message),
    /// Replace the message at this location, whose decision still waits.
    Update(String, Message),
    /// Send this notice to a user who pressed a button.
    Tell(String, String),
}

#[derive(Debug)]
struct PostedDecision {
    id: DecisionId,
    /// The decision to post; `None` once it is posted or no longer waits.
    show: Option<Box<DecisionShow>>,
    /// A newer text for the message, while the decision waits.
    update: Option<Message>,
    place: Option<String>,
    /// The start of its description.
    about: String,
    /// True if a reply to the message decides.
    takes_reply: bool,
    /// Its outcome, once it no longer waits.
    how: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DecisionMessageRecord {
    id: DecisionId,
    place: String,
    about: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    takes_reply: bool,
}

/// Stored state that prevents duplicate posts.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredDecisionMessages {
    approvals: Vec<DecisionMessageRecord>,
}

/// The decisions that are shown or will be, and the pending notices.
#[derive(Debug, Default)]
pub(super) struct DecisionPoller {
    entries: VecDeque<PostedDecision>,
    posting: Option<DecisionId>,
    /// Messages of decisions that were made lately and accepted replies. A late reply gets the
    /// outcome.
    decided: VecDeque<(String, DecisionId)>,
    tells: VecDeque<(String, String)>,
}

impl DecisionPoller {
    /// Restores the stored state. Unreadable state counts as empty.
    pub(super) fn of(state: Option<&RawValue>) -> Self {
        let read = state.map(|state| serde_json::from_str(state.get()));
        let remembered: StoredDecisionMessages = read.and_then(Result::ok).unwrap_or_default();
        let entries = remembered.approvals.into_iter().map(|kept| PostedDecision {
            id: kept.id,
            show: None,
            update: None,
            place: Some(kept.place),
            about: kept.about,
            takes_reply: kept.takes_reply,
            how: None,
        });
        Self {
            entries: entries.collect(),
            ..Self::default()
        }
    }

    /// Decisions with a posted message.
    pub(super) fn known(&self) -> Vec<DecisionId> {
        let posted = self.entries.iter().filter(|it| it.place.is_some());
        posted.map(|it| it.id.clone()).collect()
    }

    /// Locations of the messages that a reply decides, or decided lately.
    pub(super) fn reply_places(&self) -> HashMap<String, DecisionId> {
        let entries = self.entries.iter().filter(|it| it.takes_reply);
        let places = entries.filter_map(|it| Some((it.place.clone()?, it.id.clone())));
        places.chain(self.decided.iter().cloned()).collect()
    }

    pub(super) fn kept(&self) -> StoredDecisionMessages {
        let kept = self.entries.iter().filter_map(|entry| {
            Some(DecisionMessageRecord {
                id: entry.id.clone(),
                place: entry.place.clone()?,
                about: entry.about.clone(),
                takes_reply: entry.takes_reply,
            })
        });
        StoredDecisionMessages {
            approvals: kept.collect(),
        }
    }

    pub(super) fn hear(&mut self, news: DecisionNews) {
        match news {
            DecisionNews::Show(show) => {
                if self.entries.iter().any(|it| it.id == show.decision_id) {
                    return self.update(&show);
                }
                self.entries.push_back(PostedDecision {
                    id: show.decision_id.clone(),
                    place: None,
                    about: texts::about(&show),
                    takes_reply: texts::waits(&show).reply.is_some(),
                    how: None,
                    update: None,
                    show: Some(show),
                });
            }
            DecisionNews::Closed(closed) => {
                let posting = self.posting.clone();
                // A decision that was never shown needs no update.
                self.entries.retain(|it| {
                    let is_seen = it.place.is_some() || posting.as_ref() == Some(&it.id);
                    it.id != closed.decision_id || is_seen
                });
                let of_it = self.entries.iter_mut();
                for entry in of_it.filter(|it| it.id == closed.decision_id) {
                    (entry.show, entry.update) = (None, None);
                    entry.how = Some(closed.how.clone());
                }
            }
        }
    }

    /// Replaces the text of a decision that waits, because one of two people approved it.
    fn update(&mut self, show: &DecisionShow) {
        let DecisionSubject::Call {
            first_approval: Some(_),
            ..
        } = &show.about
        else {
            return;
        };
        let mut entries = self.entries.iter_mut();
        let mut waiting = entries
            .by_ref()
            .filter(|it| it.id == show.decision_id && it.how.is_none());
        if let Some(entry) = waiting.next() {
            entry.update = Some(texts::waits(show));
        }
    }

    /// Handles the result of a button press.
    pub(super) fn note(&mut self, note: Note) {
        if self.tells.len() < DECISION_NOTES_WAITING_MAX {
            self.tells.push_back((note.to, note.told));
        }
        // A message that is not in the stored state loses its buttons too.
        let places = self.entries.iter().map(|it| it.place.as_deref());
        let is_known = places.flatten().any(|place| place == note.place);
        if let Some(how) = note.how
            && !is_known
            && self.posting.as_ref() != Some(&note.decision_id)
            && self.entries.len() < MAX_DECISIONS_SHOWN
        {
            self.entries.push_back(PostedDecision {
                id: note.decision_id,
                show: None,
                update: None,
                place: Some(note.place),
                about: String::new(),
                takes_reply: false,
                how: Some(how),
            });
        }
    }

    /// Returns the next action; only pending notices while the service must not be called.
    pub(super) fn begin(&mut self, is_open: bool) -> Option<DecisionAction> {
        if let Some((to, text)) = self.tells.pop_front() {
            return Some(DecisionAction::Tell(to, text));
        }
        let mut entries = self.entries.iter().filter(|_| is_open);
        let work = entries.find_map(|entry| match (&entry.place, &entry.how, &entry.show) {
            (Some(place), Some(how), _) => {
                let message = texts::closed(&entry.id, how, &entry.about);
                Some(DecisionAction::Edit(place.clone(), message))
            }
            (Some(place), None, _) => {
                let message = entry.update.clone()?;
                Some(DecisionAction::Update(place.clone(), message))
            }
            (None, _, Some(show)) => {
                Some(DecisionAction::Post(entry.id.clone(), texts::waits(show)))
            }
            _ => None,
        })?;
        if let DecisionAction::Post(id, _) = &work {
            self.posting = Some(id.clone());
        }
        Some(work)
    }

    /// Records that a message was posted.
    pub(super) fn posted(&mut self, id: &DecisionId, place: String) {
        self.posting = None;
        let mut entries = self.entries.iter_mut();
        if let Some(entry) = entries.find(|it| it.id == *id && it.place.is_none()) {
            entry.place = Some(place);
            entry.show = None;
        }
    }

    /// Records that a message has its newer text.
    pub(super) fn updated(&mut self, place: &str) {
        let mut entries = self.entries.iter_mut();
        if let Some(entry) = entries.find(|it| it.place.as_deref() == Some(place)) {
            entry.update = None;
        }
    }

    /// Records that a message shows its decision as no longer waiting.
    pub(super) fn edited(&mut self, place: &str) {
        let is_it = |it: &PostedDecision| it.place.as_deref() == Some(place);
        let mut replied = self.entries.iter().filter(|it| it.takes_reply && is_it(it));
        if let Some(entry) = replied.next() {
            if self.decided.len() >= MAX_DECISIONS_SHOWN {
                self.decided.pop_front();
            }
            self.decided.push_back((place.to_owned(), entry.id.clone()));
        }
        self.entries.retain(|it| !is_it(it));
    }

    /// Records a failed action. Other actions are tried before it is retried. Returns true if it is
    /// abandoned.
    pub(super) fn failed(&mut self, work: &DecisionAction, is_final: bool) -> bool {
        self.posting = None;
        let is_of_work = |entry: &PostedDecision| match work {
            DecisionAction::Post(id, _) => entry.id == *id && entry.place.is_none(),
            DecisionAction::Edit(place, _) | DecisionAction::Update(place, _) => {
                entry.place.as_deref() == Some(place)
            }
            DecisionAction::Tell(..) => false,
        };
        let at = self.entries.iter().position(is_of_work);
        let Some(mut entry) = at.and_then(|at| self.entries.remove(at)) else {
            return false;
        };
        if let DecisionAction::Update(..) = work {
            // The message keeps its buttons, with the older text.
            entry.update = entry.update.filter(|_| !is_final);
            self.entries.push_back(entry);
            return false;
        }
        let is_unseen = entry.place.is_none() && entry.how.is_some();
        let gives_up = is_final && entry.place.is_some();
        if !is_unseen && !gives_up {
            self.entries.push_back(entry);
        }
        gives_up
    }
}

#[cfg(test)]
mod tests {
    use goondan_protocol::decision::{DecisionClosed, DecisionForm};
    use serde_json::json;
    use serde_json::value::to_raw_value;

    use super::*;

    fn id(text: &str) -> DecisionId {
        text.parse().unwrap()
    }

    fn show(text: &str) -> DecisionNews {
        DecisionNews::Show(Box::new(DecisionShow {
            decision_id: id(text),
            about: DecisionSubject::Call {
                instance_key: "k".parse().unwrap(),
                agent_name: "a".parse().unwrap(),
                tool_name: "bash__exec".to_owned(),
                input: json!({"command": "ls"}),
                may_have_begun: false,
                needs_two: false,
                first_approval: None,
            },
            form: DecisionForm::default(),
            expires: None,
        }))
    }

    fn close(text: &str) -> DecisionNews {
        DecisionNews::Closed(DecisionClosed {
            decision_id: id(text),
            how: "denied by a person".to_owned(),
        })
    }

    fn begin_post(desk: &mut DecisionPoller) -> DecisionId {
        match desk.begin(true) {
            Some(DecisionAction::Post(id, message)) => {
                assert!(message.buttons.is_some());
                id
            }
            other => panic!("{other:?}"),
        }
    }

    fn begin_edit(desk: &mut DecisionPoller) -> String {
        match desk.begin(true) {
            Some(DecisionAction::Edit(place, message)) => {
                assert_eq!(message.buttons, None);
                assert!(message.body.contains("denied by a person"), "{message:?}");
                place
            }
            other => panic!("{other:?}"),
        }
    }

    /// The state of a process that starts with the stored state of this one.
    fn restarted(desk: &DecisionPoller) -> DecisionPoller {
        DecisionPoller::of(Some(&to_raw_value(&desk.kept()).unwrap()))
    }

    #[test]
    fn steer_3_approval_is_posted_once_and_decision_removes_buttons() {
        let mut desk = DecisionPoller::of(None);
        desk.hear(show("a-1"));
        assert_eq!(begin_post(&mut desk), id("a-1"));
        assert_eq!(desk.known(), []);
        desk.posted(&id("a-1"), "5:1001".to_owned());
        assert_eq!(desk.begin(true), None);
        let mut desk = restarted(&desk);
        assert_eq!(desk.known(), [id("a-1")]);
        desk.hear(show("a-1"));
        assert_eq!(desk.begin(true), None, "it is there already");
        desk.hear(close("a-1"));
        assert_eq!(restarted(&desk).known(), [id("a-1")], "it is still there");
        assert_eq!(begin_edit(&mut desk), "5:1001");
        desk.edited("5:1001");
        assert_eq!((desk.begin(true), desk.known()), (None, vec![]));
    }

    /// The call with the first of two approvals.
    fn approved_by_one(text: &str) -> DecisionNews {
        let DecisionNews::Show(mut news) = show(text) else {
            panic!("it is shown");
        };
        if let DecisionSubject::Call {
            needs_two,
            first_approval,
            ..
        } = &mut news.about
        {
            *needs_two = true;
            *first_approval = Some("1 of 2, by telegram:7".to_owned());
        }
        DecisionNews::Show(news)
    }

    #[test]
    fn need_1_first_of_two_approvals_updates_the_message() {
        let mut desk = DecisionPoller::of(None);
        desk.hear(show("a-1"));
        begin_post(&mut desk);
        // It was approved while it was being posted.
        desk.hear(approved_by_one("a-1"));
        desk.posted(&id("a-1"), "p".to_owned());
        let update = |desk: &mut DecisionPoller| match desk.begin(true) {
            Some(DecisionAction::Update(place, message)) => {
                assert!(message.buttons.is_some() && place == "p");
                let shown = "Two people must approve it; approved: 1 of 2, by telegram:7.";
                assert!(message.head.contains(shown), "{message:?}");
                DecisionAction::Update(place, message)
            }
            other => panic!("{other:?}"),
        };
        let failed = update(&mut desk);
        assert!(!desk.failed(&failed, false), "it is tried again");
        update(&mut desk);
        desk.updated("p");
        assert_eq!((desk.begin(true), desk.known()), (None, vec![id("a-1")]));
        // The outcome comes first, and an update that the service rejects is abandoned.
        desk.hear(approved_by_one("a-1"));
        let failed = update(&mut desk);
        assert!(!desk.failed(&failed, true), "the message is still there");
        assert_eq!(desk.begin(true), None);
        desk.hear(approved_by_one("a-1"));
        desk.hear(close("a-1"));
        assert_eq!(begin_edit(&mut desk), "p");
        desk.edited("p");
        assert_eq!((desk.begin(true), desk.known()), (None, vec![]));
    }

    #[test]
    fn steer_3_approval_decided_before_posting_is_never_posted() {
        let mut desk = DecisionPoller::of(None);
        desk.hear(show("a-1"));
        assert_eq!(desk.begin(false), None, "the service must not be called");
        desk.hear(close("a-1"));
        assert_eq!(desk.begin(true), None);
        // A message that is being posted is updated once it exists.
        desk.hear(show("a-2"));
        begin_post(&mut desk);
        desk.hear(close("a-2"));
        desk.posted(&id("a-2"), "p".to_owned());
        assert_eq!(begin_edit(&mut desk), "p");
        desk.edited("p");
        // If posting fails, the entry is removed.
        desk.hear(show("a-3"));
        let work = desk.begin(true).unwrap();
        desk.hear(close("a-3"));
        assert!(!desk.failed(&work, false));
        assert_eq!(desk.begin(true), None);
    }

    #[test]
    fn steer_3_a_message_that_cannot_be_posted_holds_up_no_other() {
        let mut desk = DecisionPoller::of(None);
        desk.hear(show("a-1"));
        desk.hear(show("a-2"));
        let work = desk.begin(true).unwrap();
        assert!(!desk.failed(&work, true), "a call is never given up");
        assert_eq!(begin_post(&mut desk), id("a-2"));
        desk.posted(&id("a-2"), "p2".to_owned());
        assert_eq!(begin_post(&mut desk), id("a-1"));
        desk.posted(&id("a-1"), "p1".to_owned());
        // A deleted message is abandoned.
        desk.hear(close("a-2"));
        let work = desk.begin(true).unwrap();
        assert!(desk.failed(&work, true));
        assert_eq!((desk.begin(true), desk.known()), (None, vec![id("a-1")]));
    }

    #[test]
    fn steer_3_unknown_message_loses_its_buttons_when_pressed() {
        let mut desk = DecisionPoller::of(None);
        let pressed = |place: &str, how: Option<&str>| Note {
            decision_id: id("a-1"),
            place: place.to_owned(),
            to: "q".to_owned(),
            told: "Nothing changed.".to_owned(),
            how: how.map(str::to_owned),
        };
        let tell = DecisionAction::Tell("q".to_owned(), "Nothing changed.".to_owned());
        desk.note(pressed("p", None));
        assert_eq!(desk.begin(false), Some(tell.clone()));
        assert_eq!(desk.begin(true), None);
        desk.note(pressed("p", Some("denied by a person")));
        assert_eq!(desk.begin(true), Some(tell));
        assert_eq!(begin_edit(&mut desk), "p");
    }

    #[test]
    fn need_2_replies_are_assigned_to_their_messages_after_a_restart() {
        let mut desk = DecisionPoller::of(None);
        desk.hear(show("a-1"));
        let DecisionNews::Show(mut question) = show("t-1") else {
            panic!("no message");
        };
        question.form.reply = Some("answer".to_owned());
        desk.hear(DecisionNews::Show(question));
        for place in ["p1", "p2"] {
            let posted = begin_post(&mut desk);
            desk.posted(&posted, place.to_owned());
        }
        let expected = HashMap::from([("p2".to_owned(), id("t-1"))]);
        assert_eq!(desk.reply_places(), expected);
        let mut desk = restarted(&desk);
        assert_eq!(desk.reply_places(), expected);
        desk.hear(close("t-1"));
        assert_eq!(begin_edit(&mut desk), "p2");
        desk.edited("p2");
        assert_eq!(desk.reply_places(), expected, "a late reply is answered");
        assert_eq!(restarted(&desk).reply_places(), HashMap::new());
    }

    #[test]
    fn foreign_stored_state_is_ignored() {
        let raw = to_raw_value(&json!([1])).unwrap();
        assert_eq!(DecisionPoller::of(Some(&raw)).known(), []);
    }
}
