//! Handles answers.

use goondan_protocol::ids::WorkspaceId;

use super::places::Place;
use super::{Asked, Effect, Node};
use crate::chain::Chain;
use crate::limits::{HEADS_MAX, PROBE_MS};
use crate::log::{PutAnswer, ReadAnswer};
use crate::owner;
use crate::standby;
use crate::wire::{Answer, Ask, LogHead};

impl Node {
    pub(super) fn answered(&mut self, now_ms: u64, id: u64, answer: Answer) {
        let Some(asked) = self.asked.remove(&id) else {
            return;
        };
        match (asked, answer) {
            (Asked::Put(workspace, attempt), answer) => {
                let answer = put(answer);
                if answer == PutAnswer::Done {
                    self.confirmed(now_ms);
                }
                let input = owner::Input::Put(attempt, answer);
                self.tell_owner(now_ms, &workspace, input);
            }
            (Asked::Seal(workspace, attempt), answer) => {
                let input = standby::Input::Sealed(attempt, put(answer));
                self.tell_standby(now_ms, &workspace, input);
            }
            (Asked::Look(workspace, attempt), answer) => {
                let input = owner::Input::Looked(attempt, read(answer));
                self.tell_owner(now_ms, &workspace, input);
            }
            (Asked::Read(workspace, attempt), answer) => {
                let answer = read(answer);
                let is_end = self.is_end(&workspace, &answer);
                self.tell_standby(now_ms, &workspace, standby::Input::Read(attempt, answer));
                if is_end {
                    self.caught_up(now_ms, &workspace);
                }
            }
            (Asked::Heads, Answer::Heads(heads)) => self.heads(now_ms, heads),
            (Asked::List, Answer::Listed(listed)) => self.listed(listed),
            (Asked::Trim(workspace), answer) => {
                self.trim_ended(&workspace);
                if let Answer::Trimmed(oldest) = answer {
                    self.trimmed(&workspace, oldest);
                }
            }
            (Asked::Forwarded(id), answer) => {
                let answer = Some(answer);
                self.effects.push(Effect::Forwarded { id, answer });
            }
            (Asked::Check, Answer::Checked(findings)) => {
                self.effects.push(Effect::Checked(Some(findings)));
            }
            (Asked::Check, _) => self.effects.push(Effect::Checked(None)),
            (Asked::Standing, Answer::Standing(trouble)) => self.trouble = trouble,
            (Asked::Probe(_), Answer::Noted) => self.confirmed(now_ms),
            (Asked::Probe(since_ms), _) => {
                self.unconfirmed_since_ms.get_or_insert(since_ms);
            }
            // These requests are repeated soon.
            (
                Asked::Heads | Asked::List | Asked::Beat | Asked::Standing | Asked::ForgetSnapshots,
                _,
            ) => {}
        }
    }

    /// The server has confirmed a commit.
    fn confirmed(&mut self, now_ms: u64) {
        self.unconfirmed_since_ms = None;
        self.probe_due_ms = now_ms.saturating_add(PROBE_MS);
    }

    /// True if a standby has applied the whole log.
    fn is_end(&self, workspace: &WorkspaceId, answer: &ReadAnswer) -> bool {
        let chain = self.places.get(workspace).map(Place::chain);
        let (Some(chain), ReadAnswer::Page(page)) = (chain, answer) else {
            return false;
        };
        page.records.is_empty() && page.head == chain.position()
    }

    fn heads(&mut self, now_ms: u64, heads: Vec<LogHead>) {
        for LogHead {
            workspace,
            head,
            heard,
            ..
        } in heads
        {
            let Some(place) = self.places.get_mut(&workspace) else {
                continue;
            };
            place.head = head;
            let is_news = head > place.chain().position();
            let epoch = place.chain().epoch();
            let owner = place.chain().owner();
            let taker = owner.and_then(|owner| owner.released.clone()).flatten();
            for heard in &heard {
                let is_new = self.hearing.hear(now_ms, heard);
                let beat = &heard.beat;
                let is_own = beat.node == self.id;
                if is_new && beat.owns && !is_own && beat.epoch >= epoch {
                    let input = standby::Input::Heard {
                        acknowledged: beat.position,
                    };
                    self.tell_standby(now_ms, &workspace, input);
                } else if is_new && !is_own && taker.as_ref() == Some(&beat.node) {
                    self.tell_standby(now_ms, &workspace, standby::Input::TakerHeard);
                }
            }
            if is_news {
                self.tell_standby(now_ms, &workspace, standby::Input::Told);
            }
            self.snapshot_if_due(now_ms, &workspace);
            self.trim_if_due(now_ms, &workspace);
        }
        self.rank(now_ms);
    }

    fn listed(&mut self, listed: Vec<WorkspaceId>) {
        if listed.len() >= HEADS_MAX {
            let after = listed.last().cloned();
            self.ask(Asked::List, Ask::List { after });
        }
        for workspace in listed {
            if !self.knows(&workspace) {
                self.effects.push(Effect::Found(workspace));
            }
        }
    }

    /// Updates the rank of each standby: the number of nodes that try before this one.
    pub(super) fn rank(&mut self, now_ms: u64) {
        let names: Vec<WorkspaceId> = self.places.keys().cloned().collect();
        for workspace in names {
            self.rank_of(now_ms, &workspace);
        }
    }

    pub(super) fn rank_of(&mut self, now_ms: u64, workspace: &WorkspaceId) {
        let place = self.places.get(workspace);
        if place.is_some_and(|place| place.unfit.is_some()) {
            return self.tell_standby(now_ms, workspace, standby::Input::Rank(None));
        }
        let chain = place.map(Place::chain);
        let owner = chain.and_then(Chain::owner).map(|owner| owner.node.clone());
        let mut rank = self.hearing.rank(now_ms, workspace, owner.as_ref());
        // Draining nodes come after all others.
        if self.drains {
            rank += self.hearing.nodes(now_ms);
        }
        self.tell_standby(now_ms, workspace, standby::Input::Rank(Some(rank)));
    }
}

fn put(answer: Answer) -> PutAnswer {
    match answer {
        Answer::Put(answer) => answer,
        // It was refused before it was tried.
        _ => PutAnswer::Unavailable,
    }
}

fn read(answer: Answer) -> ReadAnswer {
    match answer {
        Answer::Read(answer) => answer,
        _ => ReadAnswer::Unavailable,
    }
}
