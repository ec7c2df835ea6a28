use goondan_protocol::ids::WorkspaceId;

use super::*;
use crate::limits::{KEPT_RECORDS_MAX, RETRY_FIRST_MS};
use crate::log::MemoryLog;
use crate::names::Incarnation;
use crate::operation::RelativePath;
use crate::record::LogRecord;

/// An owner and its log, which answers the owner's puts.
struct OwnerHarness {
    owner: WorkspaceOwner,
    log: MemoryLog,
    now_ms: u64,
}

fn chain() -> Chain {
    Chain::new(WorkspaceId::new("w").unwrap())
}

fn put(chain: &Chain, body: Body) -> PutRequest {
    PutRequest {
        record: chain.next(body).unwrap(),
        after: chain.last(),
    }
}

fn seal(chain: &Chain, node: &str) -> PutRequest {
    let node = NodeId::new(node).unwrap();
    put(
        chain,
        Body::Seal {
            node,
            life: Incarnation(1),
        },
    )
}

fn followed(chain: &Chain, put: &PutRequest) -> Chain {
    let mut chain = chain.clone();
    chain.follow_bytes(put.record.bytes().to_vec()).unwrap();
    chain
}

impl OwnerHarness {
    fn new() -> Self {
        let mut log = MemoryLog::default();
        let seal = seal(&chain(), "a");
        assert_eq!(log.put(&seal), PutAnswer::Done);
        Self {
            owner: WorkspaceOwner::new(followed(&chain(), &seal), seal, 0),
            log,
            now_ms: 0,
        }
    }

    fn give(&mut self, input: OwnerInput) -> Vec<OwnerEffect> {
        self.owner.handle(self.now_ms, input)
    }

    fn batch(&mut self, id: u64) -> Vec<OwnerEffect> {
        self.batch_for(id, true)
    }

    fn batch_for(&mut self, id: u64, is_awaited: bool) -> Vec<OwnerEffect> {
        let path = RelativePath::new(&format!("f{id}")).unwrap();
        self.give(OwnerInput::Batch {
            id: BatchId(id),
            operations: vec![FileOperation::Create { path }],
            is_awaited,
        })
    }

    fn tick(&mut self) -> Vec<OwnerEffect> {
        self.now_ms = self.owner.due_ms().unwrap();
        self.give(OwnerInput::Tick)
    }

    /// Answers the only request among some effects.
    fn answered(&mut self, effects: &[OwnerEffect]) -> Vec<OwnerEffect> {
        let [effect] = effects else {
            panic!("{effects:?}");
        };
        match effect {
            OwnerEffect::Put(attempt, put) => {
                let answer = self.log.put(put);
                self.give(OwnerInput::Put(*attempt, answer))
            }
            OwnerEffect::Look(attempt, from) => {
                let page = self.log.read(*from);
                self.give(OwnerInput::Looked(*attempt, ReadAnswer::Page(page)))
            }
            other => panic!("{other:?}"),
        }
    }

    /// Writes a synced batch, which is acknowledged as soon as it is stored.
    fn written(&mut self, id: u64) {
        self.give(OwnerInput::Synced(BatchId(id)));
        let asked = self.batch(id);
        assert_eq!(
            self.answered(&asked),
            [OwnerEffect::Acknowledge(BatchId(id))]
        );
    }

    /// Answers until the owner is deposed, and returns the reason.
    fn deposed(&mut self, mut effects: Vec<OwnerEffect>) -> OwnershipLoss {
        for _ in 0..50 {
            if let Some(OwnerEffect::Fence(reason)) = effects.last() {
                return reason.clone();
            }
            effects = if effects.is_empty() {
                self.tick()
            } else {
                self.answered(&effects)
            };
        }
        panic!("it is not deposed: {effects:?}");
    }
}

fn attempt_of(effects: &[OwnerEffect]) -> Attempt {
    match effects {
        [OwnerEffect::Put(attempt, _) | OwnerEffect::Look(attempt, _)] => *attempt,
        other => panic!("{other:?}"),
    }
}

