//! Tests of the writer threads over the real file system.

use goondan_protocol::JsonObject;
use goondan_protocol::event::EventSource;
use goondan_protocol::ids::{TurnId, WorkspaceId};

use super::*;
use crate::disk::RealDisk;
use crate::instance::{EventState, Metadata};

struct Rig {
    _temp: tempfile::TempDir,
    layout: Layout,
    writers: Writers,
    completed: mpsc::UnboundedReceiver<Completion>,
    workspace_id: WorkspaceId,
    index: InstanceIndex,
}

fn rig() -> Rig {
    let temp = tempfile::tempdir().unwrap();
    let layout = Layout::new(temp.path());
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    disk.create_dir(&layout.workspaces()).unwrap();
    let project = std::path::Path::new("/p");
    let record = workspace::open(disk.as_ref(), &layout, project, None).unwrap();
    let index = InstanceIndex::default();
    let (writers, completed) = Writers::start(&disk, &layout, &index, 2).unwrap();
    Rig {
        _temp: temp,
        layout,
        writers,
        completed,
        workspace_id: record.workspace_id,
        index,
    }
}

impl Rig {
    fn instance(&self, key: &str) -> InstanceRef {
        let workspace_id = self.workspace_id.clone();
        InstanceRef {
            workspace_id,
            instance_key: key.parse().unwrap(),
        }
    }

    async fn submit(&self, token: u64, op: Op) {
        assert!(self.writers.submit(Job { token, op }).await.is_ok());
    }

    async fn run(&mut self, op: Op) -> Result<Report, StoreError> {
        self.submit(0, op).await;
        self.completed.recv().await.unwrap().result
    }
}

fn event(id: &str) -> Box<AgentEvent> {
    Box::new(AgentEvent {
        id: id.parse().unwrap(),
        kind: "message".into(),
        created_at: Timestamp::from_unix_millis(0),
        trace_id: None,
        parent_span_id: None,
        input: Some("x".into()),
        instance_key: None,
        source: EventSource::Connector {
            name: "cli".parse().unwrap(),
        },
        auth: None,
        reply_to: None,
        chain: None,
        metadata: JsonObject::new(),
    })
}

fn accept(instance: InstanceRef, agent: &str, id: &str) -> Op {
    Op::Accept {
        instance,
        agent: agent.parse().unwrap(),
        event: event(id),
    }
}

#[tokio::test]
async fn every_job_is_reported_once_and_in_order_within_its_instance() {
    let mut rig = rig();
    let keys = ["a", "b", "c"];
    for n in 0..300_u64 {
        let key = keys[usize::try_from(n).unwrap() % keys.len()];
        let op = accept(rig.instance(key), "agent", &format!("e{n}"));
        rig.submit(n, op).await;
    }
    let mut seen: Vec<u64> = Vec::new();
    while seen.len() < 300 {
        let completion = rig.completed.recv().await.unwrap();
        assert!(matches!(
            completion.result,
            Ok(Report::Accepted {
                before: EventState::Unknown,
                ..
            })
        ));
        seen.push(completion.token);
    }
    for remainder in 0..3 {
        let of_key: Vec<u64> = seen
            .iter()
            .copied()
            .filter(|n| n % 3 == remainder)
            .collect();
        assert!(of_key.is_sorted(), "order within an instance was lost");
    }
    let opened = rig.run(Op::Open(rig.instance("a"))).await.unwrap();
    let Report::Opened(state) = opened else {
        panic!("{opened:?}")
    };
    assert_eq!(state.waiting.len(), 100);
}

#[tokio::test]
async fn inst_3_a_key_of_another_agent_is_refused() {
    let mut rig = rig();
    rig.run(accept(rig.instance("k"), "first", "e1"))
        .await
        .unwrap();
    let error = rig
        .run(accept(rig.instance("k"), "second", "e2"))
        .await
        .unwrap_err();
    assert!(matches!(error, StoreError::KeyTaken { owner, .. } if owner.as_str() == "first"));
}

