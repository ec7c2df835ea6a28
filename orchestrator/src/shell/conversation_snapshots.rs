//! The thread for joint checkpoints of conversations: creates, lists and restores them one at a
//! time, because each can take long with many files (`CKPT-6`).
//!
//! It handles the files of a conversation's directory. Only the store writes `messages/` and
//! `extensions/`: a checkpoint reads them while no turn is open, and a rewind unpacks copies that
//! the store moves into place.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use goondan_checkpoints::{
    AgentState, CHECKPOINTS, CheckpointEntry, CheckpointError, CheckpointId, CheckpointSelector,
    Consistency, MakeCheckpoint, Retention, RewindPlan, Store,
};
use goondan_core::{CoreInput, FreezeId, JointMetadata, JointResult, JointWork, RollbackFailure};
use goondan_durable::disk::{Disk, Folder};
use goondan_durable::register::Register;
use goondan_protocol::control::{
    ControlError, ErrorCode, InstanceCheckpoint, InstanceCheckpointsPage, InstanceRewound,
    ListInstanceCheckpoints, OtherConfiguration, RewoundMessage,
};
use goondan_protocol::ids::InstanceRef;
use goondan_protocol::message::Message;
use goondan_protocol::observe::detail_of;
use goondan_protocol::time::Timestamp;
use goondan_protocol::usage::{Charge, MicroUsd};
use goondan_store::file_names::instance_dir_name;
use goondan_store::root::Layout;
use goondan_trees::{Digest, RealFolder, TreeError};
use tokio::sync::mpsc;

use super::event::ShellEvent;
use super::tasks::boot;
use crate::limits::{JOINT_CHECKPOINT_BYTES_KEPT, REWIND_MESSAGES_TOLD};

const LIST_HINT: &str = "list checkpoints: `gdn conversation checkpoints`";

/// Retention of a conversation's joint checkpoints.
const KEPT: Retention = Retention {
    count: goondan_checkpoints::limits::CHECKPOINTS_KEPT,
    bytes: Some(JOINT_CHECKPOINT_BYTES_KEPT),
};

/// Sender of the thread's work queue.
#[derive(Debug)]
pub(super) struct JointThread(Sender<JointWork>);

impl JointThread {
    /// Starts the thread. The daemon does not wait for it when it ends: an unfinished checkpoint
    /// does not count, and the next daemon finishes a rewind that has begun.
    ///
    /// # Errors
    ///
    /// The operating system's error if no thread can be started.
    pub(super) fn start(
        disk: Arc<dyn Disk>,
        layout: Layout,
        events: mpsc::Sender<ShellEvent>,
    ) -> io::Result<Self> {
        let (works, waiting) = channel();
        std::thread::Builder::new()
            .name("joint".to_owned())
            .spawn(move || {
                let boot = boot();
                while let Ok(work) = waiting.recv() {
                    if let Some(event) = carry_out(disk.as_ref(), &layout, &boot, work) {
                        // The receiver is closed only while the daemon is ending.
                        drop(events.blocking_send(event));
                    }
                }
            })?;
        Ok(Self(works))
    }

    /// Submits work; false if the thread is gone.
    pub(super) fn submit(&self, work: JointWork) -> bool {
        self.0.send(work).is_ok()
    }
}