#[test]
fn waiting_batches_share_a_record_and_are_acknowledged_together() {
    let mut bench = OwnerHarness::new();
    let first = bench.batch(1);
    assert!(
        bench.batch(2).is_empty() && bench.batch(3).is_empty(),
        "one record at a time"
    );
    assert!(
        bench.give(OwnerInput::Synced(BatchId(1))).is_empty(),
        "it is not written yet"
    );
    let second = bench.answered(&first);
    let [
        OwnerEffect::Acknowledge(BatchId(1)),
        OwnerEffect::Put(attempt, put),
    ] = second.as_slice()
    else {
        panic!("{second:?}");
    };
    let Body::Operations(both) = LogRecord::decode(put.record.bytes()).unwrap().body else {
        panic!("no operations");
    };
    assert_eq!(both.len(), 2);
    let answer = bench.log.put(put);
    assert!(
        bench.give(OwnerInput::Put(*attempt, answer)).is_empty(),
        "they are not synced yet"
    );
    assert_eq!(
        bench.give(OwnerInput::Synced(BatchId(3))),
        [OwnerEffect::Acknowledge(BatchId(3))]
    );
    assert_eq!(
        bench.give(OwnerInput::Synced(BatchId(2))),
        [OwnerEffect::Acknowledge(BatchId(2))]
    );
}

#[test]
fn a_lost_answer_is_looked_for_and_nothing_is_appended_twice() {
    for got_there in [true, false] {
        let mut bench = OwnerHarness::new();
        bench.give(OwnerInput::Synced(BatchId(1)));
        let asked = bench.batch(1);
        let [OwnerEffect::Put(attempt, put)] = asked.as_slice() else {
            panic!("{asked:?}");
        };
        if got_there {
            bench.log.put(put);
        }
        let looked = bench.give(OwnerInput::Put(*attempt, PutAnswer::Unknown));
        let mut next = bench.answered(&looked);
        if !got_there {
            let [OwnerEffect::Put(_, again)] = next.as_slice() else {
                panic!("{next:?}");
            };
            assert_eq!(again, put, "the same bytes");
            next = bench.answered(&next.clone());
        }
        assert_eq!(next, [OwnerEffect::Acknowledge(BatchId(1))]);
        assert_eq!(bench.log.head(), Position(2));
        let late = bench.give(OwnerInput::Put(*attempt, PutAnswer::Done));
        assert!(late.is_empty(), "a late answer is of no meaning");
    }
}

#[test]
fn a_log_that_cannot_be_reached_is_asked_more_and_more_rarely() {
    let mut bench = OwnerHarness::new();
    bench.give(OwnerInput::Synced(BatchId(1)));
    let mut asked = bench.batch(1);
    let mut waits = Vec::new();
    for _ in 0..9 {
        let attempt = attempt_of(&asked);
        assert!(
            bench
                .give(OwnerInput::Put(attempt, PutAnswer::Unavailable))
                .is_empty()
        );
        assert!(bench.owner.unanswered_since_ms().is_some());
        let before_ms = bench.now_ms;
        asked = bench.tick();
        waits.push(bench.now_ms - before_ms);
    }
    assert_eq!(waits, [50, 100, 200, 400, 800, 1_600, 2_000, 2_000, 2_000]);
    assert_eq!(
        bench.answered(&asked),
        [OwnerEffect::Acknowledge(BatchId(1))]
    );
    assert_eq!(bench.owner.unanswered_since_ms(), None);
}

#[test]
fn a_seal_deposes_an_owner_that_writes_and_one_that_does_not() {
    for writes in [true, false] {
        let mut bench = OwnerHarness::new();
        bench.written(1);
        let other = seal(bench.owner.chain(), "b");
        assert_eq!(bench.log.put(&other), PutAnswer::Done);
        let asked = if writes { bench.batch(2) } else { bench.tick() };
        let reason = bench.deposed(asked);
        assert!(
            matches!(&reason, OwnershipLoss::Sealed { by, epoch: Epoch(2), position: Position(3) } if by.as_str() == "b")
        );
        assert!(bench.batch(3).is_empty() && bench.give(OwnerInput::Synced(BatchId(2))).is_empty());
        assert!(!bench.owner.has_room());
    }
}

#[test]
fn a_tail_that_the_server_lost_is_appended_again() {
    for writes in [true, false] {
        let mut bench = OwnerHarness::new();
        for id in 1..=4 {
            bench.written(id);
        }
        let before = bench.log.read(Position(1)).records;
        bench.log.lose_behind(Position(2));
        bench.give(OwnerInput::Synced(BatchId(5)));
        let mut asked = if writes { bench.batch(5) } else { bench.tick() };
        for _ in 0..20 {
            asked = match asked.as_slice() {
                [] if bench.owner.is_quiet() && bench.log.head() >= Position(5) => break,
                [] => bench.tick(),
                [OwnerEffect::Acknowledge(_)] => break,
                _ => bench.answered(&asked.clone()),
            };
        }
        let after = bench.log.read(Position(1)).records;
        assert_eq!(after[..before.len()], before);
        assert_eq!(after.len(), before.len() + usize::from(writes));
    }
}

