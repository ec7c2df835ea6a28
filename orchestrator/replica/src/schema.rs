//! The tables, and which version of them there is.
//!
//! | table | holds |
//! | --- | --- |
//! | `format` | the version of all this |
//! | `heads` | of each workspace: the last position with its hash, and the oldest that is still there |
//! | `records` | the records |
//! | `beats` | what nodes last said; gone when the server crashes, and nothing is lost by that |
//! | `parts` | snapshots, in parts |
//!
//! `heads` is what makes a put one comparison: the row of a workspace moves from the position before, with the hash
//! before, or it does not. Whoever asks which position a log has reached reads one row.

use tokio_postgres::Client;

use crate::fault::ConnectFault;

/// Version of the tables. Raised with each change of them.
const FORMAT: i32 = 1;

/// Only one program makes the tables at a time: "gdnr", as a number.
const LOCK: i64 = 0x6764_6e72;

/// What was called `goondan` before and is not ours is left alone: making the first table fails.
///
/// Text is compared by bytes, so that no upgrade of the system's collations can damage an index. Records are stored
/// as they are: packing them would cost more time than it saves. Rows of `heads` change with each record, and have
/// room for that on their page.
const MAKE: &str = r#"
CREATE SCHEMA IF NOT EXISTS goondan;
CREATE TABLE goondan.format (version integer NOT NULL);
INSERT INTO goondan.format VALUES (1);
CREATE TABLE goondan.heads (
    workspace text COLLATE "C" PRIMARY KEY,
    seq bigint NOT NULL,
    hash bytea NOT NULL,
    oldest bigint NOT NULL CHECK (oldest BETWEEN 1 AND seq)
) WITH (fillfactor = 50);
CREATE TABLE goondan.records (
    workspace text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    hash bytea NOT NULL,
    record bytea NOT NULL,
    PRIMARY KEY (workspace, seq)
);
ALTER TABLE goondan.records ALTER COLUMN record SET STORAGE EXTERNAL;
CREATE UNLOGGED TABLE goondan.beats (
    workspace text COLLATE "C" NOT NULL,
    node text COLLATE "C" NOT NULL,
    life bigint NOT NULL,
    epoch bigint NOT NULL,
    position bigint NOT NULL,
    owns boolean NOT NULL,
    count bigint NOT NULL DEFAULT 1,
    heard timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace, node)
) WITH (fillfactor = 50);
CREATE TABLE goondan.parts (
    workspace text COLLATE "C" NOT NULL,
    reference text COLLATE "C" NOT NULL,
    number integer NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (workspace, reference, number)
);
ALTER TABLE goondan.parts ALTER COLUMN bytes SET STORAGE EXTERNAL;
"#;

/// Makes the tables if they are not there.
///
/// # Errors
///
/// [`ConnectFault`] if the server refuses it, or a newer goondan made them.
pub(crate) async fn ensure(client: &Client) -> Result<(), ConnectFault> {
    if let Some(found) = version(client).await? {
        return check(found);
    }
    let refused = |source| ConnectFault::Schema { source };
    // Of the connection, not of a transaction: one that began before another program made the tables would not see them.
    // What fails ends the connection, and with it the lock.
    let lock = format!("SELECT pg_advisory_lock({LOCK})");
    client.batch_execute(&lock).await.map_err(refused)?;
    let found = version(client).await?;
    if found.is_none() {
        let make = format!("BEGIN; {MAKE} COMMIT");
        client.batch_execute(&make).await.map_err(refused)?;
    }
    let unlock = format!("SELECT pg_advisory_unlock({LOCK})");
    client.batch_execute(&unlock).await.map_err(refused)?;
    found.map_or(Ok(()), check)
}

fn check(found: i32) -> Result<(), ConnectFault> {
    if found == FORMAT {
        Ok(())
    } else {
        Err(ConnectFault::Format {
            found,
            ours: FORMAT,
        })
    }
}

async fn version(client: &Client) -> Result<Option<i32>, ConnectFault> {
    let refused = |source| ConnectFault::Schema { source };
    let is_there = "SELECT to_regclass('goondan.format') IS NOT NULL";
    let is_there = client.query_one(is_there, &[]).await.map_err(refused)?;
    if !is_there.try_get(0).map_err(refused)? {
        return Ok(None);
    }
    let found = "SELECT max(version) FROM goondan.format";
    let found = client.query_one(found, &[]).await.map_err(refused)?;
    found.try_get(0).map_err(refused)
}
