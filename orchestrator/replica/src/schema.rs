//! The tables and their version.
//!
//! | table | holds |
//! | --- | --- |
//! | `format` | the version of the tables |
//! | `heads` | for each workspace: the last position with its hash, and the oldest position that still exists |
//! | `records` | the records |
//! | `beats` | the latest heartbeats of nodes; lost when the server crashes, which is harmless |
//! | `parts` | snapshots, in parts |
//!
//! `heads` makes a put a single compare-and-swap: a workspace's row advances only if its position
//! and hash match the record's predecessor. The current position of a log is one row.

use tokio_postgres::Client;

use crate::fault::ConnectFault;

/// Version of the tables. Increased with every change to them.
const FORMAT: i32 = 1;

/// Lock that serializes the creation of the tables: "gdnr" as a number.
const LOCK: i64 = 0x6764_6e72;

/// An unrelated existing schema `goondan` is not modified: creating the first table fails.
///
/// Text is compared by bytes, so an upgrade of the system's collations cannot corrupt an index.
/// Records are not compressed, because that would take longer than it saves. Rows of `heads` change
/// with each record, so their pages have free space for updates.
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

/// Creates the tables if they do not exist.
///
/// # Errors
///
/// [`ConnectFault`] if the server rejects it, or a newer goondan created them.
pub(crate) async fn ensure(client: &Client) -> Result<(), ConnectFault> {
    if let Some(found) = version(client).await? {
        return check(found);
    }
    let refused = |source| ConnectFault::Schema { source };
    // A session lock, not a transaction lock, because a transaction that began before another
    // program created the tables would not see them. A failure ends the connection and thereby
    // releases the lock.
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
