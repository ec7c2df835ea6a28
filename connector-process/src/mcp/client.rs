//! What this side tells a server of itself, and what it wants to hear.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use goondan_protocol::version::GOONDAN_VERSION;
use rmcp::model::{ClientCapabilities, ClientConfig, Implementation};
use rmcp::service::NotificationContext;
use rmcp::{ClientHandler, RoleClient};

/// The client's side of a session. Cloning shares it.
#[derive(Debug, Clone, Default)]
pub(super) struct Client {
    /// How often the server said that its tools are others now.
    changes: Arc<AtomicU64>,
}

impl Client {
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
        // It offers neither a model nor a person to the server: both are the agent's.
        ClientConfig::new(
            ClientCapabilities::default(),
            Implementation::new("goondan", GOONDAN_VERSION),
        )
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }
}
