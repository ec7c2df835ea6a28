//! Reasons for a missing connection.

use goondan_replication::limits::ANSWER_DEADLINE_MS;

use crate::limits::CONNECT_DEADLINE_MS;

/// Reason for a missing connection. The texts contain no password.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectFault {
    /// The host rejects the connection or is a standby.
    #[error("{host} refuses the connection")]
    Refused {
        host: String,
        #[source]
        source: tokio_postgres::Error,
    },
    /// The host did not respond in time.
    #[error("{host} did not complete a connection within {CONNECT_DEADLINE_MS} ms")]
    Late { host: String },
    /// The session cannot be configured as required.
    #[error("the server refuses the session settings that records need")]
    Session {
        #[source]
        source: tokio_postgres::Error,
    },
    /// The tables cannot be created or read.
    #[error("failed to create or read the tables of the log in this database")]
    Schema {
        #[source]
        source: tokio_postgres::Error,
    },
    /// The tables have another version.
    #[error(
        "the tables have version {found}, but this program supports {ours}: use the same version \
         of goondan on all nodes"
    )]
    Format { found: i32, ours: i32 },
    #[error("the connection was lost")]
    Lost,
    #[error(
        "a commit was not confirmed within {ANSWER_DEADLINE_MS} ms: the server does not answer, or waits for a \
         synchronous standby that does not"
    )]
    LateAnswer,
}

/// SQLSTATE class of rejected credentials.
const INVALID_AUTHORIZATION: &str = "28";

impl ConnectFault {
    /// True if the server rejects the user or the password.
    pub(crate) fn is_of_credentials(&self) -> bool {
        let Self::Refused { source, .. } = self else {
            return false;
        };
        let code = source.code().map(tokio_postgres::error::SqlState::code);
        code.is_some_and(|code| code.starts_with(INVALID_AUTHORIZATION))
    }
}
