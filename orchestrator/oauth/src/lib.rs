//! Tokens of authorization servers: how they are got, renewed and kept (`SYS-2`, `SYS-4`, `SYS-5`).
//!
//! [`Machine`] decides. It is told what happened and what time it is, and says what is to be done
//! ([`Effect`]): write a document, ask a server, hand a token out, answer somebody. It reads no clock, no
//! file and no randomness.
//!
//! * `key`: whose tokens they are, and where their documents lie.
//! * `documents`: what is kept of a grant, of a login and of a refresh under way.
//! * `callback`: what an authorization server sends a person back with.
//! * `pkce`: what proves that who began a login ends it (RFC 7636).
//! * `machine`: what follows from what.
//!
//! # Invariants
//!
//! * Of one grant there is at most one refresh under way, however many want one.
//! * A refresh is on disk as under way before the server is asked, and its token before anybody gets it.
//! * A token that a server declines is renewed once, however many were declined with it; if the next one is declined,
//!   too, a person is asked.
//! * Nobody's token gets to allow more unless a person has logged in for that.
//! * A grant is deleted when a person says so, and never because a server declines.
//! * A login is used once: that it was is on disk before its code is exchanged.
//! * Tokens go to the server that gave them, and to no other: a grant of another application of the same
//!   name, or of another workspace, is not used.
//! * No error and no `Debug` holds a token, a code or a verifier.

mod callback;
mod documents;
mod key;
pub mod limits;
mod machine;
mod pkce;
#[cfg(test)]
mod simulation;

pub use documents::{Documents, Fields};
pub use key::{GrantKey, Place};
pub use machine::{
    Answer, Answered, CameBack, DocumentWork, Effect, Happening, Machine, Request, Ruling, Ticket,
    Waiter,
};
pub use pkce::ENTROPY_BYTES;
