//! Goal: if the machine or the daemon stops at any disk call during a rewind, then files, messages
//! and extension states all have either the old state or that of the checkpoint, and no answered
//! event is answered again. Method: executes the steps of a rewind in the core's order on a
//! simulated disk, stopped at every call; then the recovery of the next daemon, stopped once more
//! on the way.

use std::path::Path;
use std::sync::Arc;

use goondan_durable::disk::{Crash, Disk as _, SimulatedDisk, append_all, read_all};
use goondan_protocol::event::{AgentEvent, TurnOutcome};
use goondan_protocol::ids::{EventId, InstanceKey, TurnId};
use goondan_store::instance::{CommitExtras, EventState, InstanceStore, RewindNote};
use serde_json::json;

use super::*;

const INSTANCES: &str = "/instances";

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_unix_millis(1_707_991_200_000 + seconds * 1000)
}

fn dir() -> PathBuf {
    Path::new(INSTANCES).join("main")
}

fn event(id: &str) -> AgentEvent {
    serde_json::from_value(json!({
        "id": id, "type": "message", "createdAt": "2026-01-01T00:00:00.000Z", "input": id,
        "instanceKey": "main", "source": {"kind": "connector", "name": "cli"},
    }))
    .unwrap()
}

/// A machine with one conversation.
#[derive(Clone)]
struct World {
    disk: SimulatedDisk,
    boot: u64,
}

/// The state affected by a rewind.
#[derive(Debug, Clone, PartialEq)]
struct RewindState {
    file: Vec<u8>,
    later: bool,
    messages: Vec<u8>,
    notes: Option<serde_json::Value>,
}

