//! Records for puts.

use goondan_protocol::ids::WorkspaceId;
use goondan_replication::chain::Chain;
use goondan_replication::log::PutRequest;
use goondan_replication::names::{Incarnation, NodeId};
use goondan_replication::operation::{FileOperation, RelativePath};
use goondan_replication::record::Body;

pub(crate) fn workspace(name: &str) -> WorkspaceId {
    WorkspaceId::new(name).unwrap()
}

/// The chain before a workspace's first record.
pub(crate) fn chain(name: &str) -> Chain {
    Chain::new(workspace(name))
}

/// The next record of a chain: a seal, which is always allowed.
pub(crate) fn seal(chain: &Chain, life: u64) -> PutRequest {
    let node = NodeId::new("a").unwrap();
    let life = Incarnation(life);
    offered(chain, Body::Seal { node, life })
}

/// The next record of a chain, with this number of bytes.
pub(crate) fn bytes(chain: &Chain, count: usize) -> PutRequest {
    let path = RelativePath::new("f").unwrap();
    let piece = 1024 * 1024;
    let appends = (0..count).step_by(piece).map(|at| FileOperation::Append {
        path: path.clone(),
        offset: at as u64,
        bytes: vec![b'x'; piece.min(count - at)],
    });
    offered(chain, Body::Operations(appends.collect()))
}

/// The chain after a record.
pub(crate) fn behind(chain: &Chain, put: &PutRequest) -> Chain {
    let mut chain = chain.clone();
    chain.follow_bytes(put.record.bytes().to_vec()).unwrap();
    chain
}

fn offered(chain: &Chain, body: Body) -> PutRequest {
    PutRequest {
        record: chain.next(body).unwrap(),
        after: chain.last(),
    }
}
