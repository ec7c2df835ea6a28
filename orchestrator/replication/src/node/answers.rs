//! Handles answers.

use goondan_protocol::ids::WorkspaceId;

use super::places::HostedWorkspace;
use super::{NodeEffect, ReplicationNode, RequestOrigin};
use crate::chain::Chain;
use crate::limits::{HEADS_MAX, PROBE_MS};
use crate::log::{PutAnswer, ReadAnswer};
use crate::owner;
use crate::standby;
use crate::wire::{LogAnswer, LogCommand, LogHead};

impl ReplicationNode {
    pub(super) fn answered(&mut self, now_ms: u64, id: u64, answer: LogAnswer) {
        let Some(asked) = self.asked.remove(&id) else {
            return;
        };
        match (asked, answer) {
            (RequestOrigin::Put(workspace, attempt), answer) => {
                let answer = put(answer);
                if answer == PutAnswer::Done {
                    self.confirmed(now_ms);
                }
                let input = owner::OwnerInput::Put(attempt, answer);
                self.tell_owner(now_ms, &workspace, input);
            }
            (RequestOrigin::Seal(workspace, attempt), answer) => {
                let input = standby::StandbyInput::Sealed(attempt, put(answer));
                self.tell_standby(now_ms, &workspace, input);
            }
            (RequestOrigin::Look(workspace, attempt), answer) => {
                let input = owner::OwnerInput::Looked(attempt, read(answer));
                self.tell_owner(now_ms, &workspace, input);
            }
            (RequestOrigin::Read(workspace, attempt), answer) => {
                let answer = read(answer);
                let is_end = self.is_end(&workspace, &answer);
                self.tell_standby(
                    now_ms,
                    &workspace,
                    standby::StandbyInput::Read(attempt, answer),
                );
                if is_end {
                    self.caught_up(now_ms, &workspace);
                }
            }
            (RequestOrigin::Heads, LogAnswer::Heads(heads)) => self.heads(now_ms, heads),
            (RequestOrigin::List, LogAnswer::Listed(listed)) => self.listed(listed),
            (RequestOrigin::Trim(workspace), answer) => {
                self.trim_ended(&workspace);
                if let LogAnswer::Trimmed(oldest) = answer {
                    self.trimmed(&workspace, oldest);
                }
            }
            (RequestOrigin::Forwarded(id), answer) => {
                let answer = Some(answer);
                self.effects.push(NodeEffect::Forwarded { id, answer });
            }
            (RequestOrigin::Check, LogAnswer::Checked(findings)) => {
                self.effects.push(NodeEffect::Checked(Some(findings)));
            }
            (RequestOrigin::Check, _) => self.effects.push(NodeEffect::Checked(None)),
            (RequestOrigin::Standing, LogAnswer::Standing(trouble)) => self.trouble = trouble,
            (RequestOrigin::Probe(_), LogAnswer::Noted) => self.confirmed(now_ms),
            (RequestOrigin::Probe(since_ms), _) => {
                self.unconfirmed_since_ms.get_or_insert(since_ms);
            }
            // These requests are repeated soon.
            (
                RequestOrigin::Heads
                | RequestOrigin::List
                | RequestOrigin::Beat
                | RequestOrigin::Standing
                | RequestOrigin::ForgetSnapshots,
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
        let chain = self.places.get(workspace).map(HostedWorkspace::chain);
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
                    let input = standby::StandbyInput::Heard {
                        acknowledged: beat.position,
                    };
                    self.tell_standby(now_ms, &workspace, input);
                } else if is_new && !is_own && taker.as_ref() == Some(&beat.node) {
                    self.tell_standby(now_ms, &workspace, standby::StandbyInput::TakerHeard);
                }
            }
            if is_news {
                self.tell_standby(now_ms, &workspace, standby::StandbyInput::Told);
            }
            self.snapshot_if_due(now_ms, &workspace);
            self.trim_if_due(now_ms, &workspace);
        }
        self.rank(now_ms);
    }

    fn listed(&mut self, listed: Vec<WorkspaceId>) {
        if listed.len() >= HEADS_MAX {
            let after = listed.last().cloned();
            self.ask(RequestOrigin::List, LogCommand::List { after });
        }
        for workspace in listed {
            if !self.knows(&workspace) {
                self.effects.push(NodeEffect::Found(workspace));
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
            return self.tell_standby(now_ms, workspace, standby::StandbyInput::Rank(None));
        }
        let chain = place.map(HostedWorkspace::chain);
        let owner = chain.and_then(Chain::owner).map(|owner| owner.node.clone());
        let mut rank = self.hearing.rank(now_ms, workspace, owner.as_ref());
        // Draining nodes come after all others.
        if self.drains {
            rank += self.hearing.nodes(now_ms);
        }
        self.tell_standby(now_ms, workspace, standby::StandbyInput::Rank(Some(rank)));
    }
}

fn put(answer: LogAnswer) -> PutAnswer {
    match answer {
        LogAnswer::Put(answer) => answer,
        // It was refused before it was tried.
        _ => PutAnswer::Unavailable,
    }
}

fn read(answer: LogAnswer) -> ReadAnswer {
    match answer {
        LogAnswer::Read(answer) => answer,
        _ => ReadAnswer::Unavailable,
    }
}