#[tokio::test]
async fn inst_5_delete_never_leaves_the_instance_through_a_link() {
    let mut rig = rig();
    let outside = tempfile::tempdir().unwrap();
    let precious = outside.path().join("precious");
    crate::durable::replace(&RealDisk, &precious, b"x").unwrap();
    rig.run(accept(rig.instance("k"), "agent", "e1"))
        .await
        .unwrap();
    let dir = rig.layout.instances(&rig.workspace_id).join("k");
    std::os::unix::fs::symlink(outside.path(), dir.join("work").join("link")).unwrap();
    std::os::unix::fs::symlink(outside.path(), dir.with_file_name("linked")).unwrap();
    let gone = rig.run(Op::Delete(rig.instance("k"))).await.unwrap();
    assert!(matches!(gone, Report::Deleted { existed: true }));
    let gone = rig.run(Op::Delete(rig.instance("linked"))).await.unwrap();
    assert!(matches!(gone, Report::Deleted { existed: true }));
    let gone = rig.run(Op::Delete(rig.instance("k"))).await.unwrap();
    assert!(matches!(gone, Report::Deleted { existed: false }));
    assert!(precious.is_file());
    let left = RealDisk
        .list(&rig.layout.instances(&rig.workspace_id))
        .unwrap();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn inst_2_metadata_is_written_when_the_instance_is_closed() {
    let mut rig = rig();
    let instance = rig.instance("k");
    rig.run(accept(instance.clone(), "agent", "e1"))
        .await
        .unwrap();
    let turn_id: TurnId = "t1".parse().unwrap();
    let begin = Op::BeginTurn {
        config_digest: None,
        instance: instance.clone(),
        turn_id: turn_id.clone(),
        event_id: "e1".parse().unwrap(),
        at: Timestamp::from_unix_millis(5),
    };
    rig.run(begin).await.unwrap();
    rig.run(Op::Close(instance)).await.unwrap();
    let dir = rig.layout.instances(&rig.workspace_id).join("k");
    let metadata = Metadata::read(&RealDisk, &dir).unwrap();
    assert_eq!(metadata.status, instance::InstanceStatus::Processing);
    assert_eq!(metadata.updated_at, Timestamp::from_unix_millis(5));
    let (with_work, _) = workspace::instances_with_work(&RealDisk, dir.parent().unwrap()).unwrap();
    assert_eq!(with_work.len(), 1);
}

#[tokio::test]
async fn what_is_not_there_is_said_and_nothing_is_made() {
    let mut rig = rig();
    let error = rig.run(Op::Open(rig.instance("nobody"))).await.unwrap_err();
    assert!(matches!(error, StoreError::NoInstance { .. }));
    let left = RealDisk
        .list(&rig.layout.instances(&rig.workspace_id))
        .unwrap();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn the_index_is_what_a_new_look_at_the_disk_would_find() {
    let mut rig = rig();
    let instances = rig.layout.instances(&rig.workspace_id);
    let on_disk = || workspace::list_instances(&RealDisk, &instances).unwrap().0;
    rig.index.take_up(&rig.workspace_id, &[]);
    for (key, id) in [("a", "e1"), ("b", "e2"), ("a", "e3")] {
        rig.run(accept(rig.instance(key), "agent", id))
            .await
            .unwrap();
    }
    let begin = Op::BeginTurn {
        config_digest: None,
        instance: rig.instance("a"),
        turn_id: "t1".parse().unwrap(),
        event_id: "e1".parse().unwrap(),
        at: Timestamp::from_unix_millis(5),
    };
    rig.run(begin).await.unwrap();
    let listed = rig.index.list(&rig.workspace_id).unwrap();
    assert_eq!(listed[0].status, instance::InstanceStatus::Processing);
    for key in ["a", "b"] {
        rig.run(Op::Close(rig.instance(key))).await.unwrap();
    }
    assert_eq!(rig.index.list(&rig.workspace_id), Some(on_disk()));
    rig.run(Op::Delete(rig.instance("a"))).await.unwrap();
    let listed = rig.index.list(&rig.workspace_id).unwrap();
    assert_eq!(listed, on_disk());
    assert_eq!(listed.len(), 1);
    rig.index.forget(&rig.workspace_id);
    assert_eq!(rig.index.list(&rig.workspace_id), None);
}
