//! Implementation of each operation, without syncing its writes.

use std::collections::BTreeSet;

use goondan_durable::register::Register;
use goondan_durable::{IoContext as _, Severity, VerificationResult};
use goondan_protocol::control::{ExportPart, ImportResult, RewindRecord};
use goondan_protocol::event::AgentEvent;
use goondan_protocol::ids::{AgentName, ConnectionName, InstanceKey, InstanceRef};
use goondan_protocol::message::Message;
use goondan_protocol::time::Timestamp;

use super::Worker;
use super::operation::{
    AbandonRewind, Accept, AcceptResult, AppendEvent, AppendResult, ArrangeEvent, Audit,
    AwaitReply, BeginRewind, BeginTurn, CancelEvent, Close, CompleteTurn, Delete, DropEvent,
    Export, FinishRewind, ForgoReply, Import, Inspect, Inspection, JoinEvents, KeepSchedules,
    LatestPage, LogLlm, LookUpEvent, NoteApproval, NoteAttempt, Observe, Open, ParkEvent, Perform,
    PinConversation, ReadEvents, ReadMessage, ReadPage, ReadPageBefore, ReadParked, ReadSources,
    RecordUsage, RemoveResult, ReplyAwaited, RetryEvent, VerifyInstance, VerifyRootFiles,
    VerifyWorkspaceFiles,
};
use crate::error::StoreError;
use crate::instance::{
    self, CancelScope, CommitExtras, ConversationSlice, EventState, InstanceState, InstanceStore,
    Metadata, OpenTurn, ParkedEvent, Pins, QueueOrder,
};
use crate::own_files::{self, FolderManifest};
use crate::verify::{self, Group};

impl Perform<Accept> for Worker {
    fn perform(&mut self, accept: Accept) -> Result<AcceptResult, StoreError> {
        let (instance, agent) = (&accept.instance, &accept.agent);
        let created = self.create_if_missing(instance, agent, accept.event.created_at)?;
        let held = self.held(instance)?;
        held.is_kept = true;
        let former = accept.former_id.as_ref();
        let known = former.map(|id| held.store.event_state(id)).transpose()?;
        let before = match known {
            Some(known) if known != EventState::Unknown => known,
            Some(_) | None => held.store.accept(*accept.event)?,
        };
        Ok(AcceptResult { before, created })
    }
}

impl Worker {
    /// Makes sure that an instance exists and belongs to an agent. Returns true if it is new.
    fn create_if_missing(
        &mut self,
        instance: &InstanceRef,
        agent: &AgentName,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        let created = match self.held(instance) {
            Ok(_) => false,
            Err(StoreError::NoInstance { .. }) => {
                let store = self.create(instance, agent, at)?;
                self.hold(instance, store, false);
                true
            }
            Err(error) => return Err(error),
        };
        let owner = &self.held(instance)?.store.metadata().agent_name;
        if owner == agent {
            return Ok(created);
        }
        Err(StoreError::KeyTaken {
            key: instance.instance_key.clone(),
            owner: owner.clone(),
        })
    }

    fn create(
        &self,
        instance: &InstanceRef,
        agent: &AgentName,
        at: Timestamp,
    ) -> Result<InstanceStore, StoreError> {
        let instances = self.layout.instances(&instance.workspace_id);
        let staging = format!(".new-{}", uuid::Uuid::now_v7());
        let key: &InstanceKey = &instance.instance_key;
        let dir = self.dir_of(instance);
        let register = Register::of(self.disk.as_ref(), &dir);
        // Entries of a deleted folder with the same name do not apply to the new one.
        register.begin_again()?;
        register.clone().here().begin_again()?;
        let store = InstanceStore::create(self.disk.clone(), &instances, key, agent, at, &staging)?;
        register.note_new(&[]);
        Ok(store)
    }
}

impl Perform<ReadSources> for Worker {
    fn perform(&mut self, read: ReadSources) -> Result<BTreeSet<ConnectionName>, StoreError> {
        Ok(self.held(&read.instance)?.store.sources().clone())
    }
}

impl Perform<Open> for Worker {
    fn perform(&mut self, open: Open) -> Result<Box<InstanceState>, StoreError> {
        let held = self.held(&open.instance)?;
        held.is_kept = true;
        Ok(Box::new(held.store.state()))
    }
}

impl Perform<BeginTurn> for Worker {
    fn perform(&mut self, begin: BeginTurn) -> Result<OpenTurn, StoreError> {
        self.held(&begin.instance)?.begin(begin)
    }
}

