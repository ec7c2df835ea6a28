//! `valueFrom.oauth` as written.

use goondan_protocol::ids::OAuthSubject;

use crate::fields::Located;
use crate::reference::Reference;

/// A requested token of an authorization server.
#[derive(Debug)]
pub(crate) struct AskedToken {
    pub(crate) app: Reference,
    pub(crate) subject: Option<Located<OAuthSubject>>,
}
