//! Clients that watch workspaces, and the backlog of events for them.

use std::collections::{BTreeMap, HashSet, VecDeque};

use goondan_protocol::control::{WatchCursor, WatchUpdate};
use goondan_protocol::ids::{InstanceKey, InstanceRef, WorkspaceId};
use goondan_protocol::lifecycle::LifecycleEvent;
use goondan_protocol::time::Timestamp;

use crate::RequestToken;
use crate::limits::WATCH_BACKLOG_EVENTS;

#[derive(Debug, Clone, PartialEq)]
pub struct WatchNotification {
    /// Cursor to resume after it.
    pub cursor: WatchCursor,
    pub at: Timestamp,
    pub update: WatchUpdate,
}

#[derive(Debug)]
struct Watchers {
    /// Distinguishes these events from those of an earlier opening of the workspace.
    epoch: u64,
    /// Number of events so far.
    count: u64,
    backlog: VecDeque<(Timestamp, LifecycleEvent)>,
    tokens: Vec<RequestToken>,
    /// Followers of a conversation's turns.
    followers: Vec<(InstanceKey, RequestToken)>,
}

impl Watchers {
    /// Creates an empty list. Each opening of a workspace has a unique epoch.
    fn new(epoch: u64) -> Self {
        Self {
            epoch,
            count: 0,
            backlog: VecDeque::new(),
            tokens: Vec::new(),
            followers: Vec::new(),
        }
    }

    /// Cursor after the latest event.
    fn cursor(&self) -> WatchCursor {
        self.cursor_at(self.count)
    }

    fn cursor_at(&self, count: u64) -> WatchCursor {
        WatchCursor {
            epoch: self.epoch,
            count,
        }
    }

    /// Events after a cursor; `None` if they are no longer available.
    fn since(&self, cursor: WatchCursor) -> Option<Vec<WatchNotification>> {
        let missed = self.count.checked_sub(cursor.count)?;
        let missed = usize::try_from(missed).ok()?;
        let known = self.backlog.len().checked_sub(missed)?;
        if cursor.epoch != self.epoch {
            return None;
        }
        let told = self.backlog.iter().skip(known);
        let counts = cursor.count + 1..;
        let told = told
            .zip(counts)
            .map(|((at, event), count)| WatchNotification {
                cursor: self.cursor_at(count),
                at: *at,
                update: WatchUpdate::Event(event.clone()),
            });
        Some(told.collect())
    }

    fn add(&mut self, token: RequestToken) {
        self.tokens.push(token);
    }

    /// Adds a follower of a conversation's turns.
    fn follow(&mut self, key: InstanceKey, token: RequestToken) {
        self.followers.push((key, token));
    }

    /// Followers of a conversation's turns.
    fn followers_of(&self, key: &InstanceKey) -> impl Iterator<Item = RequestToken> {
        let followers = self.followers.iter().filter(move |(of, _)| of == key);
        followers.map(|(_, token)| *token)
    }

    /// Removes disconnected watchers and followers.
    fn forget(&mut self, gone: &HashSet<RequestToken>) {
        self.tokens.retain(|token| !gone.contains(token));
        self.followers.retain(|(_, token)| !gone.contains(token));
    }

    /// Removes and returns all watchers and followers.
    fn take_all(&mut self) -> Vec<RequestToken> {
        let mut all = std::mem::take(&mut self.tokens);
        let followers = std::mem::take(&mut self.followers);
        all.extend(followers.into_iter().map(|(_, token)| token));
        all
    }

    /// Records an event. Returns the watchers to notify and the notification.
    fn happened(
        &mut self,
        at: Timestamp,
        event: LifecycleEvent,
    ) -> Option<(&[RequestToken], WatchNotification)> {
        self.count += 1;
        let told = (!self.tokens.is_empty()).then(|| WatchNotification {
            cursor: self.cursor(),
            at,
            update: WatchUpdate::Event(event.clone()),
        });
        if self.backlog.len() >= WATCH_BACKLOG_EVENTS {
            self.backlog.pop_front();
        }
        self.backlog.push_back((at, event));
        told.map(|told| (self.tokens.as_slice(), told))
    }
}

/// Clients that watch a workspace, all workspaces, or the turns of a conversation.
///
/// Each event of an open workspace is sent to each watcher exactly once, in order. A watcher that
/// reconnects with a cursor receives the missed events, or a snapshot if they are no longer
/// available.
#[derive(Debug, Default)]
pub(crate) struct Audience {
    workspaces: BTreeMap<WorkspaceId, Watchers>,
    /// Watchers of all workspaces, including later ones.
    of_all: Vec<RequestToken>,
}

impl Audience {
    /// Accepts watchers of a workspace. `epoch` applies only if it was not open.
    pub(crate) fn open(&mut self, id: &WorkspaceId, epoch: u64) {
        let watchers = self.workspaces.entry(id.clone());
        watchers.or_insert_with(|| Watchers::new(epoch));
    }

    /// Drops a workspace, and returns its watchers and followers.
    pub(crate) fn close(&mut self, id: &WorkspaceId) -> Vec<RequestToken> {
        let watchers = self.workspaces.remove(id);
        watchers.map_or_else(Vec::new, |mut watchers| watchers.take_all())
    }

    /// Adds a watcher of all workspaces.
    pub(crate) fn watch_all(&mut self, token: RequestToken) {
        self.of_all.push(token);
    }

    /// Adds a watcher. Returns the events after its cursor; `None` if they are no longer
    /// available.
    pub(super) fn watch(
        &mut self,
        id: &WorkspaceId,
        token: RequestToken,
        after: Option<WatchCursor>,
    ) -> Option<Vec<WatchNotification>> {
        let watchers = self.workspaces.get_mut(id)?;
        let missed = after.and_then(|cursor| watchers.since(cursor));
        watchers.add(token);
        missed
    }