#[test]
fn overwritten_lost_tail_is_reported_from_its_first_record() {
    let mut bench = OwnerHarness::new();
    for id in 1..=2 {
        bench.written(id);
    }
    let kept = bench.owner.chain().clone();
    for id in 3..=5 {
        bench.written(id);
    }
    bench.log.lose_behind(Position(3));
    let other = seal(&kept, "b");
    assert_eq!(bench.log.put(&other), PutAnswer::Done);
    let asked = bench.batch(6);
    let expected = OwnershipLoss::TailTaken {
        from: Position(4),
        to: Position(6),
    };
    assert_eq!(bench.deposed(asked), expected);
}

#[test]
fn a_log_that_lost_more_than_is_kept_stops_its_owner() {
    let mut bench = OwnerHarness::new();
    bench.written(1);
    bench.log.lose_behind(Position(0));
    let asked = bench.batch(2);
    // The seal is kept as well, so an empty log is filled again.
    let mut next = bench.answered(&asked);
    for _ in 0..8 {
        next = if next.is_empty() {
            bench.tick()
        } else {
            bench.answered(&next)
        };
    }
    assert_eq!(bench.log.head(), Position(3));
    for id in 3..KEPT_RECORDS_MAX as u64 + 10 {
        bench.written(id);
    }
    bench.log.lose_behind(Position(2));
    let asked = bench.batch(9_999);
    let reason = bench.deposed(asked);
    assert!(
        matches!(
            reason,
            OwnershipLoss::TailTooLong {
                head: Position(2),
                ..
            }
        ),
        "{reason}"
    );
}

/// A successor to the bench's owner that has written a batch, and its requests to the log.
fn successor(bench: &mut OwnerHarness) -> (WorkspaceOwner, PutRequest, Vec<OwnerEffect>) {
    let deposed = bench.owner.chain().clone();
    let next = seal(&deposed, "b");
    bench.log.put(&next);
    let mut owner = WorkspaceOwner::new(followed(&deposed, &next), next.clone(), 0);
    let path = RelativePath::new("f").unwrap();
    owner.handle(0, OwnerInput::Synced(BatchId(1)));
    let operations = vec![FileOperation::Create { path }];
    let id = BatchId(1);
    let batch = OwnerInput::Batch {
        id,
        operations,
        is_awaited: true,
    };
    let asked = owner.handle(0, batch);
    (owner, next, asked)
}

#[test]
fn a_void_record_is_stepped_over() {
    let mut bench = OwnerHarness::new();
    let deposed = bench.owner.chain().clone();
    let (mut owner, seal, asked) = successor(&mut bench);
    // A record that the deposed owner intended to write after one of its own.
    let lost = put(&deposed, Body::Operations(Vec::new()));
    let late = put(&followed(&deposed, &lost), Body::Operations(Vec::new()));
    let taken = PutAnswer::Taken(late.record.bytes().to_vec());
    assert!(
        owner
            .handle(0, OwnerInput::Put(attempt_of(&asked), taken.clone()))
            .is_empty()
    );
    // It first checks that its seal is stored.
    let asked = owner.handle(RETRY_FIRST_MS, OwnerInput::Tick);
    assert!(
        matches!(asked.as_slice(), [OwnerEffect::Put(_, put)] if *put == seal),
        "{asked:?}"
    );
    let mine = PutAnswer::Taken(seal.record.bytes().to_vec());
    let asked = owner.handle(0, OwnerInput::Put(attempt_of(&asked), mine));
    let again = owner.handle(0, OwnerInput::Put(attempt_of(&asked), taken));
    let [OwnerEffect::Put(attempt, behind)] = again.as_slice() else {
        panic!("{again:?}");
    };
    assert_eq!(
        (behind.record.position(), behind.after),
        (Position(4), late.record.hash())
    );
    let done = owner.handle(0, OwnerInput::Put(*attempt, PutAnswer::Done));
    assert_eq!(done, [OwnerEffect::Acknowledge(BatchId(1))]);
}

