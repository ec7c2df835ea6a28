//! Reads a page of a log on any connection.

use goondan_protocol::ids::WorkspaceId;
use goondan_replication::limits::{READ_BYTES_MAX, READ_RECORDS_MAX};
use goondan_replication::log::LogPage;
use goondan_replication::names::{Hash, Position};
use tokio_postgres::Error;
use tokio_postgres::types::ToSql;

use crate::connection::Connection;

/// Reads the records from a position on: as many as fit, at least one. Each row contains the log's
/// state; without records there is one row with the state alone.
pub(crate) const PAGE: &str = "
SELECT h.seq, h.oldest, b.hash, p.record
FROM (SELECT 1) AS one
LEFT JOIN goondan.heads AS h ON h.workspace = $1
LEFT JOIN goondan.records AS b ON b.workspace = $1 AND b.seq = $2::bigint - 1 AND b.seq >= h.oldest
LEFT JOIN LATERAL (
    SELECT seq, record, sum(octet_length(record)) OVER (ORDER BY seq) AS bytes
    FROM (
        SELECT seq, record FROM goondan.records
        WHERE workspace = $1 AND seq >= $2 AND h.oldest <= $2 ORDER BY seq LIMIT $3
    ) AS candidate
) AS p ON p.seq = $2 OR p.bytes <= $4
ORDER BY p.seq";

/// Reads a page.
///
/// # Errors
///
/// The error of the server or the connection.
pub(crate) async fn page(
    connection: &Connection,
    workspace: &WorkspaceId,
    from: Position,
) -> Result<LogPage, Error> {
    let records_max = i64::try_from(READ_RECORDS_MAX).unwrap_or(i64::MAX);
    let bytes_max = i64::try_from(READ_BYTES_MAX).unwrap_or(i64::MAX);
    let (workspace, from) = (workspace.as_str(), seq(from));
    let values: [&(dyn ToSql + Sync); 4] = [&workspace, &from, &records_max, &bytes_max];
    let rows = connection.query(PAGE, &values).await?;
    let mut page = LogPage::default();
    for row in &rows {
        page.head = position(row.try_get(0)?);
        page.oldest = position(row.try_get(1)?);
        page.before = row.try_get::<_, Option<&[u8]>>(2)?.and_then(hash);
        page.records.extend(row.try_get::<_, Option<Vec<u8>>>(3)?);
    }
    Ok(page)
}

fn hash(bytes: &[u8]) -> Option<Hash> {
    bytes.try_into().ok().map(Hash)
}

/// Converts a position for the server. A position beyond its integer range is beyond every record.
pub(crate) fn seq(position: Position) -> i64 {
    i64::try_from(position.0).unwrap_or(i64::MAX)
}

/// Converts a position from the server; 0 if there is none.
pub(crate) fn position(seq: Option<i64>) -> Position {
    Position(seq.and_then(|seq| u64::try_from(seq).ok()).unwrap_or(0))
}
