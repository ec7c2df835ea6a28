//! Tokens of authorization servers: obtaining, renewing and storing them (`SYS-2`, `SYS-4`,
//! `SYS-5`).
//!
//! [`OAuthMachine`] makes all decisions. It takes events with the current time and returns [`OAuthEffect`]s:
//! write a document, send a request, hand out a token, answer a caller. It uses no clock, file or
//! randomness.
//!
//! * `key`: owners of tokens, and paths of their documents.
//! * `documents`: stored grants, logins and refreshes in progress.
//! * `callback`: parsing of an authorization server's redirect.
//! * `pkce`: proof that one client begins and ends a login (RFC 7636).
//! * `machine`: the state machine.
//!
//! # Invariants
//!
//! * Each grant has at most one refresh in progress, independent of the number of requests.
//! * A refresh is marked on disk before its request is sent, and its token is stored before it is
//!   handed out.
//! * A rejected token is renewed once, independent of the number of rejections. If the next token
//!   is rejected too, the user must log in.
//! * The scopes of a token grow only through a login by the user.
//! * A grant is deleted only at a user's request, never because a server rejects it.
//! * A login is used once: its use is on disk before its code is exchanged.
//! * Tokens are sent only to the server that issued them. A grant of another application with the
//!   same name, or of another workspace, is not used.
//! * No error and no `Debug` output contains a token, a code or a verifier.

mod callback;
mod documents;
mod key;
pub mod limits;
mod machine;
mod pkce;
#[cfg(test)]
mod simulation;

pub use documents::{Documents, Fields};
pub use key::{DocumentKey, GrantKey};
pub use machine::{
    DocumentWork, GrantAnswer, OAuthEffect, OAuthEvent, OAuthMachine, RedirectOutcome,
    RejectionOutcome, ServerRequest, ServerResponse, Ticket, WaiterId,
};
pub use pkce::ENTROPY_BYTES;