impl Perform<AppendEvent> for Worker {
    fn perform(&mut self, append: AppendEvent) -> Result<AppendResult, StoreError> {
        let AppendEvent {
            instance,
            turn_id,
            seq,
            event,
        } = append;
        let store = &mut self.held(&instance)?.store;
        store.append_event(&turn_id, seq, &event)?;
        Ok(AppendResult { turn_id, seq })
    }
}

impl Perform<NoteApproval> for Worker {
    fn perform(&mut self, note: NoteApproval) -> Result<(), StoreError> {
        let store = &mut self.held(&note.instance)?.store;
        store.note_approval(&note.turn_id, note.mark)
    }
}

impl Perform<CompleteTurn> for Worker {
    fn perform(&mut self, complete: CompleteTurn) -> Result<(), StoreError> {
        let store = &mut self.held(&complete.instance)?.store;
        let brought = CommitExtras {
            also: complete.also,
            states: complete.states,
        };
        let (turn_id, last_seq) = (&complete.turn_id, complete.last_seq);
        store.complete_turn_with(turn_id, last_seq, brought, complete.outcome, complete.at)
    }
}

impl Perform<CancelEvent> for Worker {
    fn perform(&mut self, cancel: CancelEvent) -> Result<CancelScope, StoreError> {
        let store = &mut self.held(&cancel.instance)?.store;
        store.cancel(&cancel.event_id, cancel.outcome, &cancel.reason, cancel.at)
    }
}

impl Perform<AwaitReply> for Worker {
    fn perform(&mut self, wait: AwaitReply) -> Result<ReplyAwaited, StoreError> {
        let store = &mut self.held(&wait.instance)?.store;
        let is_open = store.await_reply(&wait.awaited, wait.at)?;
        Ok(ReplyAwaited { is_open })
    }
}

impl Perform<ForgoReply> for Worker {
    fn perform(&mut self, forgo: ForgoReply) -> Result<(), StoreError> {
        let store = &mut self.held(&forgo.instance)?.store;
        store.forgo(&forgo.question, forgo.at)
    }
}

impl Perform<Observe> for Worker {
    fn perform(&mut self, observe: Observe) -> Result<(), StoreError> {
        self.held(&observe.instance)?.store.observe(&observe.line)
    }
}

impl Perform<LogLlm> for Worker {
    fn perform(&mut self, log: LogLlm) -> Result<(), StoreError> {
        self.held(&log.instance)?.store.log_llm(&log.message)
    }
}

impl Perform<NoteAttempt> for Worker {
    fn perform(&mut self, note: NoteAttempt) -> Result<u32, StoreError> {
        let store = &mut self.held(&note.instance)?.store;
        store.note_attempts(&note.event_id, note.attempts, note.at)
    }
}

impl Perform<ParkEvent> for Worker {
    fn perform(&mut self, park: ParkEvent) -> Result<(), StoreError> {
        let store = &mut self.held(&park.instance)?.store;
        store.park(&park.event_id, &park.reason, park.at)
    }
}

impl Perform<RetryEvent> for Worker {
    fn perform(&mut self, retry: RetryEvent) -> Result<(), StoreError> {
        let store = &mut self.held(&retry.instance)?.store;
        store.retry(&retry.event_id, retry.at)
    }
}

impl Perform<DropEvent> for Worker {
    fn perform(&mut self, dropped: DropEvent) -> Result<(), StoreError> {
        let store = &mut self.held(&dropped.instance)?.store;
        store.drop_parked(&dropped.event_id, dropped.at)
    }
}

impl Perform<ArrangeEvent> for Worker {
    fn perform(&mut self, arrange: ArrangeEvent) -> Result<QueueOrder, StoreError> {
        let store = &mut self.held(&arrange.instance)?.store;
        store.arrange(&arrange.event_id, &arrange.arrangement, arrange.at)
    }
}

impl Perform<JoinEvents> for Worker {
    fn perform(&mut self, join: JoinEvents) -> Result<(), StoreError> {
        let held = self.held(&join.instance)?;
        held.is_kept = true;
        held.store.join_events(*join.event, join.at)
    }
}

impl Perform<KeepSchedules> for Worker {
    fn perform(&mut self, keep: KeepSchedules) -> Result<bool, StoreError> {
        let created = match &keep.created_for {
            Some((agent, at)) => self.create_if_missing(&keep.instance, agent, *at)?,
            None => false,
        };
        let store = &self.held(&keep.instance)?.store;
        store.set_schedules(&keep.schedules)?;
        Ok(created)
    }
}

