//! A person's messages to the agent of a task (`AGENT-7`).
//!
//! A message travels as rework notes do: it is a note in the prompt of the next run, which resumes
//! the agent's session. A run that has not shown progress on its prompt has not received it.

use goondan_protocol::time::Timestamp;

use super::{InputRefusal, Task, check_text};
use crate::fact::TaskEvent;
use crate::state::Status;

impl Task {
    /// Accepts a message, once for each id. A task that was completed or failed continues.
    pub(super) fn say(
        &mut self,
        id: Option<String>,
        text: String,
        now: Timestamp,
    ) -> Result<(), InputRefusal> {
        if id.as_ref().is_some_and(|id| self.state.is_message(id)) {
            return Ok(());
        }
        check_text(&text)?;
        match self.state.status() {
            Status::Cancelled => return Err(InputRefusal::Final(Status::Cancelled)),
            // Its sandbox is based on the files before the delivery.
            Status::Completed if self.state.proposal().is_some_and(|it| it.is_delivered) => {
                return Err(InputRefusal::Delivered);
            }
            _ => {}
        }
        self.withdraw_own_questions(now);
        self.record(now, TaskEvent::MessageSent { id, text });
        Ok(())
    }

    /// Withdraws a pending review if a message must reach the agent first, because the agent may
    /// change the files under review.
    pub(super) fn withdraw_review(&mut self, now: Timestamp) {
        let state = &self.state;
        let is_free =
            state.run.is_none() && state.is_paused.is_none() && state.open_asks().next().is_none();
        if let Some(phase) = state.review
            && is_free
            && state.has_message()
        {
            self.record(now, TaskEvent::ReviewWithdrawn { phase });
        }
    }
}
