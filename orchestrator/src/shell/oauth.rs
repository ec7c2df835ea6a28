//! The thread of the documents of OAuth: they are read, written and removed here in the order in which that is
//! asked for (`SYS-2`).

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use goondan_core::{Input, OAuthDone, OAuthWork};
use goondan_log::unix_millis_now;
use goondan_oauth::DocumentWork;
use goondan_protocol::time::Timestamp;
use tokio::sync::mpsc;

use super::event::Event;
use super::secrets::SecretKeeper;

/// The way to the thread.
#[derive(Debug)]
pub(super) struct OAuthThread(Sender<OAuthWork>);

impl OAuthThread {
    /// Starts it. A daemon that ends waits for what it was handed.
    ///
    /// # Errors
    ///
    /// As the operating system says when it starts no more threads.
    pub(super) fn start(
        keeper: Arc<SecretKeeper>,
        events: mpsc::Sender<Event>,
    ) -> io::Result<Self> {
        let (works, waiting) = channel();
        std::thread::Builder::new()
            .name("oauth".to_owned())
            .spawn(move || {
                while let Ok(work) = waiting.recv() {
                    let at = Timestamp::from_unix_millis(unix_millis_now());
                    if let Some(done) = carry_out(&keeper, work, at) {
                        // Nobody listens any more only when the daemon is ending.
                        drop(events.blocking_send(Event::Input(Input::OAuth(done))));
                    }
                }
            })?;
        Ok(Self(works))
    }

    /// Hands it something to do; false if it is gone.
    pub(super) fn submit(&self, work: OAuthWork) -> bool {
        self.0.send(work).is_ok()
    }
}

fn carry_out(keeper: &SecretKeeper, work: OAuthWork, at: Timestamp) -> Option<OAuthDone> {
    match work {
        OAuthWork::Documents(DocumentWork::Read { workspace_id, app }) => {
            let documents = keeper.read_oauth(&app);
            Some(OAuthDone::Read {
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
            Some(OAuthDone::Kept { ticket, result })
        }
        OAuthWork::Documents(DocumentWork::Remove { ticket, place }) => {
            let result = keeper.remove_oauth(&place);
            Some(OAuthDone::Kept { ticket, result })
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
