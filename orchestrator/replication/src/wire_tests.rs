//! Golden bytes of every message, and what is none. Changing one means raising
//! [`goondan_protocol::version::PROTOCOL_VERSION`].

use goondan_protocol::version::Version;
use proptest::prelude::*;

use super::*;
use crate::chain::Chain;
use crate::log::LogPage;
use crate::names::Hash;
use crate::record::Body;

fn workspace() -> WorkspaceId {
    WorkspaceId::new("w").unwrap()
}

fn node() -> NodeId {
    NodeId::new("a").unwrap()
}

fn put() -> PutRequest {
    let chain = Chain::new(workspace());
    let life = Incarnation(7);
    let record = chain.next(Body::Seal { node: node(), life }).unwrap();
    PutRequest {
        record,
        after: Hash([0xab; 32]),
    }
}

fn beat() -> Beat {
    Beat {
        workspace: workspace(),
        node: node(),
        life: Incarnation(u64::MAX),
        epoch: Epoch(2),
        position: Position(3),
        owns: true,
    }
}

fn part() -> SnapshotPartRef {
    SnapshotPartRef {
        workspace: workspace(),
        reference: SnapshotReference::new("s 1").unwrap(),
        number: 2,
    }
}

fn kept() -> KeptSnapshot {
    KeptSnapshot {
        reference: part().reference,
        parts: 2,
        at: Position(5),
        hash: Hash([0xab; 32]),
    }
}

/// A body as it is, but for the length of its head.
fn split(body: &[u8]) -> (String, Vec<u8>) {
    let (length, rest) = body.split_first_chunk::<4>().unwrap();
    let (head, bytes) = rest.split_at(u32::from_be_bytes(*length) as usize);
    (String::from_utf8(head.to_vec()).unwrap(), bytes.to_vec())
}

fn asks() -> Vec<(LogCommand, &'static str, Vec<u8>)> {
    let record = put().record.bytes().to_vec();
    vec![
        (
            LogCommand::Put(put()),
            r#"{"id":1,"message":{"ask":"put","after":"abababababababababababababababababababababababababababababababab"},"bytes":[68]}"#,
            record,
        ),
        (
            LogCommand::Read {
                workspace: workspace(),
                from: Position(5),
            },
            r#"{"id":1,"message":{"ask":"read","workspace":"w","from":5}}"#,
            vec![],
        ),
        (
            LogCommand::Trim {
                workspace: workspace(),
                before: kept(),
            },
            r#"{"id":1,"message":{"ask":"trim","workspace":"w","before":{"reference":"s 1","parts":2,"at":5,"hash":"abababababababababababababababababababababababababababababababab"}}}"#,
            vec![],
        ),
        (
            LogCommand::Heads(vec![workspace()]),
            r#"{"id":1,"message":{"ask":"heads","workspaces":["w"]}}"#,
            vec![],
        ),
        (
            LogCommand::List {
                after: Some(workspace()),
            },
            r#"{"id":1,"message":{"ask":"list","after":"w"}}"#,
            vec![],
        ),
        (
            LogCommand::Beat(vec![beat()]),
            r#"{"id":1,"message":{"ask":"beat","beats":[{"workspace":"w","node":"a","life":18446744073709551615,"epoch":2,"position":3,"owns":true}]}}"#,
            vec![],
        ),
        (
            LogCommand::KeepPart(part(), b"xyz".to_vec()),
            r#"{"id":1,"message":{"ask":"keep_part","workspace":"w","reference":"s 1","number":2},"bytes":[3]}"#,
            b"xyz".to_vec(),
        ),
        (
            LogCommand::ReadPart(part()),
            r#"{"id":1,"message":{"ask":"read_part","workspace":"w","reference":"s 1","number":2}}"#,
            vec![],
        ),
        (
            LogCommand::ForgetSnapshots {
                workspace: workspace(),
                before: kept(),
            },
            r#"{"id":1,"message":{"ask":"forget_snapshots","workspace":"w","before":{"reference":"s 1","parts":2,"at":5,"hash":"abababababababababababababababababababababababababababababababab"}}}"#,
            vec![],
        ),
        (
            LogCommand::Check,
            r#"{"id":1,"message":{"ask":"check"}}"#,
            vec![],
        ),
        (
            LogCommand::Standing,
            r#"{"id":1,"message":{"ask":"standing"}}"#,
            vec![],
        ),
        (
            LogCommand::Probe,
            r#"{"id":1,"message":{"ask":"probe"}}"#,
            vec![],
        ),
        (
            LogCommand::Server(SecretValue::new("postgres://h/d".to_owned())),
            r#"{"id":1,"message":{"ask":"server","server":"postgres://h/d"}}"#,
            vec![],
        ),
    ]
}

