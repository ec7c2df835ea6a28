//! `valueFrom.oauth` as written.

use goondan_protocol::ids::OAuthSubject;

use crate::fields::LocatedValue;
use crate::reference::Reference;

/// A requested token of an authorization server.
#[derive(Debug)]
pub(crate) struct TokenRequest {
    pub(crate) app: Reference,
    pub(crate) subject: Option<LocatedValue<OAuthSubject>>,
}
