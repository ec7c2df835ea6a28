use proptest::prelude::*;

use super::*;
use crate::limits::{APPEND_BYTES_MAX, RECORD_BYTES_MAX, RECORD_OPERATIONS_MAX};
use crate::operation::RelativePath;

fn path() -> impl Strategy<Value = RelativePath> {
    "[a-z]{1,8}(/[a-z.%]{3,9}){0,3}".prop_map(|text| RelativePath::new(&text).unwrap())
}

fn operation() -> impl Strategy<Value = FileOperation> {
    prop_oneof![
        path().prop_map(|path| FileOperation::Create { path }),
        (
            path(),
            any::<u64>(),
            prop::collection::vec(any::<u8>(), 0..40)
        )
            .prop_map(|(path, offset, bytes)| FileOperation::Append {
                path,
                offset,
                bytes
            }),
        (path(), any::<u64>()).prop_map(|(path, len)| FileOperation::SetLen { path, len }),
        (path(), path()).prop_map(|(from, to)| FileOperation::Rename { from, to }),
        path().prop_map(|path| FileOperation::RemoveFile { path }),
        path().prop_map(|path| FileOperation::CreateDir { path }),
        path().prop_map(|path| FileOperation::RemoveTree { path }),
    ]
}

fn node() -> impl Strategy<Value = NodeId> {
    "[a-z0-9][a-z0-9.-]{0,20}".prop_map(|text| NodeId::new(&text).unwrap())
}

fn body() -> impl Strategy<Value = Body> {
    prop_oneof![
        prop::collection::vec(operation(), 0..6).prop_map(Body::Operations),
        (node(), any::<u64>()).prop_map(|(node, life)| Body::Seal {
            node,
            life: Incarnation(life)
        }),
        ("[a-z0-9/:-]{1,30}", node(), any::<u64>()).prop_map(|(reference, node, life)| {
            Body::Snapshot {
                reference: SnapshotReference::new(&reference).unwrap(),
                node,
                life: Incarnation(life),
            }
        }),
        prop::option::of(node()).prop_map(|to| Body::Released { to }),
        (any::<u64>(), any::<[u8; 32]>()).prop_map(|(at, digest)| Body::SnapshotKept {
            at: Position(at),
            digest: Hash(digest),
        }),
    ]
}

fn record() -> impl Strategy<Value = LogRecord> {
    let head = ("[A-Za-z0-9][A-Za-z0-9_.-]{0,20}", 1..u64::MAX, any::<u64>());
    (head, any::<[u8; 32]>(), body()).prop_map(|((workspace, position, epoch), previous, body)| {
        LogRecord {
            workspace: WorkspaceId::new(workspace).unwrap(),
            position: Position(position),
            epoch: Epoch(epoch),
            previous: Hash(previous),
            body,
        }
    })
}

fn sample(body: Body) -> LogRecord {
    LogRecord {
        workspace: WorkspaceId::new("w").unwrap(),
        position: Position(2),
        epoch: Epoch(1),
        previous: Hash([0xab; 32]),
        body,
    }
}

#[test]
fn golden_bytes() {
    let seal = sample(Body::Seal {
        node: NodeId::new("n1").unwrap(),
        life: Incarnation(5),
    });
    let encoded = seal.encode().unwrap();
    let expected = [
        b"gdnr\x01\x00\x01w".as_slice(),
        &[0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1],
        &[0xab; 32],
        b"\x02\x00\x00\x00\x00\x00\x00\x00\x05\x00\x02n1",
    ];
    assert_eq!(encoded.bytes(), expected.concat());
    assert_eq!(encoded.hash(), Hash::of(encoded.bytes()));
    let batch = sample(Body::Operations(FileOperation::appends(
        &RelativePath::new("a").unwrap(),
        3,
        b"xy",
    )));
    let encoded = batch.encode().unwrap();
    assert_eq!(
        encoded.bytes().get(56..),
        Some(
            b"\x01\x00\x00\x00\x01\x02\x00\x01a\x00\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x02xy"
                .as_slice()
        )
    );
}

#[test]
fn oversized_record_is_rejected_on_creation() {
    let path = RelativePath::new("a").unwrap();
    let many = vec![FileOperation::Create { path: path.clone() }; RECORD_OPERATIONS_MAX + 1];
    let long = vec![FileOperation::Append {
        path: path.clone(),
        offset: 0,
        bytes: vec![0; APPEND_BYTES_MAX + 1],
    }];
    let pieces = FileOperation::appends(&path, 0, &vec![0; RECORD_BYTES_MAX]);
    for operations in [many, long, pieces] {
        let fault = sample(Body::Operations(operations)).encode().unwrap_err();
        assert!(matches!(fault, RecordFault::TooMuch { .. }), "{fault}");
    }
    let fault = LogRecord::decode(&vec![0; RECORD_BYTES_MAX + 1]).unwrap_err();
    assert!(matches!(fault, RecordFault::TooMuch { .. }), "{fault}");
}

#[test]
fn newer_record_format_asks_for_an_upgrade() {
    let mut bytes = sample(Body::Released { to: None })
        .encode()
        .unwrap()
        .bytes()
        .to_vec();
    bytes[4] = 2;
    let fault = LogRecord::decode(&bytes).unwrap_err();
    assert!(fault.to_string().contains("upgrade goondan"), "{fault}");
}

proptest! {
    #[test]
    fn encoded_record_is_decoded_unchanged(record in record()) {
        let encoded = record.encode().unwrap();
        let (same, read) = EncodedRecord::of_bytes(encoded.bytes().to_vec()).unwrap();
        prop_assert_eq!(read, record);
        prop_assert_eq!(same, encoded);
    }

    #[test]
    fn operation_encoding_stays_within_its_size_bound(operations in prop::collection::vec(operation(), 0..6)) {
        let empty = sample(Body::Operations(Vec::new())).encode().unwrap().bytes().len();
        let said: usize = operations.iter().map(FileOperation::encoded_bytes_max).sum();
        let taken = sample(Body::Operations(operations)).encode().unwrap().bytes().len();
        prop_assert!(taken <= empty + said);
    }

    /// Modified bytes are refused, or are the encoding of a different record.
    #[test]
    fn hostile_bytes_are_refused_or_are_a_record_of_their_own(
        record in record(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let encoded = record.encode().unwrap();
        let mut changed = encoded.bytes().to_vec();
        let at = at.index(changed.len());
        changed[at] = byte;
        if let Ok((read, other)) = EncodedRecord::of_bytes(changed.clone()) {
            let again = other.encode().unwrap();
            prop_assert_eq!(again.bytes(), changed.as_slice());
            prop_assert_eq!(read.hash() == encoded.hash(), changed == encoded.bytes());
        }
        let cut = cut.index(encoded.bytes().len());
        prop_assert!(LogRecord::decode(&encoded.bytes()[..cut]).is_err());
        let longer = [encoded.bytes(), &[byte]].concat();
        prop_assert!(LogRecord::decode(&longer).is_err());
    }

    #[test]
    fn garbage_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..300), behind_magic in any::<bool>()) {
        let bytes = if behind_magic { [b"gdnr\x01\x00\x01w".as_slice(), &bytes].concat() } else { bytes };
        if let Ok(record) = LogRecord::decode(&bytes) {
            prop_assert_eq!(record.encode().unwrap().bytes().to_vec(), bytes);
        }
    }
}
