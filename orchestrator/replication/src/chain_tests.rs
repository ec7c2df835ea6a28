use super::*;
use crate::operation::{FileOperation, RelativePath};

fn chain() -> Chain {
    Chain::new(WorkspaceId::new("w").unwrap())
}

fn seal(node: &str) -> Body {
    Body::Seal {
        node: NodeId::new(node).unwrap(),
        life: Incarnation(1),
    }
}

fn batch(name: &str) -> Body {
    let path = RelativePath::new(name).unwrap();
    Body::Operations(vec![FileOperation::Create { path }])
}

/// Appends a record to a chain and advances by it.
fn written(chain: &mut Chain, body: Body) -> EncodedRecord {
    let encoded = chain.next(body).unwrap();
    chain.follow_bytes(encoded.bytes().to_vec()).unwrap();
    encoded
}

fn followed(chain: &mut Chain, encoded: &EncodedRecord) -> Result<RecordRole, ChainFault> {
    let (_, link) = chain.follow_bytes(encoded.bytes().to_vec())?;
    Ok(link)
}

#[test]
fn write_before_the_first_seal_is_rejected() {
    let mut chain = chain();
    let early = chain.next(batch("a")).unwrap();
    assert!(matches!(
        followed(&mut chain, &early),
        Err(ChainFault::Epoch { .. })
    ));
    written(&mut chain, seal("a"));
    written(&mut chain, batch("a"));
    assert_eq!((chain.position(), chain.epoch()), (Position(2), Epoch(1)));
}

#[test]
fn a_record_of_a_deposed_owner_is_void_and_keeps_its_place() {
    let mut reader = chain();
    written(&mut reader, seal("a"));
    // The owner assumes that its record is at 2 and writes at 3; a seal is at 2.
    let mut deposed = reader.clone();
    written(&mut deposed, batch("lost"));
    let late = deposed.next(batch("late")).unwrap();
    written(&mut reader, seal("b"));
    assert_eq!(followed(&mut reader, &late).unwrap(), RecordRole::Void);
    assert_eq!(reader.owner().unwrap().node.as_str(), "b");
    // The next owner continues after it.
    let next = reader.next(batch("next")).unwrap();
    assert_eq!(next.position(), Position(4));
    assert_eq!(followed(&mut reader, &next).unwrap(), RecordRole::Follows);
}

#[test]
fn an_altered_record_is_damage_and_not_void() {
    let mut writer = chain();
    let mut reader = chain();
    let first = written(&mut writer, seal("a"));
    let second = written(&mut writer, batch("a"));
    let third = written(&mut writer, batch("b"));
    let successor = written(&mut writer, seal("b"));
    followed(&mut reader, &first).unwrap();
    let altered = {
        let mut bytes = second.bytes().to_vec();
        *bytes.last_mut().unwrap() = b'x';
        EncodedRecord::of_bytes(bytes).unwrap().0
    };
    followed(&mut reader, &altered).unwrap();
    let position = Position(3);
    assert_eq!(
        followed(&mut reader, &third),
        Err(ChainFault::Broken { position })
    );
    // The same if a seal follows.
    let mut reader = chain();
    for record in [&first, &second] {
        followed(&mut reader, record).unwrap();
    }
    let altered = {
        let mut bytes = third.bytes().to_vec();
        *bytes.last_mut().unwrap() = b'x';
        EncodedRecord::of_bytes(bytes).unwrap().0
    };
    followed(&mut reader, &altered).unwrap();
    let position = Position(4);
    assert_eq!(
        followed(&mut reader, &successor),
        Err(ChainFault::Broken { position })
    );
}

#[test]
fn nothing_follows_the_end_of_a_log() {
    let node = NodeId::new("a").unwrap();
    let mut chain = chain();
    written(&mut chain, seal("a"));
    assert_eq!(chain.ended_by(), None);
    let to = Some(node.clone());
    written(&mut chain, Body::Released { to });
    assert_eq!(chain.ended_by(), Some(&node));
    for body in [seal("a"), seal("b"), batch("late")] {
        let late = chain.next(body).unwrap();
        let followed = followed(&mut chain, &late);
        assert!(matches!(followed, Err(ChainFault::Epoch { .. })));
    }
}

#[test]
fn nothing_of_an_epoch_follows_its_release() {
    let mut chain = chain();
    written(&mut chain, seal("a"));
    let to = Some(NodeId::new("b").unwrap());
    written(&mut chain, Body::Released { to: to.clone() });
    assert_eq!(chain.owner().unwrap().released, Some(to));
    let late = chain.next(batch("late")).unwrap();
    assert!(matches!(
        followed(&mut chain, &late),
        Err(ChainFault::Epoch { .. })
    ));
    written(&mut chain, seal("b"));
    written(&mut chain, batch("a"));
}

#[test]
fn records_of_elsewhere_and_jumps_of_epochs_are_refused() {
    let mut reader = chain();
    written(&mut reader, seal("a"));
    let mut other = Chain::new(WorkspaceId::new("other").unwrap());
    written(&mut other, seal("a"));
    let strange = other.next(batch("a")).unwrap();
    assert!(matches!(
        followed(&mut reader, &strange),
        Err(ChainFault::Elsewhere { .. })
    ));
    let jump = LogRecord {
        workspace: reader.workspace().clone(),
        position: Position(2),
        epoch: Epoch(3),
        previous: reader.followed(),
        body: seal("b"),
    };
    let fault = reader.judge(&jump).unwrap_err();
    assert!(matches!(fault, ChainFault::Epoch { .. }), "{fault}");
    assert!(matches!(
        reader.follow_bytes(vec![1]),
        Err(ChainFault::NoRecord { .. })
    ));
}
