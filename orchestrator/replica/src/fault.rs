//! Why there is no connection.

use goondan_replication::limits::ANSWER_DEADLINE_MS;

use crate::limits::CONNECT_DEADLINE_MS;

/// Why there is no connection. No text of it holds a password.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectFault {
    /// The host does not take it, or is a standby.
    #[error("{host} does not take the connection")]
    Refused {
        /// Which.
        host: String,
        /// Why.
        #[source]
        source: tokio_postgres::Error,
    },
    /// The host did not answer in time.
    #[error("{host} did not make a connection ready within {CONNECT_DEADLINE_MS} ms")]
    Late {
        /// Which.
        host: String,
    },
    /// The session cannot be set as it has to be.
    #[error("the server does not let its session be set as records need it")]
    Session {
        /// Why.
        #[source]
        source: tokio_postgres::Error,
    },
    /// The tables cannot be made or read.
    #[error("the tables of the log cannot be made or read in this database")]
    Schema {
        /// Why.
        #[source]
        source: tokio_postgres::Error,
    },
    /// The tables are of another version.
    #[error(
        "the tables have the version {found}, and this program knows {ours}: use goondan of one version on all nodes"
    )]
    Format {
        /// Theirs.
        found: i32,
        /// Ours.
        ours: i32,
    },
    /// It was made, and is gone.
    #[error("the connection was lost")]
    Lost,
    /// A statement is not finished.
    #[error(
        "a commit was not confirmed within {ANSWER_DEADLINE_MS} ms: the server does not answer, or waits for a \
         synchronous standby that does not"
    )]
    LateAnswer,
}

/// The class of SQLSTATE that says that whoever asks may not come in.
const INVALID_AUTHORIZATION: &str = "28";

impl ConnectFault {
    /// True if the server does not take the user or the password.
    pub(crate) fn is_of_credentials(&self) -> bool {
        let Self::Refused { source, .. } = self else {
            return false;
        };
        let code = source.code().map(tokio_postgres::error::SqlState::code);
        code.is_some_and(|code| code.starts_with(INVALID_AUTHORIZATION))
    }
}
