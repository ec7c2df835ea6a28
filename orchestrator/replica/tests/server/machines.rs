//! Owner and standby with the real program and a real server.

use std::collections::{BTreeSet, VecDeque};

use goondan_replication::chain::Chain;
use goondan_replication::log::PutRequest;
use goondan_replication::names::{Hash, Incarnation, NodeId};
use goondan_replication::operation::{FileOperation, RelativePath};
use goondan_replication::owner::{self, BatchId, OwnershipLoss, WorkspaceOwner};
use goondan_replication::standby::{self, FilesState, Standby};
use goondan_replication::tree::MemoryTree;

use crate::records::workspace;
use crate::replica::Replica;
use goondan_tests::postgres::PostgresServer;

/// A node with its files, and a clock that advances to the end of each wait.
struct TestNode {
    name: NodeId,
    replica: Replica,
    files: MemoryTree,
    now_ms: u64,
}

impl TestNode {
    fn new(name: &str, server: &PostgresServer) -> Self {
        Self {
            name: NodeId::new(name).unwrap(),
            replica: Replica::ready(&server.url()),
            files: MemoryTree::default(),
            now_ms: 0,
        }
    }

    fn standby(&self, life: u64, chain: Chain, files: FilesState) -> Standby {
        Standby::new(
            self.name.clone(),
            Incarnation(life),
            chain,
            files,
            self.now_ms,
        )
    }

    /// Follows the log until `is_enough`, or until this node owns the workspace.
    fn follow(
        &mut self,
        standby: &mut Standby,
        first: Option<standby::StandbyInput>,
        is_enough: impl Fn(&Standby) -> bool,
    ) -> Option<(Chain, PutRequest)> {
        let mut inputs = VecDeque::from_iter(first);
        while !is_enough(standby) || !inputs.is_empty() {
            let input = inputs.pop_front().unwrap_or_else(|| {
                self.now_ms = standby.due_ms().unwrap();
                standby::StandbyInput::Tick
            });
            for effect in standby.handle(self.now_ms, input) {
                match effect {
                    standby::StandbyEffect::Own { chain, seal } => return Some((*chain, seal)),
                    other => inputs.push_back(self.done(other)),
                }
            }
        }
        None
    }

    /// Executes an effect of the standby.
    fn done(&mut self, effect: standby::StandbyEffect) -> standby::StandbyInput {
        use standby::{StandbyEffect, StandbyInput};
        match effect {
            StandbyEffect::Read(attempt, from) => {
                StandbyInput::Read(attempt, self.replica.read(&workspace("w"), from))
            }
            StandbyEffect::Apply(changes) => {
                let mut each = changes.iter();
                StandbyInput::Applied(each.try_for_each(|record| record.make_in(&mut self.files)))
            }
            StandbyEffect::Digest => StandbyInput::Digested(self.files.digest()),
            StandbyEffect::Verify => StandbyInput::Verified(true),
            StandbyEffect::Seal(attempt, put) => {
                StandbyInput::Sealed(attempt, self.replica.put(&put))
            }
            StandbyEffect::Restore(None) => {
                self.files = MemoryTree::default();
                StandbyInput::Restored(true)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Makes the owner write batches until all are acknowledged, or it is deposed.
    fn write(
        &mut self,
        owner: &mut WorkspaceOwner,
        ids: std::ops::Range<u64>,
    ) -> Result<(), OwnershipLoss> {
        let mut waiting: BTreeSet<_> = ids.clone().map(BatchId).collect();
        let mut inputs = VecDeque::new();
        for id in ids {
            let operations = vec![append(id)];
            for operation in &operations {
                self.files.apply(operation).unwrap();
            }
            let id = BatchId(id);
            inputs.push_back(owner::OwnerInput::Batch {
                id,
                operations,
                is_awaited: true,
            });
            inputs.push_back(owner::OwnerInput::Synced(id));
        }
        while !waiting.is_empty() {
            let input = inputs.pop_front().unwrap_or_else(|| {
                self.now_ms = owner.due_ms().unwrap();
                owner::OwnerInput::Tick
            });
            for effect in owner.handle(self.now_ms, input) {
                match effect {
                    owner::OwnerEffect::Put(attempt, put) => {
                        inputs.push_back(owner::OwnerInput::Put(attempt, self.replica.put(&put)));
                    }
                    owner::OwnerEffect::Look(attempt, from) => {
                        let read = self.replica.read(&workspace("w"), from);
                        inputs.push_back(owner::OwnerInput::Looked(attempt, read));
                    }
                    owner::OwnerEffect::Acknowledge(id) => assert!(waiting.remove(&id)),
                    owner::OwnerEffect::SnapshotBegins(..)
                    | owner::OwnerEffect::SnapshotStands(_) => {}
                    owner::OwnerEffect::Fence(reason) => return Err(reason),
                }
            }
        }
        Ok(())
    }

    fn digest(&self) -> Hash {
        self.files.digest()
    }
}

/// A batch with a separate file.
fn append(id: u64) -> FileOperation {
    FileOperation::Append {
        path: RelativePath::new(&format!("f{id}")).unwrap(),
        offset: 0,
        bytes: format!("batch {id}").repeat(100).into_bytes(),
    }
}

#[test]
fn rep_1_a_second_node_takes_over_and_the_first_is_fenced() {
    let Some(server) = PostgresServer::running(&[]) else {
        return;
    };
    let (mut a, mut b) = (TestNode::new("a", &server), TestNode::new("b", &server));
    let take_over = || Some(standby::StandbyInput::TakeOver);

    let nothing_read = Chain::new(workspace("w"));
    let mut first = a.standby(1, nothing_read.clone(), FilesState::AsNoted);
    let (chain, seal) = a.follow(&mut first, take_over(), |_| false).unwrap();
    let mut owner = WorkspaceOwner::new(chain, seal, a.now_ms);
    // The files of a node are created by its records: the first append creates a file.
    a.write(&mut owner, 0..20).unwrap();

    let mut second = b.standby(2, nothing_read.clone(), FilesState::AsNoted);
    let until = owner.position();
    b.follow(&mut second, None, |it| it.chain().position() == until);
    assert_eq!(b.digest(), a.digest());
    let acknowledged = a.digest();

    let (chain, seal) = b.follow(&mut second, take_over(), |_| false).unwrap();
    let sealed_at = chain.position();
    let mut successor = WorkspaceOwner::new(chain, seal, b.now_ms);
    let deposed = a.write(&mut owner, 20..21).unwrap_err();
    match deposed {
        OwnershipLoss::Sealed { by, position, .. } => {
            assert_eq!((by, position), (b.name.clone(), sealed_at));
        }
        other => panic!("{other}"),
    }
    assert_eq!(b.digest(), acknowledged, "nothing more was acknowledged");

    b.write(&mut successor, 30..40).unwrap();
    // The last write of the first owner is only on its disk, so its files are rebuilt.
    assert_ne!(a.digest(), b.digest());
    let mut third = a.standby(3, owner.chain().clone(), FilesState::PerhapsAhead);
    let until = successor.position();
    a.follow(&mut third, None, |it| it.chain().position() == until);
    assert_eq!(a.digest(), b.digest());
}