#[test]
fn lost_seal_overwritten_by_the_previous_owner_is_reported() {
    let mut bench = OwnerHarness::new();
    let (mut owner, _, mut asked) = successor(&mut bench);
    // A failover loses the seal, and the previous owner never receives a notification.
    bench.log.lose_behind(Position(1));
    bench.written(1);
    bench.written(2);
    for now_ms in [0, RETRY_FIRST_MS, 3 * RETRY_FIRST_MS] {
        if let [OwnerEffect::Put(attempt, put)] = asked.as_slice() {
            asked = owner.handle(now_ms, OwnerInput::Put(*attempt, bench.log.put(put)));
        }
        if asked.is_empty() {
            asked = owner.handle(now_ms + RETRY_FIRST_MS, OwnerInput::Tick);
        }
    }
    let (from, to) = (Position(2), Position(2));
    let told = OwnerEffect::Fence(OwnershipLoss::TailTaken { from, to });
    assert_eq!(asked, [told]);
    assert_eq!(bench.log.head(), Position(3), "it has written nothing");
}

#[test]
fn a_large_batch_is_several_records_and_one_acknowledgement() {
    let mut bench = OwnerHarness::new();
    let path = RelativePath::new("large").unwrap();
    let bytes = vec![3; 9 * 1024 * 1024];
    let operations = vec![FileOperation::Append {
        path,
        offset: 0,
        bytes,
    }];
    bench.give(OwnerInput::Synced(BatchId(1)));
    let mut asked = bench.give(OwnerInput::Batch {
        id: BatchId(1),
        operations,
        is_awaited: true,
    });
    for _ in 0..2 {
        asked = bench.answered(&asked);
        assert!(
            matches!(asked.as_slice(), [OwnerEffect::Put(..)]),
            "{asked:?}"
        );
    }
    assert_eq!(
        bench.answered(&asked),
        [OwnerEffect::Acknowledge(BatchId(1))]
    );
    assert_eq!(bench.log.head(), Position(4));
}

#[test]
fn batch_without_waiter_is_written_with_the_next_or_after_delay() {
    let mut bench = OwnerHarness::new();
    for id in 1..=5 {
        bench.give(OwnerInput::Synced(BatchId(id)));
    }
    assert_eq!(bench.batch_for(1, false), []);
    let asked = bench.batch(2);
    let both = [1, 2].map(|id| OwnerEffect::Acknowledge(BatchId(id)));
    assert_eq!(bench.answered(&asked), both);
    assert_eq!(bench.log.head(), Position(2), "in one record");

    assert_eq!(bench.batch_for(3, false), []);
    bench.now_ms += UNAWAITED_MS - 1;
    assert_eq!(bench.give(OwnerInput::Tick), []);
    assert_eq!(
        bench.batch_for(4, false),
        [],
        "it does not wait for longer by another one"
    );
    let before_ms = bench.now_ms;
    let asked = bench.tick();
    assert_eq!(bench.now_ms, before_ms + 1);
    let both = [3, 4].map(|id| OwnerEffect::Acknowledge(BatchId(id)));
    assert_eq!(bench.answered(&asked), both);

    // The release waits for this batch.
    assert_eq!(bench.batch_for(5, false), []);
    let asked = bench.give(OwnerInput::Release { to: None });
    let next = bench.answered(&asked);
    assert!(
        matches!(
            next[..],
            [OwnerEffect::Acknowledge(BatchId(5)), OwnerEffect::Put(..)]
        ),
        "{next:?}"
    );
}

#[test]
fn release_is_written_after_all_waiting_batches() {
    let mut bench = OwnerHarness::new();
    bench.give(OwnerInput::Synced(BatchId(1)));
    let asked = bench.batch(1);
    let to = Some(NodeId::new("b").unwrap());
    bench.give(OwnerInput::Release { to: to.clone() });
    assert!(!bench.owner.has_room());
    let next = bench.answered(&asked);
    let [
        OwnerEffect::Acknowledge(BatchId(1)),
        last @ OwnerEffect::Put(..),
    ] = next.as_slice()
    else {
        panic!("{next:?}");
    };
    let position = Position(3);
    let done = bench.answered(std::slice::from_ref(last));
    assert_eq!(
        done,
        [OwnerEffect::Fence(OwnershipLoss::Released { position })]
    );
    assert_eq!(bench.owner.chain().owner().unwrap().released, Some(to));
}
