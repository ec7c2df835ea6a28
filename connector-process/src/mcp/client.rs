//! What this side tells a server of itself, and what it wants to hear.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use goondan_protocol::version::GOONDAN_VERSION;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ErrorData, Implementation, ListRootsResult, Root,
    RootsCapabilities,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ClientHandler, RoleClient};

/// The client's side of a session. Cloning shares it.
#[derive(Debug, Clone, Default)]
pub(super) struct Client {
    /// How often the server said that its tools are others now.
    changes: Arc<AtomicU64>,
    /// Where a program of the project works, if the server is one.
    root: Option<Arc<str>>,
}

impl Client {
    /// The side of a server that is a program and works in this directory.
    pub(super) fn in_directory(root: &Path) -> Self {
        let url = reqwest::Url::from_directory_path(root).ok();
        let url = url.map(|url| Arc::from(url.as_str().trim_end_matches('/')));
        Self {
            root: url,
            ..Self::default()
        }
    }

    /// How often the server's list of tools has changed.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Whether both are of one session.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.changes, &other.changes)
    }
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        // It offers neither a model nor a person to the server: both are the agent's. One that is
        // somewhere else has nothing to do with the directories of this machine.
        let mut capabilities = ClientCapabilities::default();
        capabilities.roots = self.root.as_ref().map(|_| RootsCapabilities::default());
        ClientConfig::new(
            capabilities,
            Implementation::new("goondan", GOONDAN_VERSION),
        )
    }

    async fn list_roots(
        &self,
        _context: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, ErrorData> {
        let roots = self.root.iter().map(|root| Root::new(root.as_ref()));
        Ok(ListRootsResult::new(roots.collect()))
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }
}