    /// Adds a follower of a conversation's turns. False if the workspace is not open.
    pub(super) fn follow(&mut self, at: InstanceRef, token: RequestToken) -> bool {
        let watchers = self.workspaces.get_mut(&at.workspace_id);
        watchers.is_some_and(|watchers| {
            watchers.follow(at.instance_key, token);
            true
        })
    }

    /// Followers of a conversation's turns.
    pub(super) fn followers_of(&self, at: &InstanceRef) -> impl Iterator<Item = RequestToken> {
        let watchers = self.workspaces.get(&at.workspace_id).into_iter();
        watchers.flat_map(|watchers| watchers.followers_of(&at.instance_key))
    }

    /// The current state of a workspace, for one watcher; `None` if it is not open.
    pub(super) fn snapshot(
        &self,
        id: &WorkspaceId,
        at: Timestamp,
        update: WatchUpdate,
    ) -> Option<WatchNotification> {
        let cursor = self.workspaces.get(id)?.cursor();
        Some(WatchNotification { cursor, at, update })
    }

    /// Records an event. Returns the notifications, in order.
    pub(super) fn happened(
        &mut self,
        id: &WorkspaceId,
        at: Timestamp,
        event: LifecycleEvent,
    ) -> Vec<(RequestToken, WatchNotification)> {
        let Some(watchers) = self.workspaces.get_mut(id) else {
            return Vec::new();
        };
        let of_all = (!self.of_all.is_empty()).then(|| event.clone());
        let mut told = Vec::new();
        if let Some((tokens, notification)) = watchers.happened(at, event) {
            told.extend(tokens.iter().map(|token| (*token, notification.clone())));
        }
        if let Some(event) = of_all {
            let notification = WatchNotification {
                cursor: watchers.cursor(),
                at,
                update: WatchUpdate::Event(event),
            };
            let tokens = self.of_all.iter();
            told.extend(tokens.map(|token| (*token, notification.clone())));
        }
        told
    }

    /// Removes disconnected watchers and followers.
    pub(crate) fn forget(&mut self, gone: &HashSet<RequestToken>) {
        self.of_all.retain(|token| !gone.contains(token));
        for watchers in self.workspaces.values_mut() {
            watchers.forget(gone);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: u64) -> LifecycleEvent {
        LifecycleEvent::InstanceDeleted {
            instance_key: name.to_string().parse().unwrap(),
        }
    }

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_unix_millis(ms)
    }

    fn names(told: &[WatchNotification]) -> Vec<(u64, WatchUpdate)> {
        told.iter()
            .map(|told| (told.cursor.count, told.update.clone()))
            .collect()
    }

    #[test]
    fn reconnected_watcher_gets_events_after_its_cursor_once() {
        let mut watchers = Watchers::new(7);
        let begin = watchers.cursor();
        for name in 1..=3 {
            assert!(watchers.happened(at(8), event(name)).is_none());
        }
        let missed = watchers.since(begin).unwrap();
        let expected = (1..=3).map(|name| (name, WatchUpdate::Event(event(name))));
        assert_eq!(names(&missed), expected.collect::<Vec<_>>());
        assert_eq!(watchers.since(missed[1].cursor).unwrap(), missed[2..]);
        assert_eq!(watchers.since(watchers.cursor()), Some(Vec::new()));
    }

    #[test]
    fn foreign_future_or_expired_cursor_is_unknown() {
        let mut watchers = Watchers::new(7);
        let begin = watchers.cursor();
        let other = Watchers::new(8).cursor();
        watchers.happened(at(8), event(0));
        assert_eq!(watchers.since(other), None);
        let mut ahead = watchers.cursor();
        ahead.count += 1;
        assert_eq!(watchers.since(ahead), None);
        for name in 1..=WATCH_BACKLOG_EVENTS as u64 {
            watchers.happened(at(8), event(name));
        }
        assert_eq!(watchers.since(begin), None);
        assert_eq!(watchers.backlog.len(), WATCH_BACKLOG_EVENTS);
    }

    #[test]
    fn watchers_are_notified_at_once_until_they_leave() {
        let mut watchers = Watchers::new(7);
        let (first, second) = (RequestToken(1), RequestToken(2));
        watchers.add(first);
        watchers.add(second);
        let (tokens, told) = watchers.happened(at(9), event(1)).unwrap();
        assert_eq!((tokens, told.at), (&[first, second][..], at(9)));
        watchers.forget(&[first].into());
        let (tokens, _) = watchers.happened(at(9), event(2)).unwrap();
        assert_eq!(tokens, [second]);
        assert_eq!(watchers.take_all(), [second]);
        assert!(watchers.happened(at(9), event(3)).is_none());
    }

    #[test]
    fn conversation_watcher_gets_only_events_of_its_conversation() {
        let mut watchers = Watchers::new(7);
        let (first, second, third) = (RequestToken(1), RequestToken(2), RequestToken(3));
        let (one, other): (InstanceKey, InstanceKey) =
            ("one".parse().unwrap(), "other".parse().unwrap());
        for (key, token) in [(&one, first), (&other, second), (&one, third)] {
            watchers.follow(key.clone(), token);
        }
        let of = |watchers: &Watchers, key| watchers.followers_of(key).collect::<Vec<_>>();
        assert_eq!(of(&watchers, &one), [first, third]);
        watchers.forget(&[first].into());
        assert_eq!(of(&watchers, &one), [third]);
        assert_eq!(watchers.take_all(), [second, third]);
        assert_eq!(of(&watchers, &other), []);
    }
}