impl World {
    fn register(&self) -> Register<'_> {
        Register::of(&self.disk, &Path::new(INSTANCES).join("main")).here()
    }

    /// A conversation of two turns with a checkpoint between them, and a queued event.
    fn new() -> (Self, RewindState) {
        let disk = SimulatedDisk::new();
        disk.create_dir(Path::new(INSTANCES)).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        let key = InstanceKey::new("main").unwrap();
        let (agent, arc) = ("clerk".parse().unwrap(), Arc::new(disk.clone()));
        let instances = Path::new(INSTANCES);
        InstanceStore::create(arc, instances, &key, &agent, at(0), ".new").unwrap();
        let world = Self { disk, boot: 1 };
        world.write("one\n");
        world.turn("e1", &[("notes", json!({"seen": 1}))], true);
        let about = world.about();
        let mut store = world.checkpoints().unwrap();
        make(&mut store, &world.register(), &about).unwrap();
        let then = world.seen();
        world.write("two\n");
        world.write_file("work/later.txt", "later\n");
        // A turn that rewrites the base, as a summary does, and one that appends to it.
        world.turn("e2", &[("notes", json!({"seen": 2}))], false);
        world.turn("e3", &[("other", json!(true))], true);
        let mut instance = world.instance().unwrap();
        instance.accept(event("waits")).unwrap();
        instance.sync().unwrap();
        (world, then)
    }

    fn after(&self, crash: Crash) -> Self {
        Self {
            disk: self.disk.after_crash(crash),
            boot: self.boot + u64::from(crash != Crash::ProcessOnly),
        }
    }

    fn instance(&self) -> Result<InstanceStore, goondan_store::StoreError> {
        InstanceStore::open(Arc::new(self.disk.clone()), &dir())
    }

    fn checkpoints(&self) -> Result<Store, CheckpointError> {
        open_in(self.disk.folder(&dir()), &self.boot.to_string())
    }

    fn write(&self, content: &str) {
        self.write_file("work/notes.txt", content);
    }

    fn write_file(&self, path: &str, content: &str) {
        let folder = self.disk.folder(&dir());
        let path = Path::new(path);
        drop(folder.remove(path));
        let mut file = folder.create(path, 0o644).unwrap();
        append_all(file.as_mut(), content.as_bytes()).unwrap();
        file.sync().unwrap();
        folder.sync_dir(Path::new("work")).unwrap();
    }

    fn turn(&self, id: &str, states: &[(&str, serde_json::Value)], appends: bool) {
        let mut store = self.instance().unwrap();
        store.accept(event(id)).unwrap();
        store.sync().unwrap();
        let (turn, event_id) = (
            TurnId::new(format!("t-{id}")).unwrap(),
            EventId::new(id).unwrap(),
        );
        store.begin_turn(turn.clone(), &event_id, at(1)).unwrap();
        let mut events = Vec::new();
        if !appends {
            events.push(json!({"type": "truncate"}));
        }
        events.push(json!({"type": "append", "message": {
            "id": format!("t-{id}:u"), "data": {"role": "user", "content": id}, "metadata": {"eventId": id},
            "createdAt": "2026-01-01T00:00:00.000Z", "source": {"type": "user"},
        }}));
        let mut seq = 0;
        for event in &events {
            seq += 1;
            let raw = serde_json::value::to_raw_value(event).unwrap();
            store.append_event(&turn, seq, &raw).unwrap();
        }
        let states = states
            .iter()
            .map(|(name, state)| (name.parse().unwrap(), state.clone()));
        let brought = CommitExtras {
            also: Vec::new(),
            states: states.collect(),
        };
        let outcome = TurnOutcome::Completed {
            reply: id.to_owned(),
        };
        store
            .complete_turn_with(&turn, seq, brought, outcome, at(2))
            .unwrap();
        store.sync().unwrap();
        store.finish_turn().unwrap();
    }

    fn about(&self) -> JointMetadata {
        Self::about_pinned(self.instance().unwrap().pin().unwrap())
    }

    fn seen(&self) -> RewindState {
        let folder = self.disk.folder(&dir());
        let read = |path: &str| {
            let mut file = folder.read(Path::new(path)).unwrap();
            read_all(file.as_mut(), 1 << 20).unwrap()
        };
        let notes = self.instance().unwrap().extension_states().unwrap();
        RewindState {
            file: read("work/notes.txt"),
            later: folder.look(Path::new("work/later.txt")).unwrap().is_some(),
            messages: read("messages/base.jsonl"),
            notes: Some(json!(notes)),
        }
    }

    /// The core's steps of a rewind; `None` if one fails.
    fn rewind(&self) -> Option<()> {
        let about = {
            let mut instance = self.instance().ok()?;
            let pins = instance.pin().ok()?;
            let mut about = Self::about_pinned(pins);
            about.now = at(4);
            about
        };
        let ask = RewindParams {
            checkpoint_id: Some("checkpoint_001"),
            sandbox: None,
            is_rehearsal: false,
        };
        let planned = plan(&mut self.checkpoints().ok()?, &ask, &about).ok()?;
        let note = RewindNote {
            at: at(4),
            checkpoint_id: planned.checkpoint_id,
            pre_rewind: planned.pre_rewind?,
            messages_before: 0,
            is_prepared: false,
        };
        self.instance().ok()?.begin_rewind(note).ok()?;
        self.finish()
    }

    fn about_pinned(pins: goondan_store::instance::Pins) -> JointMetadata {
        JointMetadata {
            pinned: pins.with(Charge::default(), None),
            name: None,
            now: at(3),
        }
    }

    /// Finishes a rewind that the conversation has recorded, if any.
    fn finish(&self) -> Option<()> {
        let mut instance = self.instance().ok()?;
        let Some(note) = instance.rewind().cloned() else {
            return Some(());
        };
        let mut store = self.checkpoints().ok()?;
        let unpacked = take_back(&mut store, &note.checkpoint_id, &note.pre_rewind, at(5)).ok()?;
        instance.finish_rewind(&dir().join(unpacked)).ok()?;
        drop(store.forget_unpacked());
        Some(())
    }
}

/// Checks that the state is the old or the new one. True if it is the new one.
fn judge(world: &World, old: &RewindState, new: &RewindState, call: u64) -> bool {
    let mut instance = world.instance().unwrap();
    let findings = instance.state().findings;
    assert!(findings.is_empty(), "call {call}: {findings:?}");
    for (id, is_answered) in [("e1", true), ("e2", true), ("e3", true), ("waits", false)] {
        let state = instance.event_state(&EventId::new(id).unwrap()).unwrap();
        let found = matches!(state, EventState::Done(TurnOutcome::Completed { .. }));
        assert_eq!(found, is_answered, "call {call}: {id}: {state:?}");
    }
    assert_eq!(instance.waiting_count(), 1, "call {call}");
    drop(instance);
    let found = world.seen();
    let is_new = found == *new;
    assert!(
        is_new || found == *old,
        "call {call}: only half done: {found:?}"
    );
    let remembers = world.instance().unwrap().metadata().rewinds.len();
    assert_eq!(remembers, usize::from(is_new), "call {call}");
    is_new
}