fn carry_out(disk: &dyn Disk, layout: &Layout, boot: &str, work: JointWork) -> Option<ShellEvent> {
    let open = |at: &InstanceRef| open(layout, boot, at);
    let register = |at: &InstanceRef| Register::of(disk, &directory(layout, at)).here();
    let done = match work {
        JointWork::Make { at, hold, about } => {
            let result = open(&at).and_then(|mut store| make(&mut store, &register(&at), &about));
            JointResult::Made { at, hold, result }
        }
        JointWork::List { at, token, list } => {
            let kept = directory(layout, &at);
            // A list changes nothing, and opening would create the folder.
            let listed = if kept.is_dir() && !kept.join(CHECKPOINTS).exists() {
                Ok(InstanceCheckpointsPage::default())
            } else {
                open(&at).and_then(|store| page_of(&store, &list))
            };
            let result = listed.and_then(|listed| {
                serde_json::to_value(listed)
                    .map_err(|error| ControlError::new(ErrorCode::Internal, error.to_string()))
            });
            return Some(ShellEvent::Answer { token, result });
        }
        JointWork::Plan {
            at,
            hold,
            checkpoint_id,
            about,
            sandbox,
            is_rehearsal,
        } => {
            let ask = RewindParams {
                checkpoint_id: checkpoint_id.as_deref(),
                sandbox: sandbox.as_deref(),
                is_rehearsal,
            };
            let planned = open(&at).and_then(|mut store| {
                let planned = plan(&mut store, &ask, &about);
                note(&store, &register(&at));
                planned
            });
            let result = planned.map(Box::new);
            JointResult::Planned { at, hold, result }
        }
        JointWork::TakeBack {
            at,
            hold,
            checkpoint_id,
            pre_rewind,
            now,
        } => {
            let untouched = |error| RollbackFailure {
                error,
                is_untouched: false,
            };
            let result = open(&at)
                .map_err(untouched)
                .and_then(|mut store| take_back(&mut store, &checkpoint_id, &pre_rewind, now));
            return Some(taken_back(at, hold, result));
        }
        JointWork::TidyUp { at } => {
            // Remaining files are removed by the next cleanup.
            if let Ok(mut store) = open(&at) {
                drop(store.forget_unpacked());
                drop(store.prune_known(KEPT, &register(&at)));
            }
            return None;
        }
    };
    Some(ShellEvent::Input(CoreInput::Joint(Box::new(done))))
}

fn taken_back(
    at: InstanceRef,
    hold: FreezeId,
    result: Result<PathBuf, RollbackFailure>,
) -> ShellEvent {
    let done = JointResult::TakenBack { at, hold, result };
    ShellEvent::Input(CoreInput::Joint(Box::new(done)))
}

fn control_error(error: &CheckpointError) -> ControlError {
    let text = goondan_log::error_chain(error);
    let code = match error {
        CheckpointError::None
        | CheckpointError::Unknown { .. }
        | CheckpointError::UnknownName { .. } => ErrorCode::CheckpointNotFound,
        CheckpointError::Damaged { .. } | CheckpointError::AllDamaged { .. } => ErrorCode::Damaged,
        CheckpointError::Invalid { .. } | CheckpointError::Blocked(_) => ErrorCode::InvalidRequest,
        CheckpointError::TooMany { .. }
        | CheckpointError::Busy(_)
        | CheckpointError::Tree(TreeError::Changing { .. }) => ErrorCode::InstanceBusy,
        _ => ErrorCode::Storage,
    };
    let hint = match error {
        CheckpointError::None => "create one: `gdn conversation checkpoint`",
        CheckpointError::Unknown { .. } | CheckpointError::UnknownName { .. } => LIST_HINT,
        _ => return ControlError::new(code, text),
    };
    ControlError::new(code, text).suggest(hint)
}

fn directory(layout: &Layout, at: &InstanceRef) -> PathBuf {
    let instances = layout.instances(&at.workspace_id);
    instances.join(instance_dir_name(&at.instance_key))
}

/// Records a conversation's checkpoints outside its directory. A failure does not make the
/// checkpoint fail.
fn note(store: &Store, register: &Register<'_>) {
    if let Err(error) = store.note(register) {
        let error = &error as &dyn std::error::Error;
        tracing::warn!(
            error,
            "failed to record joint checkpoints of a conversation; later losses may go unnoticed"
        );
    }
}

fn open(layout: &Layout, boot: &str, at: &InstanceRef) -> Result<Store, ControlError> {
    let path = directory(layout, at);
    if !path.is_dir() {
        let text = format!("conversation `{}` does not exist", at.instance_key);
        return Err(ControlError::new(ErrorCode::InstanceNotFound, text));
    }
    let folder = RealFolder::open(&path).map_err(|error| {
        let text = format!("failed to open `{}`: {error}", path.display());
        ControlError::new(ErrorCode::Storage, text)
    })?;
    open_in(Box::new(folder), boot).map_err(|error| control_error(&error))
}

fn open_in(folder: Box<dyn Folder>, boot: &str) -> Result<Store, CheckpointError> {
    let (store, findings) = Store::open_conversation(folder, boot)?;
    for finding in findings {
        tracing::warn!(
            path = %finding.path.display(),
            problem = finding.problem,
            "joint checkpoints of a conversation were damaged"
        );
    }
    Ok(store)
}

