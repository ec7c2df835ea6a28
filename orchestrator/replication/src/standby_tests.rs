use goondan_protocol::ids::WorkspaceId;

use super::*;
use crate::log::MemoryLog;
use crate::operation::RelativePath;
use crate::record::{Body, LogRecord};

/// A standby, the log it reads, and the owner's chain.
struct StandbyHarness {
    standby: Standby,
    log: MemoryLog,
    writer: Chain,
    now_ms: u64,
    said: Vec<StandbyTrouble>,
}

fn node(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

impl StandbyHarness {
    fn new() -> Self {
        let chain = Chain::new(WorkspaceId::new("w").unwrap());
        let mut bench = Self {
            standby: Standby::new(
                node("b"),
                Incarnation(2),
                chain.clone(),
                FilesState::AsNoted,
                0,
            ),
            log: MemoryLog::default(),
            writer: chain,
            now_ms: 0,
            said: Vec::new(),
        };
        bench.write(Body::Seal {
            node: node("a"),
            life: Incarnation(1),
        });
        bench.standby.handle(0, StandbyInput::Rank(Some(0)));
        bench
    }

    fn write(&mut self, body: Body) -> PutRequest {
        let put = PutRequest {
            record: self.writer.next(body).unwrap(),
            after: self.writer.last(),
        };
        assert_eq!(self.log.put(&put), PutAnswer::Done);
        self.writer
            .follow_bytes(put.record.bytes().to_vec())
            .unwrap();
        put
    }

    fn batch(&mut self) {
        let path = RelativePath::new("f").unwrap();
        self.write(Body::Operations(vec![FileOperation::Create { path }]));
    }

    fn snapshot(&mut self, digest: Hash) {
        let taken = self.write(Body::Snapshot {
            reference: SnapshotReference::new("s").unwrap(),
            node: node("a"),
            life: Incarnation(1),
        });
        let at = taken.record.position();
        self.write(Body::SnapshotKept { at, digest });
    }

    /// Advances time until something is due, and answers requests until the standby is idle, stops,
    /// or makes a request that is not answered here, which is returned.
    fn turn(&mut self) -> Option<StandbyEffect> {
        let due_ms = self.standby.due_ms()?;
        self.now_ms = self.now_ms.max(due_ms);
        let effects = self.standby.handle(self.now_ms, StandbyInput::Tick);
        self.answer(effects)
    }

    fn answer(&mut self, effects: Vec<StandbyEffect>) -> Option<StandbyEffect> {
        let mut effects = VecDeque::from(effects);
        while let Some(effect) = effects.pop_front() {
            let input = match effect {
                StandbyEffect::Read(attempt, from) => {
                    StandbyInput::Read(attempt, ReadAnswer::Page(self.log.read(from)))
                }
                StandbyEffect::Apply(..) => StandbyInput::Applied(Ok(())),
                StandbyEffect::Verify => StandbyInput::Verified(true),
                StandbyEffect::Say(trouble) => {
                    self.said.push(trouble);
                    continue;
                }
                other => return Some(other),
            };
            effects.extend(self.standby.handle(self.now_ms, input));
        }
        None
    }

    /// Advances time until the standby makes a request that is not answered here.
    fn wants(&mut self) -> StandbyEffect {
        for _ in 0..100 {
            if let Some(effect) = self.turn() {
                return effect;
            }
        }
        panic!("it wants nothing: {:?}", self.standby);
    }
}

#[test]
fn request_to_a_former_owner_is_not_applied_to_its_successor() {
    let mut bench = StandbyHarness::new();
    bench.standby.handle(0, StandbyInput::TakeOver);
    // Another node was faster.
    bench.write(Body::Seal {
        node: node("c"),
        life: Incarnation(3),
    });
    let acknowledged = Position(2);
    for _ in 0..20 {
        assert_eq!(bench.turn(), None);
        let heard = StandbyInput::Heard { acknowledged };
        bench.standby.handle(bench.now_ms, heard);
    }
    bench.standby.handle(bench.now_ms, StandbyInput::TakeOver);
    assert!(matches!(bench.wants(), StandbyEffect::Seal(..)));
}

#[test]
fn live_owner_is_left_alone_and_a_silent_one_is_replaced() {
    let mut bench = StandbyHarness::new();
    for _ in 0..60 {
        let acknowledged = Position(1);
        bench
            .standby
            .handle(bench.now_ms, StandbyInput::Heard { acknowledged });
        assert_eq!(bench.turn(), None);
    }
    bench.batch();
    assert_eq!(bench.turn(), None, "a new record is a sign of life");
    let heard_ms = bench.now_ms;
    let StandbyEffect::Seal(attempt, put) = bench.wants() else {
        panic!("no seal");
    };
    let silence_ms = bench.now_ms - heard_ms;
    assert!(
        (TAKE_OVER_AFTER_MS..=TAKE_OVER_AFTER_MS + POLL_MS).contains(&silence_ms),
        "{silence_ms}"
    );
    assert_eq!(put.record.position(), Position(3), "behind all there is");
    let answer = bench.log.put(&put);
    let effects = bench
        .standby
        .handle(bench.now_ms, StandbyInput::Sealed(attempt, answer));
    let [StandbyEffect::Own { chain, seal }] = effects.as_slice() else {
        panic!("{effects:?}");
    };
    assert_eq!((chain.position(), seal), (Position(3), &put));
}

#[test]
fn seal_without_an_answer_is_recognized_in_the_log() {
    let mut bench = StandbyHarness::new();
    let StandbyEffect::Seal(attempt, put) = bench.wants() else {
        panic!("no seal");
    };
    bench.log.put(&put);
    let effects = bench.standby.handle(
        bench.now_ms,
        StandbyInput::Sealed(attempt, PutAnswer::Unknown),
    );
    assert!(matches!(
        bench.answer(effects),
        Some(StandbyEffect::Own { .. })
    ));
}

#[test]
fn late_seal_is_rejected_and_the_standby_continues() {
    let mut bench = StandbyHarness::new();
    let StandbyEffect::Seal(attempt, put) = bench.wants() else {
        panic!("no seal");
    };
    bench.batch();
    let answer = bench.log.put(&put);
    let effects = bench
        .standby
        .handle(bench.now_ms, StandbyInput::Sealed(attempt, answer));
    assert_eq!(bench.answer(effects), None);
    assert_eq!(
        bench.standby.chain().position(),
        Position(2),
        "it continues as a standby"
    );
}

#[test]
fn released_workspace_is_taken_at_once_by_its_successor() {
    for to in ["b", "c"] {
        let mut bench = StandbyHarness::new();
        bench.standby.handle(0, StandbyInput::Rank(Some(3)));
        bench.write(Body::Released { to: Some(node(to)) });
        let wants = bench.turn();
        assert_eq!(
            matches!(wants, Some(StandbyEffect::Seal(..))),
            to == "b",
            "{wants:?}"
        );
    }
}

#[test]
fn differing_files_are_reported_and_rebuilt_only_once() {
    let mut bench = StandbyHarness::new();
    bench.batch();
    bench.snapshot(Hash([1; 32]));
    assert_eq!(bench.turn(), Some(StandbyEffect::Digest));
    let effects = bench
        .standby
        .handle(bench.now_ms, StandbyInput::Digested(Hash([2; 32])));
    assert_eq!(
        bench.answer(effects),
        Some(StandbyEffect::Restore(None)),
        "the log begins at its beginning"
    );
    assert!(
        matches!(
            bench.said[..],
            [StandbyTrouble::Differs {
                position: Position(3),
                ..
            }]
        ),
        "{:?}",
        bench.said
    );
    let effects = bench
        .standby
        .handle(bench.now_ms, StandbyInput::Restored(true));
    assert_eq!(bench.answer(effects), Some(StandbyEffect::Digest));
    let effects = bench
        .standby
        .handle(bench.now_ms, StandbyInput::Digested(Hash([2; 32])));
    assert_eq!(bench.answer(effects), None);
    assert!(bench.standby.is_stopped());
    assert!(
        matches!(
            bench.said[1..],
            [StandbyTrouble::DiffersAgain {
                position: Position(3)
            }]
        ),
        "{:?}",
        bench.said
    );
}

#[test]
fn standby_behind_the_trimmed_log_starts_from_the_snapshot() {
    let mut bench = StandbyHarness::new();
    bench.batch();
    bench.snapshot(Hash([1; 32]));
    bench.batch();
    bench.log.trim_to(Position(3));
    let reference = SnapshotReference::new("s").unwrap();
    assert_eq!(bench.turn(), Some(StandbyEffect::Restore(Some(reference))));
    let effects = bench
        .standby
        .handle(bench.now_ms, StandbyInput::Restored(true));
    assert_eq!(bench.answer(effects), None);
    assert_eq!(bench.standby.chain(), &bench.writer);
    assert!(matches!(
        bench.said[..],
        [StandbyTrouble::TooFarBehind { .. }]
    ));
}

#[test]
fn lost_log_tail_is_left_to_its_owner_or_reported_once_it_left() {
    let mut bench = StandbyHarness::new();
    bench.batch();
    assert_eq!(bench.turn(), None);
    bench.log.lose_behind(Position(1));
    assert_eq!(bench.turn(), None);
    assert!(bench.said.is_empty(), "the owner may append it again");
    while !bench.standby.is_stopped() {
        assert_eq!(bench.turn(), None, "it must not seal");
    }
    let expected = StandbyTrouble::TailLost {
        head: Position(1),
        known: Position(2),
        position: Position(2),
    };
    assert_eq!(bench.said, [expected]);
    // A person decides in favor of the log.
    let effects = bench.standby.handle(bench.now_ms, StandbyInput::Rebuild);
    assert_eq!(bench.answer(effects), Some(StandbyEffect::Restore(None)));
}

#[test]
fn acknowledged_record_missing_from_the_log_blocks_takeover() {
    let mut bench = StandbyHarness::new();
    let acknowledged = Position(7);
    bench
        .standby
        .handle(0, StandbyInput::Heard { acknowledged });
    while !bench.standby.is_stopped() {
        assert_eq!(bench.turn(), None);
    }
    assert!(matches!(
        bench.said[..],
        [StandbyTrouble::TailLost {
            known: Position(7),
            ..
        }]
    ));
}

#[test]
fn a_log_that_is_another_than_before_stops_a_standby() {
    let mut bench = StandbyHarness::new();
    let before = bench.writer.clone();
    bench.batch();
    assert_eq!(bench.turn(), None);
    bench.log.lose_behind(Position(1));
    bench.writer = before;
    bench.write(Body::Seal {
        node: node("c"),
        life: Incarnation(3),
    });
    assert_eq!(bench.turn(), None);
    assert_eq!(
        bench.said,
        [StandbyTrouble::Replaced {
            position: Position(2)
        }]
    );
}

#[test]
fn former_owner_rebuilds_files_once_the_log_has_all_its_writes() {
    let mut bench = StandbyHarness::new();
    bench.batch();
    let standby = |chain: &Chain| {
        Standby::new(
            node("a"),
            Incarnation(9),
            chain.clone(),
            FilesState::PerhapsAhead,
            0,
        )
    };
    bench.standby = standby(&bench.writer);
    assert_eq!(bench.turn(), Some(StandbyEffect::Restore(None)));
    bench.log.lose_behind(Position(1));
    bench.standby = standby(&bench.writer);
    for _ in 0..20 {
        assert_eq!(bench.turn(), None, "its own files are kept");
    }
}

#[test]
fn own_seal_of_an_earlier_life_is_not_taken_as_current() {
    let mut bench = StandbyHarness::new();
    let seal = bench.write(Body::Seal {
        node: node("b"),
        life: Incarnation(2),
    });
    let body = LogRecord::decode(seal.record.bytes()).unwrap().body;
    assert!(matches!(body, Body::Seal { .. }));
    assert_eq!(bench.turn(), None);
    assert_eq!(bench.standby.chain().position(), Position(2));
}

#[test]
fn log_that_does_not_continue_the_read_chain_stops_a_standby() {
    let mut bench = StandbyHarness::new();
    let before = bench.writer.clone();
    // A seal that a failover loses, after which the previous owner continues at its position.
    bench.write(Body::Seal {
        node: node("c"),
        life: Incarnation(3),
    });
    assert_eq!(bench.turn(), None);
    bench.log.lose_behind(Position(1));
    bench.writer = before;
    bench.batch();
    bench.snapshot(Hash([1; 32]));
    bench.log.trim_to(Position(3));
    assert_eq!(bench.turn(), None);
    let position = Position(2);
    assert_eq!(bench.said, [StandbyTrouble::Replaced { position }]);
}

#[test]
fn page_records_are_applied_up_to_the_next_pending_action() {
    let mut bench = StandbyHarness::new();
    for _ in 0..3 {
        bench.batch();
    }
    bench.snapshot(Hash([1; 32]));
    bench.batch();
    let asked = bench.standby.handle(0, StandbyInput::Tick);
    let [StandbyEffect::Read(attempt, from)] = asked[..] else {
        panic!("{asked:?}");
    };
    let page = ReadAnswer::Page(bench.log.read(from));
    let effects = bench.standby.handle(0, StandbyInput::Read(attempt, page));
    let [
        StandbyEffect::Apply(changes),
        StandbyEffect::Read(attempt, from),
    ] = &effects[..]
    else {
        panic!("{effects:?}");
    };
    let positions: Vec<_> = changes.iter().map(RecordChanges::position).collect();
    assert_eq!(positions, [2, 3, 4].map(Position));
    assert!(bench.standby.is_changing());
    assert_eq!(bench.standby.chain().position(), Position(0));
    // The remaining records are read while the files are created.
    let page = ReadAnswer::Page(bench.log.read(*from));
    let effects = bench.standby.handle(0, StandbyInput::Read(*attempt, page));
    assert!(effects.is_empty(), "{effects:?}");
    assert!(bench.standby.is_changing());
    let effects = bench.standby.handle(0, StandbyInput::Applied(Ok(())));
    assert!(!bench.standby.is_changing());
    assert_eq!(effects, [StandbyEffect::Digest]);
    let found = Hash([1; 32]);
    let effects = bench.standby.handle(0, StandbyInput::Digested(found));
    assert_eq!(bench.answer(effects), None);
    assert_eq!(bench.standby.chain(), &bench.writer);
    assert!(bench.said.is_empty(), "{:?}", bench.said);
}

#[test]
fn mismatching_record_is_reported_with_its_log_position() {
    let mut bench = StandbyHarness::new();
    for _ in 0..3 {
        bench.batch();
    }
    let asked = bench.standby.handle(0, StandbyInput::Tick);
    let [StandbyEffect::Read(attempt, from)] = asked[..] else {
        panic!("{asked:?}");
    };
    let page = ReadAnswer::Page(bench.log.read(from));
    bench.standby.handle(0, StandbyInput::Read(attempt, page));
    let position = Position(3);
    let fault = FileMismatch {
        path: RelativePath::new("f").unwrap(),
        why: crate::tree::MismatchKind::OtherKind,
    };
    let unfit = ApplyFailure {
        position,
        fault: fault.clone(),
    };
    let effects = bench.standby.handle(0, StandbyInput::Applied(Err(unfit)));
    assert_eq!(bench.answer(effects), Some(StandbyEffect::Restore(None)));
    assert_eq!(bench.said, [StandbyTrouble::Misfit { position, fault }]);
}

#[test]
fn log_that_loses_its_tail_during_a_rebuild_is_reported() {
    for is_written_on in [false, true] {
        let mut bench = StandbyHarness::new();
        let before = bench.writer.clone();
        for _ in 0..3 {
            bench.batch();
        }
        let chain = bench.writer.clone();
        bench.standby = Standby::new(
            node("a"),
            Incarnation(9),
            chain,
            FilesState::PerhapsAhead,
            0,
        );
        bench.standby.handle(0, StandbyInput::Rank(Some(0)));
        assert_eq!(bench.turn(), Some(StandbyEffect::Restore(None)));
        bench.log.lose_behind(Position(1));
        bench.writer = before;
        if is_written_on {
            for life in 3..8 {
                bench.write(Body::Seal {
                    node: node("c"),
                    life: Incarnation(life),
                });
            }
        }
        let effects = bench
            .standby
            .handle(bench.now_ms, StandbyInput::Restored(true));
        assert_eq!(bench.answer(effects), None);
        while !bench.standby.is_stopped() {
            assert_eq!(bench.turn(), None, "it must not seal");
        }
        let known = Position(4);
        let told = match is_written_on {
            true => StandbyTrouble::Replaced { position: known },
            false => StandbyTrouble::TailLost {
                head: Position(1),
                known,
                position: Position(1),
            },
        };
        assert_eq!(bench.said, [told]);
    }
}
