//! A conversation's own configuration, on top of the project's.

use goondan_protocol::definition::AgentDefinition;

use crate::exchange::BundleStanding;

/// An instance's own configuration, on top of the project's.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    next: NextDefinition,
    pub(super) standing: BundleStanding,
}

/// State of the lookup of the next process's definition.
#[derive(Debug, Default)]
enum NextDefinition {
    #[default]
    Unknown,
    Asked,
    /// Found; `None` means the project's definition. Used once.
    Known(Option<Box<AgentDefinition>>),
}

impl Overlay {
    /// True if the next process's definition is known.
    pub(super) fn is_known(&self) -> bool {
        matches!(self.next, NextDefinition::Known(_))
    }

    /// Begins the lookup of the next process's definition. False if it is in progress or not
    /// needed.
    pub(super) fn begin_lookup(&mut self) -> bool {
        let is_unknown = matches!(self.next, NextDefinition::Unknown);
        if is_unknown {
            self.next = NextDefinition::Asked;
        }
        is_unknown
    }

    /// The lookup has ended; `None` for the project's definition.
    pub(super) fn found(&mut self, definition: Option<Box<AgentDefinition>>) {
        self.next = NextDefinition::Known(definition);
    }

    /// The lookup has ended with a definition of an earlier configuration, or with none: it is
    /// repeated.
    pub(super) fn not_found(&mut self) {
        self.next = NextDefinition::Unknown;
    }

    /// Takes the next process's definition; `None` for the project's definition.
    pub(super) fn take(&mut self) -> Option<Box<AgentDefinition>> {
        match std::mem::take(&mut self.next) {
            NextDefinition::Known(definition) => definition,
            NextDefinition::Unknown | NextDefinition::Asked => None,
        }
    }

    /// Drops a definition that was looked up under an earlier configuration.
    pub(super) fn disarm(&mut self) {
        if self.is_known() {
            self.next = NextDefinition::Unknown;
        }
    }

    /// The state of the bundle has changed.
    pub(super) fn on_standing(&mut self, standing: BundleStanding) {
        if standing.is_pending {
            self.disarm();
        }
        self.standing = standing;
    }
}