impl Perform<ReadPage> for Worker {
    fn perform(&mut self, read: ReadPage) -> Result<Box<ConversationSlice>, StoreError> {
        let store = &mut self.held(&read.instance)?.store;
        let mut page = store.page(read.offset)?;
        let (states, damage) = store.restore_states(&read.states_of)?;
        page.states = states;
        page.damage.extend(damage);
        Ok(Box::new(page))
    }
}

impl Perform<ReadPageBefore> for Worker {
    fn perform(&mut self, read: ReadPageBefore) -> Result<LatestPage, StoreError> {
        let store = &mut self.held(&read.instance)?.store;
        Ok(LatestPage {
            page: Box::new(store.page_before(read.before, read.limit)?),
            total: store.count_messages(),
        })
    }
}

impl Perform<ReadMessage> for Worker {
    fn perform(&mut self, read: ReadMessage) -> Result<Box<Message>, StoreError> {
        let store = &mut self.held(&read.instance)?.store;
        Ok(Box::new(store.message(&read.message_id, read.offset)?))
    }
}

impl Perform<LookUpEvent> for Worker {
    fn perform(&mut self, look_up: LookUpEvent) -> Result<EventState, StoreError> {
        let store = &mut self.held(&look_up.instance)?.store;
        store.event_state(&look_up.event_id)
    }
}

impl Perform<ReadEvents> for Worker {
    fn perform(&mut self, read: ReadEvents) -> Result<Vec<AgentEvent>, StoreError> {
        let store = &mut self.held(&read.instance)?.store;
        store.events(read.event_id.as_ref())
    }
}

impl Perform<Inspect> for Worker {
    fn perform(&mut self, inspect: Inspect) -> Result<Box<Inspection>, StoreError> {
        let store = &mut self.held(&inspect.instance)?.store;
        Ok(Box::new(Inspection {
            metadata: store.metadata().clone(),
            dir: store.dir().to_owned(),
            messages: store.count_messages(),
            base_bytes: store.base_bytes(),
            waiting: store.waiting_count(),
            parked: store.parked(),
            extensions: store.extension_states()?,
        }))
    }
}

impl Perform<ReadParked> for Worker {
    fn perform(&mut self, read: ReadParked) -> Result<Vec<ParkedEvent>, StoreError> {
        let at = &read.instance;
        // To open many conversations for a list would take seconds, and close those in use.
        if !self.open.contains_key(at) {
            let dir = self.dir_of(at);
            if let Some(parked) = instance::peek_parked(self.disk.as_ref(), &dir)? {
                return Ok(parked);
            }
        }
        Ok(self.held(at)?.store.parked())
    }
}

impl Perform<VerifyInstance> for Worker {
    fn perform(&mut self, verify: VerifyInstance) -> Result<Box<VerificationResult>, StoreError> {
        let at = &verify.instance;
        let dir = self.dir_of(at);
        if self.disk.stat(&dir).during("inspect", &dir)?.is_none() {
            let key = at.instance_key.clone();
            return Err(StoreError::NoInstance { key });
        }
        if let Some(held) = self.open.get_mut(at) {
            held.store.sync()?;
            self.fold(at, InstanceStore::clear_journal);
        }
        let mut verified = verify::instance(self.disk.as_ref(), &dir)?;
        if verify.repair && verified.worst() > Some(Severity::Info) {
            let was_kept = self.open.remove(at).is_some_and(|held| held.is_kept);
            verified.kept = instance::repair(&self.disk, &dir, verify.at)?;
            Register::of(self.disk.as_ref(), &dir).acknowledge()?;
            self.held(at)?.is_kept |= was_kept;
        }
        Ok(Box::new(verified))
    }
}

impl Perform<VerifyWorkspaceFiles> for Worker {
    fn perform(
        &mut self,
        verify: VerifyWorkspaceFiles,
    ) -> Result<Box<VerificationResult>, StoreError> {
        let (disk, layout, id) = (self.disk.as_ref(), &self.layout, &verify.workspace_id);
        let mut found = verify::workspace_files(disk, layout, id)?;
        if verify.repair {
            verify::acknowledge_lost_folders(disk, layout, &mut found)?;
            let dir = layout.workspace(id);
            if disk.stat(&dir).during("inspect", &dir)?.is_some() {
                self.workspace_files.acknowledge(disk, layout, id)?;
            }
            own_files::mark_acknowledged(&mut found);
        }
        let groups = [Group::Instances, Group::Sandboxes];
        for lost in verify::lost(disk, layout, id, &groups)? {
            found.findings.extend(match verify.repair {
                true => lost.acknowledge()?,
                false => lost.findings,
            });
        }
        Ok(Box::new(found))
    }
}

