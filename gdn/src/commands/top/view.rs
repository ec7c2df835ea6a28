//! Views of `gdn top`.

use clap::ValueEnum;

/// A view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum View {
    /// Open decisions, working agents, and recent events
    Overview,
    /// All conversations
    Conversations,
    /// All processes
    Processes,
    /// Live events
    Events,
    /// Usage of model replies, and budgets
    Budgets,
    /// The log
    Logs,
}

impl View {
    /// All views, in the order of their keys.
    pub(super) const ALL: [Self; 6] = [
        Self::Overview,
        Self::Conversations,
        Self::Processes,
        Self::Events,
        Self::Budgets,
        Self::Logs,
    ];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Conversations => "Conversations",
            Self::Processes => "Processes",
            Self::Events => "Events",
            Self::Budgets => "Budgets",
            Self::Logs => "Logs",
        }
    }

    pub(super) fn place(self) -> usize {
        let found = Self::ALL.iter().position(|view| *view == self);
        found.unwrap_or_default()
    }

    /// View for a key: `1` is the first.
    pub(super) fn of_key(key: char) -> Option<Self> {
        let place = key.to_digit(10)?.checked_sub(1)?;
        Self::ALL.get(usize::try_from(place).ok()?).copied()
    }

    /// View that is `by` places further, with wrap-around.
    pub(super) fn moved(self, by: usize) -> Self {
        let place = (self.place() + by) % Self::ALL.len();
        Self::ALL.get(place).copied().unwrap_or(self)
    }

    /// True if the view has selectable rows; false if it scrolls text.
    pub(super) fn has_rows(self) -> bool {
        matches!(self, Self::Overview | Self::Conversations | Self::Processes)
    }
}
