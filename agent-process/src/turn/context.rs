//! Context of a turn while it advances.

use goondan_protocol::conversation::Conversation;
use goondan_protocol::time::Timestamp;

use crate::extensions::Extensions;

/// Context of one advance: the extensions, the conversation they may change, and the current time.
pub(crate) struct AdvanceContext<'a> {
    pub(crate) extensions: &'a mut Extensions,
    pub(crate) conversation: &'a mut Conversation,
    pub(crate) now: Timestamp,
}
