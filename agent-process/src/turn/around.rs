//! What stands around a turn while it goes forward.

use goondan_protocol::conversation::Conversation;
use goondan_protocol::time::Timestamp;

use crate::extensions::Extensions;

/// The means of one advance: who is asked, what they may change, and when it is.
pub(crate) struct Around<'a> {
    pub(crate) extensions: &'a mut Extensions,
    pub(crate) conversation: &'a mut Conversation,
    pub(crate) now: Timestamp,
}
