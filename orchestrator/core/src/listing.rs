//! Lists of a workspace's instances, and what they are for.

use goondan_protocol::agents::ListScope;
use goondan_protocol::control::{ListEvents, PruneInstances, VerifyInstances};
use goondan_protocol::ids::InstanceKey;
use goondan_store::instance::Metadata;
use goondan_store::workspace::Unusable;

use crate::exchange::RequestToken;
use crate::fleet::answers::waiting::Requester;

/// Why the instances of a workspace are listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListPurpose {
    /// To see what the policy says.
    Policy,
    /// A person asks which events there are.
    Events {
        /// The request that waits for it.
        token: RequestToken,
        /// What was asked for.
        request: ListEvents,
    },
    /// An agent asks which instances there are.
    Agents {
        /// Who asks.
        requester: Requester,
        /// Which of them it may see.
        scope: ListScope,
    },
    /// A person has the files checked.
    Verify {
        /// The request that waits for it.
        token: RequestToken,
        /// What was asked for.
        request: VerifyInstances,
    },
    /// A person asks which conversations nobody uses.
    Prune {
        /// The request that waits for it.
        token: RequestToken,
        /// What was asked for.
        request: PruneInstances,
    },
}

/// The instances of a workspace.
#[derive(Debug, Default)]
pub struct ListedInstances {
    /// What the store knows of them.
    pub found: Vec<Metadata>,
    /// Those whose metadata cannot be read, by the names of their directories.
    pub unreadable: Vec<InstanceKey>,
}

impl ListedInstances {
    /// What the store listed.
    pub fn of((found, unusable): (Vec<Metadata>, Vec<Unusable>)) -> Self {
        let key_of = |unusable: Unusable| {
            let name = unusable.path.file_name()?.to_str()?;
            goondan_store::naming::instance_key_of(name)
        };
        let unreadable = unusable.into_iter().filter_map(key_of).collect();
        Self { found, unreadable }
    }
}