fn answers() -> Vec<(LogAnswer, &'static str)> {
    let page = LogPage {
        before: Some(Hash([0xab; 32])),
        records: vec![b"xy".to_vec(), b"z".to_vec()],
        oldest: Position(1),
        head: Position(9),
    };
    let head = LogHead {
        workspace: workspace(),
        head: Position(9),
        oldest: Position(1),
        heard: vec![LastHeartbeat {
            beat: beat(),
            count: 4,
        }],
    };
    let finding = ServerCheck {
        what: "fsync".to_owned(),
        found: "off".to_owned(),
        verdict: ServerCheckVerdict::Bad,
        advice: "a".to_owned(),
    };
    let (head_at, oldest) = (Position(9), Position(1));
    vec![
        (
            LogAnswer::Put(PutAnswer::Done),
            r#"{"id":1,"message":{"answer":"done"}}"#,
        ),
        (
            LogAnswer::Put(PutAnswer::Taken(b"xyz".to_vec())),
            r#"{"id":1,"message":{"answer":"taken"},"bytes":[3]}"#,
        ),
        (
            LogAnswer::Put(PutAnswer::Behind { head: head_at }),
            r#"{"id":1,"message":{"answer":"behind","head":9}}"#,
        ),
        (
            LogAnswer::Put(PutAnswer::Forgotten { oldest }),
            r#"{"id":1,"message":{"answer":"forgotten","oldest":1}}"#,
        ),
        (
            LogAnswer::Put(PutAnswer::Unknown),
            r#"{"id":1,"message":{"answer":"unknown"}}"#,
        ),
        (
            LogAnswer::Put(PutAnswer::Unavailable),
            r#"{"id":1,"message":{"answer":"not_put"}}"#,
        ),
        (
            LogAnswer::Read(ReadAnswer::Page(page)),
            r#"{"id":1,"message":{"answer":"page","before":"abababababababababababababababababababababababababababababababab","oldest":1,"head":9},"bytes":[2,1]}"#,
        ),
        (
            LogAnswer::Read(ReadAnswer::Unavailable),
            r#"{"id":1,"message":{"answer":"not_read"}}"#,
        ),
        (
            LogAnswer::Trimmed(oldest),
            r#"{"id":1,"message":{"answer":"trimmed","oldest":1}}"#,
        ),
        (
            LogAnswer::Heads(vec![head]),
            r#"{"id":1,"message":{"answer":"heads","heads":[{"workspace":"w","head":9,"oldest":1,"heard":[{"beat":{"workspace":"w","node":"a","life":18446744073709551615,"epoch":2,"position":3,"owns":true},"count":4}]}]}}"#,
        ),
        (
            LogAnswer::Listed(vec![workspace()]),
            r#"{"id":1,"message":{"answer":"listed","workspaces":["w"]}}"#,
        ),
        (LogAnswer::Noted, r#"{"id":1,"message":{"answer":"noted"}}"#),
        (
            LogAnswer::Part(Some(b"xyz".to_vec())),
            r#"{"id":1,"message":{"answer":"part"},"bytes":[3]}"#,
        ),
        (
            LogAnswer::Part(None),
            r#"{"id":1,"message":{"answer":"no_part"}}"#,
        ),
        (
            LogAnswer::Checked(vec![finding]),
            r#"{"id":1,"message":{"answer":"checked","findings":[{"what":"fsync","found":"off","verdict":"bad","advice":"a"}]}}"#,
        ),
        (
            LogAnswer::Standing(Some("t".to_owned())),
            r#"{"id":1,"message":{"answer":"standing","trouble":"t"}}"#,
        ),
        (
            LogAnswer::Standing(None),
            r#"{"id":1,"message":{"answer":"standing","trouble":null}}"#,
        ),
        (
            LogAnswer::Unavailable,
            r#"{"id":1,"message":{"answer":"unavailable"}}"#,
        ),
    ]
}

#[test]
fn golden_bytes_of_requests() {
    for (ask, head, bytes) in asks() {
        let request = LogRequest { id: 1, ask };
        let body = request.to_frame().unwrap();
        assert_eq!(split(&body), (head.to_owned(), bytes));
        assert_eq!(LogRequest::from_frame(&body).unwrap(), request);
    }
}

#[test]
fn golden_bytes_of_responses() {
    for (answer, head) in answers() {
        let response = LogResponse { id: 1, answer };
        let body = response.to_frame().unwrap();
        assert_eq!(split(&body).0, head);
        assert_eq!(LogResponse::from_frame(&body).unwrap(), response);
    }
}

#[test]
fn golden_bytes_of_greetings() {
    let version = Version::current();
    let hello = Hello {
        version: version.clone(),
    };
    let body = hello.to_frame().unwrap();
    let golden = r#"{"version":{"protocol":3,"goondan":"0.1.0"}}"#;
    assert_eq!(String::from_utf8_lossy(&body), golden);
    assert_eq!(Hello::from_frame(&body).unwrap(), hello);
    let welcome = Welcome {
        version,
        server: SecretValue::new("postgres://u:hidden@h/d".to_owned()),
        node: node(),
    };
    let body = welcome.to_frame().unwrap();
    let golden = r#"{"version":{"protocol":3,"goondan":"0.1.0"},"server":"postgres://u:hidden@h/d","node":"a"}"#;
    assert_eq!(String::from_utf8_lossy(&body), golden);
    assert_eq!(Welcome::from_frame(&body).unwrap(), welcome);
    assert!(!format!("{welcome:?}").contains("hidden"));
}

#[test]
fn other_version_is_recognized_despite_unknown_fields() {
    let other = br#"{"version":{"protocol":99,"goondan":"9.0.0"},"news":1}"#;
    let fault = Welcome::from_frame(other).unwrap_err();
    assert!(matches!(fault, WireFault::OtherVersion(_)), "{fault}");
}

#[test]
fn too_many_heads_are_neither_sent_nor_accepted() {
    let many = vec![workspace(); HEADS_MAX + 1];
    let request = |ask| LogRequest { id: 1, ask };
    let fault = request(LogCommand::Heads(many)).to_frame().unwrap_err();
    assert!(matches!(fault, WireFault::TooMuch), "{fault}");
    let names = vec!["\"w\""; HEADS_MAX + 1].join(",");
    let head = format!(r#"{{"id":1,"message":{{"ask":"heads","workspaces":[{names}]}}}}"#);
    let mut body = u32::try_from(head.len()).unwrap().to_be_bytes().to_vec();
    body.extend(head.into_bytes());
    let fault = LogRequest::from_frame(&body).unwrap_err();
    assert!(matches!(fault, WireFault::TooMuch), "{fault}");
}

#[test]
fn request_with_an_invalid_record_is_rejected() {
    let mut body = LogRequest {
        id: 1,
        ask: LogCommand::Put(put()),
    }
    .to_frame()
    .unwrap();
    let magic = body.len() - put().record.bytes().len();
    body[magic] ^= 1;
    let fault = LogRequest::from_frame(&body).unwrap_err();
    assert!(matches!(fault, WireFault::Record(_)), "{fault}");
}

proptest! {
    /// A message with any byte altered, cut or added is another message or none, and nothing panics.
    #[test]
    fn altered_bytes_are_read_or_refused(
        which in 0..9_usize,
        at in any::<prop::sample::Index>(),
        with in any::<u8>(),
        cut in any::<bool>(),
    ) {
        let (ask, ..) = asks().swap_remove(which);
        let mut body = LogRequest { id: 1, ask }.to_frame().unwrap();
        let at = at.index(body.len());
        if cut {
            body.truncate(at);
            prop_assert!(LogRequest::from_frame(&body).is_err());
        } else {
            body[at] = with;
            drop(LogRequest::from_frame(&body));
        }
        drop(LogResponse::from_frame(&body));
    }
}