fn request<'a>(kind: &'a str, about: &JointMetadata) -> MakeCheckpoint<'a> {
    MakeCheckpoint {
        kind,
        phase: 0,
        progress: 0,
        agent_state: AgentState {
            status: "idle".to_owned(),
            current_step: None,
        },
        tokens_used: about.pinned.spent.tokens,
        consistency: Consistency::Stopped,
        name: about.name.clone(),
        pinned: Some(about.pinned.clone()),
    }
}

fn make(
    store: &mut Store,
    register: &Register<'_>,
    about: &JointMetadata,
) -> Result<InstanceCheckpoint, ControlError> {
    let request = request("manual", about);
    let made = store
        .make(&request, about.now)
        .map_err(|error| control_error(&error))?;
    note(store, register);
    // The new checkpoint counts even if old ones cannot be removed.
    if let Err(error) = store.prune_known(KEPT, register) {
        let error = &error as &dyn std::error::Error;
        tracing::warn!(
            error,
            "failed to remove old joint checkpoints of a conversation"
        );
    }
    let id = made.checkpoint_id.to_string();
    let mut all = list(store)?.into_iter();
    let found = all.find(|one| one.checkpoint_id == id);
    found.ok_or_else(|| {
        let text = format!("`{id}` was created but no longer exists");
        ControlError::new(ErrorCode::Storage, text)
    })
}

fn list(store: &Store) -> Result<Vec<InstanceCheckpoint>, ControlError> {
    let listed = store.list().map_err(|error| control_error(&error))?;
    Ok(listed.into_iter().map(info).collect())
}

fn page_of(
    store: &Store,
    list: &ListInstanceCheckpoints,
) -> Result<InstanceCheckpointsPage, ControlError> {
    let after = list.after.as_deref().map(id_of).transpose()?;
    let listed = store.list_behind(after);
    let page = listed.and_then(|listed| list.page_of(listed.map(|one| one.map(info))));
    page.map_err(|error| control_error(&error))
}

fn info(listed: CheckpointEntry) -> InstanceCheckpoint {
    InstanceCheckpoint {
        checkpoint_id: listed.id.to_string(),
        kind: listed.kind().to_owned(),
        name: listed.name().map(ToOwned::to_owned),
        created_at: listed.created_at(),
        snapshot_size: listed.snapshot_bytes(),
        pinned: listed.about.and_then(|about| about.pinned),
        damaged: listed.damaged,
    }
}

struct RewindParams<'a> {
    checkpoint_id: Option<&'a str>,
    sandbox: Option<&'a Path>,
    is_rehearsal: bool,
}

fn plan(
    store: &mut Store,
    ask: &RewindParams<'_>,
    about: &JointMetadata,
) -> Result<InstanceRewound, ControlError> {
    let which = match ask.checkpoint_id {
        Some(id) => CheckpointSelector::Id(store.find(id).map_err(|error| control_error(&error))?),
        None => CheckpointSelector::Latest,
    };
    let plan = store
        .plan_rewind(which)
        .map_err(|error| control_error(&error))?;
    let mut rewound = described(store, &plan, ask, about).map_err(|error| control_error(&error))?;
    if !ask.is_rehearsal && rewound.is_changed {
        let request = request(goondan_checkpoints::PRE_RESTORE, about);
        let made = store.make_before_rewind(&request, about.now);
        let made = made.map_err(|error| control_error(&error))?;
        rewound.pre_rewind = Some(made.checkpoint_id.to_string());
    }
    let all = list(store)?;
    let passed = plan.files.fell_back_from.iter();
    rewound.skipped = passed
        .filter_map(|(id, why)| {
            let id = id.to_string();
            let found = all.iter().find(|one| one.checkpoint_id == id)?;
            let damaged = Some(why.clone());
            Some(InstanceCheckpoint {
                damaged,
                ..found.clone()
            })
        })
        .collect();
    store
        .forget_unpacked()
        .map_err(|error| control_error(&error))?;
    Ok(rewound)
}

fn id_of(text: &str) -> Result<CheckpointId, ControlError> {
    text.parse().map_err(|error: goondan_checkpoints::IdError| {
        ControlError::new(ErrorCode::InvalidRequest, error.to_string()).suggest(LIST_HINT)
    })
}

