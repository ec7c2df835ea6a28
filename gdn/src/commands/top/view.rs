//! Views of `gdn top`.

use clap::ValueEnum;

/// A view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum View {
    /// Problems, working agents, and recent events
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
    /// Everything that needs a person
    Inbox,
}

/// Views of one project, in the order of their keys.
const OF_PROJECT: [View; View::COUNT] = [
    View::Overview,
    View::Conversations,
    View::Processes,
    View::Events,
    View::Budgets,
    View::Logs,
    View::Inbox,
];
/// Views of all workspaces, in the order of their keys.
const OF_ALL: [View; 2] = [View::Inbox, View::Processes];

/// Workspaces that are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    Project,
    All,
}

impl Scope {
    /// Views, in the order of their keys.
    pub(super) fn views(self) -> &'static [View] {
        match self {
            Self::Project => &OF_PROJECT,
            Self::All => &OF_ALL,
        }
    }

    pub(super) fn first(self) -> View {
        match self {
            Self::Project => View::Overview,
            Self::All => View::Inbox,
        }
    }

    /// View for a key: `1` is the first.
    pub(super) fn view_of_key(self, key: char) -> Option<View> {
        let place = key.to_digit(10)?.checked_sub(1)?;
        self.views().get(usize::try_from(place).ok()?).copied()
    }

    /// Place of a view among the keys.
    pub(super) fn place(self, view: View) -> usize {
        let found = self.views().iter().position(|it| *it == view);
        found.unwrap_or_default()
    }

    /// View that is `by` places further, with wrap-around.
    pub(super) fn moved(self, view: View, by: usize) -> View {
        let place = (self.place(view) + by) % self.views().len();
        self.views().get(place).copied().unwrap_or(view)
    }
}

impl View {
    /// Number of views.
    pub(super) const COUNT: usize = 7;

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Conversations => "Conversations",
            Self::Processes => "Processes",
            Self::Events => "Events",
            Self::Budgets => "Budgets",
            Self::Logs => "Logs",
            Self::Inbox => "Inbox",
        }
    }

    /// Place in arrays of all views.
    pub(super) fn index(self) -> usize {
        Scope::Project.place(self)
    }

    /// True if the view has selectable rows; false if it scrolls text.
    pub(super) fn has_rows(self) -> bool {
        match self {
            Self::Overview | Self::Conversations | Self::Processes | Self::Inbox => true,
            Self::Events | Self::Budgets | Self::Logs => false,
        }
    }
}
