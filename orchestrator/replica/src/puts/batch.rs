//! One statement that offers records, and what its answer means.

use goondan_protocol::ids::WorkspaceId;
use goondan_replication::log::{LogPage, PutAnswer};
use goondan_replication::names::Position;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Error, Row};

use super::PutOffer;
use crate::connection::Connection;
use crate::doubts::InDoubtPositions;
use crate::limits::RACES_MAX;
use crate::page::{page, position, seq};

/// Puts records of different workspaces.
///
/// The row of a workspace in `heads` decides, under its lock and in its current version,
/// independent of this statement's snapshot: it moves from the previous position and hash to the
/// record's; for a first record, it is created. Only the records of rows that were moved or created
/// are written. The answers for all other records come from the snapshot: the record at the
/// position, the last and the oldest position, and whether the record would have followed. If it
/// would have, another writer was faster, and the statement is repeated.
pub(super) const PUT: &str = r#"
WITH offered AS (
    SELECT workspace COLLATE "C" AS workspace, seq, after, hash, record, n
    FROM unnest($1::text[], $2::bigint[], $3::bytea[], $4::bytea[], $5::bytea[])
        WITH ORDINALITY AS o (workspace, seq, after, hash, record, n)
), moved AS (
    UPDATE goondan.heads AS h SET seq = o.seq, hash = o.hash FROM offered AS o
    WHERE h.workspace = o.workspace AND h.seq = o.seq - 1 AND h.hash = o.after
    RETURNING h.workspace
), begun AS (
    INSERT INTO goondan.heads (workspace, seq, hash, oldest)
    SELECT workspace, seq, hash, seq FROM offered WHERE seq = 1
    ON CONFLICT (workspace) DO NOTHING
    RETURNING workspace
), done AS (
    INSERT INTO goondan.records (workspace, seq, hash, record)
    SELECT workspace, seq, hash, record FROM offered
    WHERE workspace IN (SELECT workspace FROM moved UNION ALL SELECT workspace FROM begun)
    RETURNING workspace
)
SELECT o.n, d.workspace IS NOT NULL, h.seq, h.oldest, r.record,
    CASE o.seq WHEN 1 THEN h.seq IS NULL ELSE h.seq = o.seq - 1 AND h.hash = o.after END,
    o.seq <= h.seq
FROM offered AS o
LEFT JOIN done AS d ON d.workspace = o.workspace
LEFT JOIN goondan.heads AS h ON h.workspace = o.workspace
LEFT JOIN goondan.records AS r
    ON r.workspace = o.workspace AND r.seq = o.seq AND r.seq >= h.oldest
"#;

/// An empty commit with a message in the server's log: earlier commits are then as durable as this
/// one.
const BARRIER: &str = "SELECT pg_logical_emit_message(true, 'goondan', '')";

enum OfferOutcome {
    Answer(PutAnswer),
    /// Another writer was quicker by a moment.
    Again,
}

/// Offers records and answers each.
pub(super) async fn put(connection: &Connection, offers: Vec<PutOffer>, doubts: &InDoubtPositions) {
    let mut left = Vec::new();
    for offer in offers {
        let record = &offer.put.record;
        match doubts.raise(record.workspace(), record.position()) {
            Some(was_in_doubt) => left.push((offer, was_in_doubt)),
            None => reply(offer, PutAnswer::Unavailable),
        }
    }
    for _ in 0..RACES_MAX {
        if left.is_empty() {
            return;
        }
        let offers: Vec<_> = left.iter().map(|(offer, _)| offer).collect();
        let verdicts = match ask(connection, &offers).await {
            Ok(verdicts) => verdicts,
            Err(answer) => {
                for (offer, was_in_doubt) in left {
                    if answer == PutAnswer::Unavailable && !was_in_doubt {
                        doubts.settle(offer.put.record.workspace());
                    }
                    reply(offer, answer.clone());
                }
                return;
            }
        };
        let mut again = Vec::new();
        for ((offer, was_in_doubt), verdict) in left.into_iter().zip(verdicts) {
            match verdict {
                OfferOutcome::Again => again.push((offer, was_in_doubt)),
                OfferOutcome::Answer(answer) => {
                    let answer = settled(connection, &offer, answer, was_in_doubt, doubts).await;
                    reply(offer, answer);
                }
            }
        }
        left = again;
    }
    for (offer, _) in left {
        reply(offer, PutAnswer::Unknown);
    }
}

