//! Lists of a workspace's instances, and the purposes for which the core requests them.

use goondan_protocol::agents::ListScope;
use goondan_protocol::control::{ListEvents, PruneInstances, VerifyInstances};
use goondan_protocol::ids::InstanceKey;
use goondan_store::instance::Metadata;
use goondan_store::workspace::UnusableEntry;

use crate::exchange::RequestToken;
use crate::fleet::agent_replies::pending_replies::Requester;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListPurpose {
    Policy,
    Events {
        token: RequestToken,
        request: ListEvents,
    },
    Agents {
        requester: Requester,
        /// The instances it may see.
        scope: ListScope,
    },
    Verify {
        token: RequestToken,
        request: VerifyInstances,
    },
    /// A user lists unused conversations.
    Prune {
        token: RequestToken,
        request: PruneInstances,
    },
}

#[derive(Debug, Default)]
pub struct InstanceListing {
    pub found: Vec<Metadata>,
    /// Instances with unreadable metadata, by directory name.
    pub unreadable: Vec<InstanceKey>,
}

impl InstanceListing {
    /// Converts the store's list.
    pub fn of((found, unusable): (Vec<Metadata>, Vec<UnusableEntry>)) -> Self {
        let key_of = |unusable: UnusableEntry| {
            let name = unusable.path.file_name()?.to_str()?;
            goondan_store::file_names::instance_key_of(name)
        };
        let unreadable = unusable.into_iter().filter_map(key_of).collect();
        Self { found, unreadable }
    }
}
