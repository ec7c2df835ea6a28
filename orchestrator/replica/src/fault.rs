//! Reasons for a missing connection.

use goondan_replication::limits::ANSWER_DEADLINE_MS;

use crate::limits::CONNECT_DEADLINE_MS;

/// Reason for a missing connection. The texts contain no password.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectFault {
    /// The host rejects the connection or is a standby.
    #[error("{host} does not take the connection")]
    Refused {
        /// The host.
        host: String,
        /// The cause.
        #[source]
        source: tokio_postgres::Error,
    },
    /// The host did not respond in time.
    #[error("{host} did not make a connection ready within {CONNECT_DEADLINE_MS} ms")]
    Late {
        /// The host.
        host: String,
    },
    /// The session cannot be configured as required.
    #[error("the server does not let its session be set as records need it")]
    Session {
        /// The cause.
        #[source]
        source: tokio_postgres::Error,
    },
    /// The tables cannot be created or read.
    #[error("the tables of the log cannot be made or read in this database")]
    Schema {
        /// The cause.
        #[source]
        source: tokio_postgres::Error,
    },
    /// The tables have another version.
    #[error(
        "the tables have the version {found}, and this program knows {ours}: use goondan of one version on all nodes"
    )]
    Format {
        /// Version of the tables.
        found: i32,
        /// Version of this program.
        ours: i32,
    },
    /// The connection was lost.
    #[error("the connection was lost")]
    Lost,
    /// A statement timed out.
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
