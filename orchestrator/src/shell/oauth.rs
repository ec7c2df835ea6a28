//! The thread that reads, writes and removes OAuth documents in order (`SYS-2`).

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use goondan_core::{CoreInput, OAuthResult, OAuthWork};
use goondan_log::unix_millis_now;
use goondan_oauth::DocumentWork;
use goondan_protocol::time::Timestamp;
use tokio::sync::mpsc;

use super::event::ShellEvent;
use super::secrets::SecretKeeper;

/// Sender of the thread's work queue.
#[derive(Debug)]
pub(super) struct OAuthThread(Sender<OAuthWork>);

impl OAuthThread {
    /// Starts the thread. A daemon that ends waits for its queue.
    ///
    /// # Errors
    ///
    /// The operating system's error if no thread can be started.
    pub(super) fn start(
        keeper: Arc<SecretKeeper>,
        events: mpsc::Sender<ShellEvent>,
    ) -> io::Result<Self> {
        let (works, waiting) = channel();
        std::thread::Builder::new()
            .name("oauth".to_owned())
            .spawn(move || {
                while let Ok(work) = waiting.recv() {
                    let at = Timestamp::from_unix_millis(unix_millis_now());
                    if let Some(done) = carry_out(&keeper, work, at) {
                        // The receiver is closed only while the daemon is ending.
                        drop(events.blocking_send(ShellEvent::Input(CoreInput::OAuth(done))));
                    }
                }
            })?;
        Ok(Self(works))
    }

    /// Submits work; false if the thread is gone.
    pub(super) fn submit(&self, work: OAuthWork) -> bool {
        self.0.send(work).is_ok()
    }
}

fn carry_out(keeper: &SecretKeeper, work: OAuthWork, at: Timestamp) -> Option<OAuthResult> {
    match work {
        OAuthWork::Documents(DocumentWork::Read { workspace_id, app }) => {
            let documents = keeper.read_oauth(&app);
            Some(OAuthResult::Read {
                workspace_id,
                app,
                documents,
            })
        }
        OAuthWork::Documents(DocumentWork::Write {
            ticket,
            place,
            fields,
        }) => {
            let result = keeper.write_oauth(&place, &fields, at);
            Some(OAuthResult::Kept { ticket, result })
        }
        OAuthWork::Documents(DocumentWork::Remove { ticket, place }) => {
            let result = keeper.remove_oauth(&place);
            Some(OAuthResult::Kept { ticket, result })
        }
        OAuthWork::Audit {
            event,
            workspace_id,
            subject,
        } => {
            keeper.audit_oauth(event, &workspace_id, &subject, at);
            None
        }
    }
}