/// Reads a page and confirms it by a later commit; `None` if that is not confirmed.
pub(super) async fn confirm(
    connection: &Connection,
    workspace: &WorkspaceId,
    from: Position,
    doubts: &InDoubtPositions,
) -> Option<LogPage> {
    let page = page(connection, workspace, from).await.ok()?;
    if doubts.reach(workspace, page.head) && !barrier(connection).await {
        return None;
    }
    doubts.settle(workspace);
    Some(page)
}

/// A caller that no longer waits treats the answer as lost.
fn reply(offer: PutOffer, answer: PutAnswer) {
    offer.reply.send(answer).ok();
}

/// Combines an answer with the doubt about its workspace.
async fn settled(
    connection: &Connection,
    offer: &PutOffer,
    answer: PutAnswer,
    was_in_doubt: bool,
    doubts: &InDoubtPositions,
) -> PutAnswer {
    let workspace = offer.put.record.workspace();
    let is_confirmed = match &answer {
        PutAnswer::Done => true,
        // Nothing of this workspace was in doubt, so the record is another's, and its to confirm.
        _ if !was_in_doubt => true,
        PutAnswer::Taken(_) if barrier(connection).await => true,
        PutAnswer::Taken(_) => return PutAnswer::Unknown,
        // An earlier offer may still arrive.
        _ => false,
    };
    if is_confirmed {
        doubts.settle(workspace);
    }
    answer
}

/// True if a commit was made and confirmed.
pub(super) async fn barrier(connection: &Connection) -> bool {
    let warnings = connection.warnings();
    let made = connection.query(BARRIER, &[]).await;
    made.is_ok() && connection.warnings() == warnings
}

/// Offers records once; all of one statement share their fate. An error is the answer to each.
async fn ask(
    connection: &Connection,
    offers: &[&PutOffer],
) -> Result<Vec<OfferOutcome>, PutAnswer> {
    let puts: Vec<_> = offers.iter().map(|offer| &offer.put).collect();
    let workspaces: Vec<_> = puts
        .iter()
        .map(|it| it.record.workspace().as_str())
        .collect();
    let seqs: Vec<_> = puts.iter().map(|it| seq(it.record.position())).collect();
    let afters: Vec<_> = puts.iter().map(|it| it.after.0.as_slice()).collect();
    let hashes: Vec<_> = puts.iter().map(|it| it.record.hash().0).collect();
    let hashes: Vec<_> = hashes.iter().map(<[u8; 32]>::as_slice).collect();
    let records: Vec<_> = puts.iter().map(|it| it.record.bytes()).collect();
    let warnings = connection.warnings();
    let asked = connection
        .query(PUT, &[&workspaces, &seqs, &afters, &hashes, &records])
        .await;
    let rows = asked.map_err(|error| failed(connection, &error))?;
    if connection.warnings() != warnings {
        // It may be only on the server's own disk.
        tracing::warn!(
            "the server has not confirmed a commit: its wait for a synchronous standby was interrupted"
        );
        return Err(PutAnswer::Unknown);
    }
    let verdicts = verdicts(&rows, offers.len());
    verdicts.map_err(|error| failed(connection, &error))
}

/// Stops using a connection after a failure; the next connection is checked from the start.
fn failed(connection: &Connection, error: &Error) -> PutAnswer {
    connection.condemn();
    tracing::debug!(
        error = goondan_log::error_chain(error),
        "failed to append records"
    );
    // It refuses before it does anything.
    let is_standby = error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION);
    if is_standby {
        PutAnswer::Unavailable
    } else {
        PutAnswer::Unknown
    }
}

/// In the order of the offers.
fn verdicts(rows: &[Row], offers: usize) -> Result<Vec<OfferOutcome>, Error> {
    let mut numbered = Vec::with_capacity(offers);
    for row in rows {
        let n: i64 = row.try_get(0)?;
        numbered.push((n, verdict(row)?));
    }
    numbered.sort_by_key(|(n, _)| *n);
    Ok(numbered.into_iter().map(|(_, verdict)| verdict).collect())
}

fn verdict(row: &Row) -> Result<OfferOutcome, Error> {
    if row.try_get(1)? {
        return Ok(OfferOutcome::Answer(PutAnswer::Done));
    }
    let head = position(row.try_get(2)?);
    let oldest = position(row.try_get(3)?);
    let answer = match row.try_get::<_, Option<Vec<u8>>>(4)? {
        Some(record) => PutAnswer::Taken(record),
        None if row.try_get::<_, Option<bool>>(5)?.unwrap_or(false) => {
            return Ok(OfferOutcome::Again);
        }
        None if row.try_get::<_, Option<bool>>(6)?.unwrap_or(false) => {
            PutAnswer::Forgotten { oldest }
        }
        None => PutAnswer::Behind { head },
    };
    Ok(OfferOutcome::Answer(answer))
}