/// The changes of a rewind, with descriptions and counts.
fn described(
    store: &Store,
    plan: &RewindPlan,
    ask: &RewindParams<'_>,
    about: &JointMetadata,
) -> Result<InstanceRewound, CheckpointError> {
    let texts = |paths: &[goondan_trees::RelativePath]| -> Vec<String> {
        paths.iter().map(ToString::to_string).collect()
    };
    let now = &about.pinned;
    let pinned = plan.pinned().unwrap_or(now).clone();
    let messages = Messages::compare(store, plan)?;
    let configuration = (pinned.config_digest != now.config_digest).then(|| OtherConfiguration {
        pinned: pinned.config_digest.clone(),
        running: now.config_digest.clone(),
    });
    let spent = |now: u64, then: u64| now.saturating_sub(then);
    let spent_since = Charge {
        tokens: spent(now.spent.tokens, pinned.spent.tokens),
        micro_usd: MicroUsd(spent(now.spent.micro_usd.0, pinned.spent.micro_usd.0)),
    };
    Ok(InstanceRewound {
        checkpoint_id: plan.files.used.to_string(),
        skipped: Vec::new(),
        is_changed: plan.changes_anything(),
        messages_removed: messages.removed,
        removed_messages: messages.told,
        messages_restored: messages.restored,
        added: texts(&plan.files.added),
        changed: texts(&plan.files.changed),
        removed: texts(&plan.files.removed),
        extensions: plan.extensions().filter_map(extension_of).collect(),
        pre_rewind: None,
        configuration,
        spent_since,
        not_rewound: not_rewound(now.inbox_seq.saturating_sub(pinned.inbox_seq), ask.sandbox),
        pinned,
    })
}

/// The name of the extension whose state is in this file.
fn extension_of(path: &goondan_trees::RelativePath) -> Option<String> {
    let name = path.as_path().file_stem()?;
    Some(name.to_string_lossy().into_owned())
}

/// Descriptions of the state that a rewind keeps.
fn not_rewound(events: u64, sandbox: Option<&Path>) -> Vec<String> {
    let mut told = Vec::new();
    if events > 0 {
        let what = if events == 1 { "event" } else { "events" };
        told.push(format!(
            "{events} {what} accepted since: answered events are not answered again, waiting events run"
        ));
    }
    if let Some(sandbox) = sandbox.filter(|sandbox| sandbox.is_dir()) {
        told.push(format!(
            "the sandbox `{}` and its proposal: see `gdn proposal sandbox list` and `gdn proposal list`",
            sandbox.display()
        ));
    }
    told
}

/// Messages removed and restored by a rewind.
#[derive(Default)]
struct Messages {
    removed: u64,
    restored: u64,
    told: Vec<RewoundMessage>,
}

impl Messages {
    /// Compares the current conversation with the checkpoint line by line. Common lines stay.
    fn compare(store: &Store, plan: &RewindPlan) -> Result<Self, CheckpointError> {
        let mut before = HashSet::new();
        store.each_message(Some(plan), |line| {
            before.insert(Digest::of(line));
        })?;
        let mut found = Self::default();
        store.each_message(None, |line| {
            if before.remove(&Digest::of(line)) {
                return;
            }
            found.removed += 1;
            if found.told.len() < REWIND_MESSAGES_TOLD {
                found.told.extend(head_of(line));
            }
        })?;
        found.restored = before.len() as u64;
        Ok(found)
    }
}

fn head_of(line: &[u8]) -> Option<RewoundMessage> {
    let message: Message = serde_json::from_slice(line).ok()?;
    let role = serde_json::to_value(message.data.role).ok()?;
    Some(RewoundMessage {
        role: role.as_str().unwrap_or_default().to_owned(),
        head: detail_of(&message.data.content.to_text()),
        id: message.id,
    })
}

/// Restores the files and unpacks the conversation; returns its path.
fn take_back(
    store: &mut Store,
    checkpoint_id: &str,
    pre_rewind: &str,
    now: Timestamp,
) -> Result<PathBuf, RollbackFailure> {
    let failed = |error, is_untouched| RollbackFailure {
        error,
        is_untouched,
    };
    let ids = id_of(checkpoint_id).and_then(|to| Ok((to, id_of(pre_rewind)?)));
    let (to, held_in) = ids.map_err(|error| failed(error, false))?;
    let taken = store
        .plan_rewind(CheckpointSelector::Id(to))
        .and_then(|plan| {
            store.rewind_files(&plan, held_in, now)?;
            Ok(plan.unpacked)
        });
    taken.map_err(|error| failed(control_error(&error), store.is_as_held(held_in)))
}

#[cfg(test)]
mod tests;
