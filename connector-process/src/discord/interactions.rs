//! Commands and buttons that can still be answered.
//!
//! Each carries the right to answer for fifteen minutes. The right is kept only in memory, because
//! its holder can speak for the application. After a restart of this process, answers are sent as
//! messages of the bot.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::limits::{DISCORD_ANSWER_WINDOW_MS, DISCORD_INTERACTIONS_MAX};

/// The right to answer one interaction.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct InteractionToken {
    /// The channel that the answer appears in.
    pub(super) channel: String,
    pub(super) application: String,
    /// The token of the interaction. Never shown.
    pub(super) token: String,
    /// True if the first answer, which people wait for, was given.
    pub(super) is_answered: bool,
}

impl std::fmt::Debug for InteractionToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Right")
            .field("application", &self.application)
            .field("is_answered", &self.is_answered)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct OpenInteraction {
    id: String,
    since: Instant,
    right: InteractionToken,
}

/// Interactions that can still be answered, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Interactions {
    open: Mutex<VecDeque<OpenInteraction>>,
}

impl Interactions {
    /// Adds an interaction; a duplicate changes nothing.
    pub(super) fn begin(&self, id: &str, channel: &str, (application, token): (&str, &str)) {
        self.with(|open| {
            if open.iter().any(|known| known.id == id) {
                return;
            }
            if open.len() >= DISCORD_INTERACTIONS_MAX {
                open.pop_front();
            }
            let right = InteractionToken {
                channel: channel.to_owned(),
                application: application.to_owned(),
                token: token.to_owned(),
                is_answered: false,
            };
            let (id, since) = (id.to_owned(), Instant::now());
            open.push_back(OpenInteraction { id, since, right });
        });
    }

    /// The right to answer an interaction, if it still exists.
    pub(super) fn right(&self, id: &str) -> Option<InteractionToken> {
        self.with(|open| {
            let found = open.iter().find(|known| known.id == id);
            found.map(|known| known.right.clone())
        })
    }

    /// Records that the first answer was given.
    pub(super) fn answered(&self, id: &str) {
        self.with(|open| {
            if let Some(known) = open.iter_mut().find(|known| known.id == id) {
                known.right.is_answered = true;
            }
        });
    }

    /// Removes an interaction that can no longer be answered.
    pub(super) fn forget(&self, id: &str) {
        self.with(|open| open.retain(|known| known.id != id));
    }

    fn with<T>(&self, work: impl FnOnce(&mut VecDeque<OpenInteraction>) -> T) -> T {
        let mut open = match self.open.lock() {
            Ok(open) => open,
            // A poisoned lock is safe to use, because no update here can be left half done.
            Err(poisoned) => poisoned.into_inner(),
        };
        let window = Duration::from_millis(DISCORD_ANSWER_WINDOW_MS);
        while open
            .front()
            .is_some_and(|oldest| oldest.since.elapsed() >= window)
        {
            open.pop_front();
        }
        work(&mut open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_is_kept_until_it_is_spent_and_only_so_many_are() {
        let interactions = Interactions::default();
        interactions.begin("1", "c", ("app", "secret"));
        interactions.answered("1");
        interactions.begin("1", "c", ("app", "secret"));
        let right = interactions.right("1").unwrap();
        assert!(right.is_answered);
        assert!(!format!("{interactions:?}").contains("secret"));
        interactions.forget("1");
        assert_eq!(interactions.right("1"), None);
        for n in 0..=DISCORD_INTERACTIONS_MAX {
            interactions.begin(&n.to_string(), "c", ("app", "t"));
        }
        assert_eq!(interactions.right("0"), None);
        assert!(interactions.right("1").is_some());
    }
}