impl Perform<VerifyRootFiles> for Worker {
    fn perform(&mut self, verify: VerifyRootFiles) -> Result<Box<VerificationResult>, StoreError> {
        let (disk, layout) = (self.disk.as_ref(), &self.layout);
        let mut found = verify::root_files(disk, layout)?;
        if verify.repair {
            FolderManifest::open(disk, &layout.system())?.acknowledge(disk)?;
            own_files::mark_acknowledged(&mut found);
            verify::acknowledge_lost_folders(disk, layout, &mut found)?;
        }
        Ok(Box::new(found))
    }
}

impl Perform<Export> for Worker {
    fn perform(&mut self, export: Export) -> Result<Box<ExportPart>, StoreError> {
        let store = &mut self.held(&export.instance)?.store;
        let part = store.export(export.position, export.skip_damaged, export.at)?;
        Ok(Box::new(part))
    }
}

impl Perform<Import> for Worker {
    fn perform(&mut self, import: Import) -> Result<ImportResult, StoreError> {
        let key = &import.instance.instance_key;
        let instances = self.layout.instances(&import.instance.workspace_id);
        let staging = format!(".new-{}", uuid::Uuid::now_v7());
        let whose = (key, &import.agent);
        let disk = self.disk.as_ref();
        let dir = self.dir_of(&import.instance);
        let register = Register::of(disk, &dir);
        register.begin_again()?;
        register.clone().here().begin_again()?;
        let imported = instance::import(
            disk,
            &instances,
            whose,
            &import.archive,
            import.at,
            &staging,
        )?;
        let metadata = Metadata::read(disk, &dir)?;
        register.note_new(&[]);
        self.index.put(&import.instance, &metadata);
        Ok(imported)
    }
}

impl Perform<PinConversation> for Worker {
    fn perform(&mut self, pin: PinConversation) -> Result<Pins, StoreError> {
        self.held(&pin.instance)?.store.pin()
    }
}

impl Perform<BeginRewind> for Worker {
    fn perform(&mut self, begin: BeginRewind) -> Result<(), StoreError> {
        self.held(&begin.instance)?.store.begin_rewind(begin.note)
    }
}

impl Perform<FinishRewind> for Worker {
    fn perform(&mut self, finish: FinishRewind) -> Result<Option<RewindRecord>, StoreError> {
        let unpacked = self.dir_of(&finish.instance).join(&finish.unpacked);
        self.held(&finish.instance)?.store.finish_rewind(&unpacked)
    }
}

impl Perform<AbandonRewind> for Worker {
    fn perform(&mut self, abandon: AbandonRewind) -> Result<(), StoreError> {
        self.held(&abandon.instance)?.store.abandon_rewind()
    }
}

impl Perform<Close> for Worker {
    fn perform(&mut self, close: Close) -> Result<(), StoreError> {
        let instance = &close.instance;
        if let Some(unfolded) = self.unfolded.get_mut(instance) {
            unfolded.is_kept = false;
        }
        self.resting.remove(instance);
        if let Some(mut held) = self.open.remove(instance) {
            held.store.sync()?;
            held.store.clear_journal()?;
            held.store.flush_metadata()?;
        }
        Ok(())
    }
}

impl Perform<Delete> for Worker {
    fn perform(&mut self, delete: Delete) -> Result<RemoveResult, StoreError> {
        let instance = &delete.instance;
        self.open.remove(instance);
        self.unfolded.remove(instance);
        self.unwritten_begins.remove(instance);
        self.resting.remove(instance);
        let dir = self.dir_of(instance);
        Register::of(self.disk.as_ref(), &dir).forget()?;
        let trash = format!(".removed-{}", uuid::Uuid::now_v7());
        let existed = instance::delete(self.disk.as_ref(), &dir, &trash)?;
        self.index.remove(instance);
        Ok(RemoveResult { existed })
    }
}

impl Perform<Audit> for Worker {
    fn perform(&mut self, audit: Audit) -> Result<(), StoreError> {
        let (disk, layout) = (self.disk.as_ref(), &self.layout);
        let files = &mut self.workspace_files;
        files.audit(disk, layout, &audit.workspace_id, &audit.record)
    }
}

impl Perform<RecordUsage> for Worker {
    fn perform(&mut self, record: RecordUsage) -> Result<(), StoreError> {
        let (disk, layout) = (self.disk.as_ref(), &self.layout);
        let files = &mut self.workspace_files;
        files.append(disk, layout, &record.workspace_id, &record.entry)
    }
}
