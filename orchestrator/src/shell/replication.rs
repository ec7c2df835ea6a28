//! Replicated workspaces (`REP-1`): the daemon's part.
//!
//! `goondan_replication` makes the decisions; [`machine`] is the thread that runs it. [`link`] is
//! the process that connects to the log's server; [`files`] is the thread that changes the files of
//! workspaces that another node may own, and [`snapshots`] has the threads that copy them.
//!
//! ```text
//!  store, loading ──▶ ReplicatedDisk ──▶ machine ──▶ link ──▶ goondan-replica ──▶ PostgreSQL
//!                                         │   ▲
//!                                         ▼   │
//!                                        files ──▶ disk, workspaces to run
//! ```
//!
//! Without `replication` in `config.json` none of these exists.

use std::io;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use goondan_durable::disk::{Disk, EntryKind, RealDisk};
use goondan_protocol::version::Version;
use goondan_replicated_disk::{ConfirmPoint, OpLog};
use goondan_replication::names::{Incarnation, NodeId};
use goondan_replication::node::ReplicationNode;
use goondan_replication::wire::Welcome;
use goondan_store::root::{Layout, ReplicationConfig};
use tokio::sync::{mpsc as async_mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::event::ShellEvent;
use super::launcher::Launcher;
use super::logs::LogHub;
use super::programs::{self, ProgramMissing};
use super::workspace_load::Projects;
use files::FilesThread;
use handle::Replication;
use link::LogClientLauncher;
use machine::ReplicationMachine;
use messages::Message;

mod files;
pub(super) mod handle;
mod import;
mod link;
mod machine;
pub(super) mod messages;
mod snapshots;
mod verification;

/// The program that speaks to the log's server.
const REPLICA: &str = "goondan-replica";

/// Reason why replication cannot start.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReplicationFault {
    /// The name of the node is not valid.
    #[error("`replication.node` in `{}` is not a valid node name: {why}", config.display())]
    Node { config: PathBuf, why: String },
    /// The program is not installed.
    #[error(transparent)]
    Program(#[from] ProgramMissing),
}

/// Replication, before it is started.
pub(super) struct PreparedReplication {
    welcome: Welcome,
    program: PathBuf,
    snapshot_after_records: Option<NonZeroU64>,
    incoming: Receiver<Message>,
}

impl PreparedReplication {
    pub(super) fn node(&self) -> String {
        self.welcome.node.as_str().to_owned()
    }
}

pub(super) struct Surroundings {
    /// The disk itself, for files that this node does not own.
    pub(super) disk: Arc<dyn Disk>,
    pub(super) projects: Projects,
    pub(super) launcher: Arc<Launcher>,
    pub(super) hub: Arc<LogHub>,
    pub(super) events: async_mpsc::Sender<ShellEvent>,
    pub(super) ending: CancellationToken,
}

/// Reads the settings, and creates the handle.
///
/// # Errors
///
/// [`ReplicationFault`] if the node's name is invalid, or the program is not installed.
pub(super) fn prepare(
    config: &ReplicationConfig,
    layout: &Layout,
) -> Result<(Replication, PreparedReplication), ReplicationFault> {
    let program = programs::find_program(REPLICA)?;
    let node = node_name(config.node.as_deref());
    let node = node.map_err(|why| ReplicationFault::Node {
        config: layout.config_file(),
        why,
    })?;
    let (machine, incoming) = channel();
    let outlet = machine.clone();
    // Sending fails only when the daemon ends; `OpLog::end` then ends the waits.
    let outlet = move |handed| drop(outlet.send(Message::HandedOver(handed)));
    let recording = OpLog::new(layout.workspaces(), Box::new(outlet));
    let handle = Replication {
        recording: Arc::new(recording),
        machine,
        pid: Arc::default(),
        unacknowledged: Arc::default(),
        leaving: Arc::default(),
    };
    let prepared = PreparedReplication {
        welcome: Welcome {
            version: Version::current(),
            server: config.postgres.clone(),
            node,
        },
        program,
        snapshot_after_records: config.snapshot_after_records,
        incoming,
    };
    Ok((handle, prepared))
}

/// Starts replication: threads that end on request, and a task, which ends by the token. The
/// returned receiver yields a reason if the daemon must exit.
///
/// # Errors
///
/// The operating system's error if a thread cannot be created.
pub(super) fn start(
    handle: &Replication,
    prepared: PreparedReplication,
    with: Surroundings,
    tasks: &mut JoinSet<()>,
) -> io::Result<oneshot::Receiver<String>> {
    let (deposed, why) = oneshot::channel();
    let link = LogClientLauncher {
        launcher: with.launcher,
        program: prepared.program,
        welcome: prepared.welcome.clone(),
        hub: with.hub,
        pid: handle.pid.clone(),
        machine: handle.machine.clone(),
        layout: with.projects.layout.clone(),
    };
    tasks.spawn(link.run(with.ending));
    // The second half of a version 7 UUID is random.
    let (_, chance) = Uuid::now_v7().as_u64_pair();
    let life = Incarnation(chance);
    let files = FilesThread::start(
        prepared.welcome.node.clone(),
        (
            with.disk.clone(),
            handle.disk(with.disk, ConfirmPoint::AtConfirm),
        ),
        handle.recording.clone(),
        with.projects,
        with.events,
        handle.machine.clone(),
    )?;
    let mut node = ReplicationNode::new(prepared.welcome.node, life, 0);
    if let Some(records) = prepared.snapshot_after_records {
        node = node.with_snapshots_after(records.get());
    }
    let machine = ReplicationMachine::new(node, files, handle, deposed);
    machine.start(prepared.incoming)?;
    Ok(why)
}

/// True if this node has followed the log of any workspace.
///
/// # Errors
///
/// The operating system's error if that is unknown.
pub(super) fn has_notes(layout: &Layout) -> io::Result<bool> {
    let dir = layout.replication();
    if RealDisk.stat(&dir)?.is_none() {
        return Ok(false);
    }
    let entries = RealDisk.list(&dir)?;
    Ok(entries.iter().any(|entry| entry.kind == EntryKind::File))
}

/// Name of the node: the configured one, or the machine's.
fn node_name(given: Option<&str>) -> Result<NodeId, String> {
    if let Some(given) = given {
        return NodeId::new(given).map_err(|error| error.to_string());
    }
    let host = nix::unistd::gethostname().map_err(|error| error.to_string())?;
    let host = host.to_string_lossy().to_lowercase();
    NodeId::new(&host).map_err(|error| {
        format!("{error}; the default is the machine's name; set `replication.node`")
    })
}
