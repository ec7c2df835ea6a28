//! Messages with a JSON head, followed by bytes.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::WireFault;
use crate::limits::{HEAD_BYTES_MAX, READ_RECORDS_MAX};

/// Size of the head's length field, in bytes.
const LENGTH_BYTES: usize = 4;

/// The JSON before the bytes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PieceHeader<M> {
    id: u64,
    message: M,
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    bytes: Vec<usize>,
}

/// Writes a message with its byte pieces.
pub(super) fn write<M: Serialize>(
    id: u64,
    message: M,
    pieces: &[&[u8]],
) -> Result<Vec<u8>, WireFault> {
    let head = PieceHeader {
        id,
        message,
        bytes: pieces.iter().map(|piece| piece.len()).collect(),
    };
    let head = serde_json::to_vec(&head).map_err(WireFault::Json)?;
    let length = u32::try_from(head.len()).map_err(|_| WireFault::Head)?;
    if head.len() > HEAD_BYTES_MAX {
        return Err(WireFault::Head);
    }
    let behind: usize = pieces.iter().map(|piece| piece.len()).sum();
    let mut body = Vec::with_capacity(LENGTH_BYTES + head.len() + behind);
    body.extend_from_slice(&length.to_be_bytes());
    body.extend_from_slice(&head);
    for piece in pieces {
        body.extend_from_slice(piece);
    }
    Ok(body)
}

/// Reads the output of [`write`]: id, message, pieces.
pub(super) fn read<M: DeserializeOwned>(body: &[u8]) -> Result<(u64, M, Vec<&[u8]>), WireFault> {
    let (length, rest) = body
        .split_first_chunk::<LENGTH_BYTES>()
        .ok_or(WireFault::Head)?;
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    let (head, mut rest) = rest
        .split_at_checked(length)
        .filter(|_| length <= HEAD_BYTES_MAX)
        .ok_or(WireFault::Head)?;
    let head: PieceHeader<M> = serde_json::from_slice(head).map_err(WireFault::Json)?;
    if head.bytes.len() > READ_RECORDS_MAX {
        return Err(WireFault::Pieces);
    }
    let mut pieces = Vec::with_capacity(head.bytes.len());
    for length in head.bytes {
        let (piece, behind) = rest.split_at_checked(length).ok_or(WireFault::Pieces)?;
        pieces.push(piece);
        rest = behind;
    }
    if rest.is_empty() {
        Ok((head.id, head.message, pieces))
    } else {
        Err(WireFault::Pieces)
    }
}
