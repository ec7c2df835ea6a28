//! Socket paths of a workspace's egress for confined programs (`SEC-3`).

use std::path::PathBuf;

use goondan_protocol::egress::{AllowList, EgressCaller, EgressDoor};
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::sandbox::SandboxPolicy;

use crate::Facts;

impl Facts {
    /// The egress socket for a caller's programs; `None` if no allow list applies to them.
    pub(super) fn egress_socket(
        &self,
        id: &WorkspaceId,
        caller: &EgressCaller,
        sandbox: &SandboxPolicy,
    ) -> Option<PathBuf> {
        sandbox.allow_list()?;
        Some(self.layout.egress_socket(id, &caller.to_string()))
    }

    /// The sockets that the egress must create.
    pub(super) fn egress_doors(&self, id: &WorkspaceId, lists: Vec<AllowList>) -> Vec<EgressDoor> {
        let door = |list: AllowList| EgressDoor {
            socket: self.layout.egress_socket(id, &list.caller.to_string()),
            list,
        };
        lists.into_iter().map(door).collect()
    }
}
