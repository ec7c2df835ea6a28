//! Notifications to people by connections, and their progress.

use goondan_protocol::control::{TaskNotification, TaskNotificationState};
use goondan_protocol::time::Timestamp;

use super::State;
use crate::fact::Notification;
use crate::limits::NOTIFICATIONS_KEPT;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotificationStage {
    /// Not started.
    Requested,
    Begun,
    Sent,
    /// Failed, or unknown.
    Failed(String),
}

impl NotificationStage {
    /// True until it was delivered or failed.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Requested | Self::Begun)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotificationState {
    pub what: Notification,
    pub stage: NotificationStage,
    at: Timestamp,
}

/// All open notifications, and the most recent closed ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Notifications {
    kept: std::collections::BTreeMap<u64, NotificationState>,
    count: u64,
}

fn id_of(number: u64) -> String {
    format!("n-{number:04}")
}

impl Notifications {
    fn find(&self, id: &str) -> Option<(u64, &NotificationState)> {
        let number = id.strip_prefix("n-")?.parse().ok()?;
        Some((number, self.kept.get(&number)?))
    }

    pub(super) fn add(&mut self, what: &Notification, at: Timestamp) {
        self.count += 1;
        let told = NotificationState {
            what: what.clone(),
            stage: NotificationStage::Requested,
            at,
        };
        self.kept.insert(self.count, told);
    }

    pub(super) fn set(&mut self, id: &str, stage: NotificationStage) {
        let Some(number) = self.find(id).map(|(number, _)| number) else {
            return;
        };
        if let Some(told) = self.kept.get_mut(&number) {
            told.stage = stage;
        }
        let over = self.kept.iter().filter(|(_, told)| !told.stage.is_open());
        let over: Vec<u64> = over.map(|(number, _)| *number).collect();
        let surplus = over.len().saturating_sub(NOTIFICATIONS_KEPT);
        for number in over.into_iter().take(surplus) {
            self.kept.remove(&number);
        }
    }
}

impl State {
    /// The id of the next one.
    pub(crate) fn next_notification(&self) -> String {
        id_of(self.notifications.count + 1)
    }

    pub(crate) fn stage_of(&self, id: &str) -> Option<&NotificationStage> {
        self.notification(id).map(|told| &told.stage)
    }

    /// A notification, by its id.
    #[must_use]
    pub fn notification(&self, id: &str) -> Option<&NotificationState> {
        self.notifications.find(id).map(|(_, told)| told)
    }

    /// Open notifications, by their ids.
    pub fn open_notifications(&self) -> impl Iterator<Item = (String, &NotificationState)> {
        let kept = self.notifications.kept.iter();
        let open = kept.filter(|(_, told)| told.stage.is_open());
        open.map(|(number, told)| (id_of(*number), told))
    }

    /// Notifications as shown to clients.
    pub(crate) fn told_notifications(&self) -> Vec<TaskNotification> {
        let kept = self.notifications.kept.iter();
        let shown = kept.map(|(number, told)| {
            let (state, why) = match &told.stage {
                NotificationStage::Requested | NotificationStage::Begun => {
                    (TaskNotificationState::Waiting, None)
                }
                NotificationStage::Sent => (TaskNotificationState::Sent, None),
                NotificationStage::Failed(why) => {
                    (TaskNotificationState::Failed, Some(why.clone()))
                }
            };
            TaskNotification {
                id: id_of(*number),
                on: told.what.on,
                connection: told.what.connection.clone(),
                action: told.what.action.clone(),
                at: told.at,
                state,
                why,
            }
        });
        shown.collect()
    }
}