#[test]
fn ckpt_6_rewind_stopped_at_any_call_restores_all_or_nothing() {
    let (base, new) = World::new();
    let old = base.seen();
    assert_ne!(old, new);
    let mut outcomes = [0_u32, 0];
    for call in 1.. {
        let world = base.after(Crash::ProcessOnly);
        world.disk.crash_at(world.disk.calls() + call);
        let _done = world.rewind();
        let is_whole = !world.disk.is_down();
        let kinds = [
            Crash::LoseUnsynced,
            Crash::KeepUnsynced,
            Crash::ProcessOnly,
            Crash::Subset(call),
        ];
        for crash in kinds {
            let again = world.after(crash);
            again.disk.crash_at(1 + call * 7 % 120);
            let _done = again.finish();
            let found = again.after(Crash::Subset(call + 7));
            found
                .finish()
                .unwrap_or_else(|| panic!("call {call}, {crash:?}: not finished"));
            let is_new = judge(&found, &old, &new, call);
            outcomes[usize::from(is_new)] += 1;
            assert!(is_new || !is_whole, "acknowledged work is done");
        }
        if is_whole {
            break;
        }
    }
    assert!(outcomes.iter().all(|count| *count > 40), "{outcomes:?}");
}

#[test]
fn ckpt_6_a_rewind_can_itself_be_taken_back() {
    let (world, then) = World::new();
    let before = world.seen();
    world.rewind().unwrap();
    assert_eq!(world.seen(), then);
    // The conversation continues from the checkpoint, with the queued event.
    let listed = list(&world.checkpoints().unwrap()).unwrap();
    assert_eq!(listed.len(), 2);
    assert_eq!(listed[1].kind, goondan_checkpoints::PRE_RESTORE);
    assert_eq!(listed[1].pinned.as_ref().unwrap().inbox_seq, 4);
    let about = world.about();
    let ask = RewindParams {
        checkpoint_id: Some("checkpoint_002"),
        sandbox: None,
        is_rehearsal: true,
    };
    let told = plan(&mut world.checkpoints().unwrap(), &ask, &about).unwrap();
    assert_eq!((told.messages_removed, told.messages_restored), (1, 2));
    assert_eq!(told.added, ["work/later.txt"]);
    assert_eq!(told.changed, ["work/notes.txt"]);
    assert_eq!(told.extensions, ["notes", "other"]);
    assert_eq!(told.removed_messages[0].head, "e1");
    assert!(told.pre_rewind.is_none());
    assert_eq!(world.seen(), then, "a rehearsal changes nothing");
    let note = RewindNote {
        at: at(9),
        checkpoint_id: "checkpoint_002".to_owned(),
        pre_rewind: "checkpoint_001".to_owned(),
        messages_before: 0,
        is_prepared: false,
    };
    world.instance().unwrap().begin_rewind(note).unwrap();
    world.finish().unwrap();
    assert_eq!(world.seen(), before);
}

#[test]
fn ckpt_6_checkpoint_stopped_at_any_call_is_whole_or_absent() {
    let (base, _) = World::new();
    for call in 1.. {
        let world = base.after(Crash::ProcessOnly);
        let about = world.about();
        world.disk.crash_at(world.disk.calls() + call);
        let made = world
            .checkpoints()
            .ok()
            .and_then(|mut store| make(&mut store, &world.register(), &about).ok());
        let is_whole = !world.disk.is_down();
        for crash in [
            Crash::LoseUnsynced,
            Crash::KeepUnsynced,
            Crash::Subset(call),
        ] {
            let found = world.after(crash);
            let store = found.checkpoints().unwrap();
            assert!(store.verify().unwrap().is_empty());
            let count = store.list().unwrap().len();
            assert!(count == 2 || (count == 1 && made.is_none()), "call {call}");
        }
        if is_whole {
            return;
        }
    }
}
