//! Operations on the store in tests, and an independent model of their results: plain vectors and
//! maps that share no code with the store.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

pub(crate) const INSTANCES: [&str; 2] = ["a", "b"];

/// One operation on one instance.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ModelStep {
    Accept(&'static str, String),
    Begin(&'static str, String, String),
    Append(&'static str, String, u64, Change),
    Complete(&'static str, String, u64),
    /// A turn that consumed other events.
    CompleteWith(&'static str, String, u64, Vec<String>),
    /// A question, and the event that will carry its answer.
    Await(&'static str, String, String),
    Forgo(&'static str, String),
    Attempts(&'static str, String, u32),
    Park(&'static str, String),
    Retry(&'static str, String),
    Drop(&'static str, String),
    Arrange(&'static str, String, ModelQueueOp),
    Observe(&'static str),
    Verify(&'static str),
    Close(&'static str),
    Delete(&'static str),
    Audit(u32),
}

/// A user's change to a waiting event.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ModelQueueOp {
    Pause,
    Resume,
    First,
    Last,
    Before(String),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Change {
    Append(String),
    Replace(String, String),
    Remove(String),
    Truncate,
}

/// Steps submitted together to a writer.
pub(crate) type Batch = Vec<ModelStep>;

impl ModelStep {
    pub(crate) fn instance(&self) -> Option<&'static str> {
        match self {
            Self::Accept(at, ..)
            | Self::Begin(at, ..)
            | Self::Append(at, ..)
            | Self::Complete(at, ..)
            | Self::CompleteWith(at, ..)
            | Self::Await(at, ..)
            | Self::Forgo(at, ..)
            | Self::Attempts(at, ..)
            | Self::Park(at, ..)
            | Self::Retry(at, ..)
            | Self::Drop(at, ..)
            | Self::Arrange(at, ..)
            | Self::Observe(at)
            | Self::Verify(at)
            | Self::Close(at)
            | Self::Delete(at) => Some(at),
            Self::Audit(_) => None,
        }
    }

    /// True if its acknowledgment guarantees that `earlier`, or the step itself, is durable.
    fn promises(&self, earlier: &Self) -> bool {
        match self {
            Self::Begin(..) | Self::Observe(_) => false,
            // Accepting an event guarantees nothing about the open turn.
            Self::Accept(..) => earlier.file() == 0,
            _ => true,
        }
    }

    /// Returns its file. Unacknowledged changes of two files may survive independently.
    fn file(&self) -> usize {
        match self {
            Self::Begin(..) | Self::Append(..) | Self::Complete(..) | Self::CompleteWith(..) => 1,
            _ => 0,
        }
    }
}

/// Observable state of an instance.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct ModelView {
    pub messages: Vec<(String, String)>,
    pub pending: Vec<Change>,
    pub open: Option<(String, String)>,
    pub waiting: Vec<String>,
    pub paused: BTreeSet<String>,
    pub parked: Vec<String>,
    /// Questions, and the events that will carry their answers.
    pub awaiting: Vec<(String, String)>,
    /// Number of crashed turns of unfinished events.
    pub attempts: BTreeMap<String, u32>,
    pub ended: BTreeMap<String, String>,
    pub extension: Option<u32>,
    /// Model only: the order of unfinished events, including parked ones.
    order: Vec<String>,
}

/// Observable state of everything: existing instances and the audit log.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct World {
    pub instances: BTreeMap<&'static str, ModelView>,
    pub audit: Vec<u32>,
}

fn text_of(id: &str) -> String {
    format!("text of {id}")
}

impl World {
    pub(crate) fn apply(&mut self, step: &ModelStep) {
        match step {
            ModelStep::Audit(n) => self.audit.push(*n),
            ModelStep::Delete(at) => drop(self.instances.remove(at)),
            ModelStep::Accept(at, event) => {
                let seen = self.instances.entry(at).or_default();
                let is_known = seen.ended.contains_key(event)
                    || seen.waiting.contains(event)
                    || seen.parked.contains(event);
                if !is_known {
                    seen.waiting.push(event.clone());
                    seen.order.push(event.clone());
                    seen.awaiting.retain(|(_, reply)| reply != event);
                }
            }
            other => {
                if let Some(seen) = other.instance().and_then(|at| self.instances.get_mut(at)) {
                    seen.apply(other);
                }
            }
        }
    }

    /// Returns the part of the model that is observable on a disk.
    pub(crate) fn into_found(mut self) -> Self {
        for seen in self.instances.values_mut() {
            seen.order.clear();
        }
        self
    }

    /// Applies the guaranteed part of acknowledged steps. Returns the rest.
    fn apply_promised(&mut self, steps: &[ModelStep]) -> Batch {
        let mut rest = Batch::new();
        for (place, step) in steps.iter().enumerate() {
            let same = |later: &&ModelStep| later.instance() == step.instance();
            let mut later = steps.iter().skip(place).filter(same);
            if later.any(|later| later.promises(step)) {
                self.apply(step);
            } else {
                rest.push(step.clone());
            }
        }
        rest
    }

    /// Returns the possible worlds after a crash in `batch`: for each file of each instance, any
    /// prefix of its steps.
    pub(crate) fn may_become(&self, batch: &[ModelStep]) -> Vec<Self> {
        let mut worlds = vec![self.clone()];
        let mut keys: Vec<Option<&str>> = batch.iter().map(ModelStep::instance).collect();
        keys.dedup();
        for key in keys {
            let steps: Vec<&ModelStep> = batch.iter().filter(|s| s.instance() == key).collect();
            let mut next: Vec<Self> = Vec::new();
            for counts in counts_of(&steps) {
                for world in &worlds {
                    let mut world = world.clone();
                    let mut taken = [0; 2];
                    for step in &steps {
                        let file = step.file();
                        if taken[file] < counts[file] {
                            taken[file] += 1;
                            world.apply(step);
                        }
                    }
                    if !next.contains(&world) {
                        next.push(world);
                    }
                }
            }
            worlds = next;
        }
        worlds
    }
}

/// Returns the possible worlds after `acknowledged` batches and an interrupted next batch.
pub(crate) fn allowed_after(batches: &[Batch], acknowledged: usize) -> Vec<World> {
    let (done, rest) = batches.split_at(acknowledged);
    let mut world = World::default();
    let mut open = Batch::new();
    for batch in done {
        open.extend(batch.iter().cloned());
        open = world.apply_promised(&open);
    }
    open.extend(rest.iter().take(1).flatten().cloned());
    let worlds = world.may_become(&open).into_iter();
    worlds.map(World::into_found).collect()
}

/// Returns all combinations of prefix lengths for the files.
fn counts_of(steps: &[&ModelStep]) -> Vec<[usize; 2]> {
    let most = |file| steps.iter().filter(|step| step.file() == file).count();
    let mut all = Vec::new();
    for a in 0..=most(0) {
        for b in 0..=most(1) {
            all.push([a, b]);
        }
    }
    all
}

impl ModelView {
    fn apply(&mut self, step: &ModelStep) {
        match step {
            ModelStep::Begin(_, turn, event) => {
                if self.open.is_none() {
                    self.open = Some((turn.clone(), event.clone()));
                }
            }
            ModelStep::Append(_, _, _, change) => self.pending.push(change.clone()),
            ModelStep::Complete(_, turn, last_seq) => self.complete(turn, *last_seq, &[]),
            ModelStep::CompleteWith(_, turn, last_seq, also) => {
                self.complete(turn, *last_seq, also);
            }
            ModelStep::Await(_, question, reply) => {
                let is_there = self.ended.contains_key(reply)
                    || self.waiting.contains(reply)
                    || self.parked.contains(reply);
                let entry = (question.clone(), reply.clone());
                if !is_there && !self.awaiting.contains(&entry) {
                    self.awaiting.push(entry);
                    self.awaiting.sort();
                }
            }
            ModelStep::Forgo(_, question) => self.awaiting.retain(|(held, _)| held != question),
            ModelStep::Attempts(_, event, n) => {
                let known = self.attempts.entry(event.clone()).or_default();
                *known = (*known).max(*n);
            }
            ModelStep::Park(_, event) => {
                if let Some(place) = self.waiting.iter().position(|id| id == event) {
                    self.waiting.remove(place);
                    self.parked.push(event.clone());
                    self.parked.sort_by_key(|id| number(id));
                }
                if self.open.as_ref().is_some_and(|(_, open)| open == event) {
                    self.open = None;
                    self.pending.clear();
                }
            }
            ModelStep::Retry(_, event) => {
                if let Some(place) = self.parked.iter().position(|id| id == event) {
                    self.parked.remove(place);
                    self.waiting.push(event.clone());
                    self.sort_waiting();
                    self.attempts.remove(event);
                }
            }
            ModelStep::Drop(_, event) => {
                if self.parked.contains(event) {
                    self.end(event, "E_EVENT_DROPPED");
                }
            }
            ModelStep::Arrange(_, event, arranged) => self.arrange(event, arranged),
            ModelStep::Accept(..)
            | ModelStep::Observe(_)
            | ModelStep::Verify(_)
            | ModelStep::Close(_)
            | ModelStep::Delete(_)
            | ModelStep::Audit(_) => {}
        }
    }

    fn sort_waiting(&mut self) {
        let order = &self.order;
        let place = |id: &String| order.iter().position(|own| own == id);
        self.waiting.sort_by_key(place);
    }

    fn arrange(&mut self, event: &str, arranged: &ModelQueueOp) {
        let before = match arranged {
            ModelQueueOp::Pause => {
                self.paused.insert(event.to_owned());
                return;
            }
            ModelQueueOp::Resume => {
                self.paused.remove(event);
                return;
            }
            ModelQueueOp::Before(other) => Some(other.clone()),
            ModelQueueOp::Last => None,
            ModelQueueOp::First => {
                let open = self.open.as_ref().map(|(_, event)| event);
                let mut others = self.waiting.iter();
                others.find(|id| *id != event && Some(*id) != open).cloned()
            }
        };
        if before.as_deref() == Some(event) {
            return;
        }
        self.order.retain(|id| id != event);
        let place = self.order.iter().position(|id| Some(id) == before.as_ref());
        let place = place.unwrap_or(self.order.len());
        self.order.insert(place, event.to_owned());
        self.sort_waiting();
    }

    fn complete(&mut self, turn: &str, last_seq: u64, also: &[String]) {
        self.extension = Some(u32::try_from(last_seq).unwrap());
        for change in std::mem::take(&mut self.pending) {
            change.apply(&mut self.messages);
        }
        if let Some((_, event)) = self.open.take() {
            for event in also.iter().chain([&event]) {
                self.end(event, &format!("reply of {turn}"));
            }
        }
    }

    fn end(&mut self, event: &str, outcome: &str) {
        self.waiting.retain(|id| id != event);
        self.parked.retain(|id| id != event);
        self.paused.remove(event);
        self.order.retain(|id| id != event);
        self.attempts.remove(event);
        self.ended.insert(event.to_owned(), outcome.to_owned());
    }
}

/// Events are accepted in numerical order.
fn number(event: &str) -> u32 {
    event.trim_start_matches('e').parse().unwrap()
}

impl Change {
    fn apply(self, messages: &mut Vec<(String, String)>) {
        let message = |id: String| {
            let text = text_of(&id);
            (id, text)
        };
        match self {
            Self::Append(id) => messages.push(message(id)),
            Self::Replace(target, id) => {
                for held in messages.iter_mut().filter(|held| held.0 == target).take(1) {
                    *held = message(id.clone());
                }
            }
            Self::Remove(target) => {
                if let Some(place) = messages.iter().position(|held| held.0 == target) {
                    messages.remove(place);
                }
            }
            Self::Truncate => messages.clear(),
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        let message = |id: &str| {
            json!({
                "id": id, "data": {"role": "user", "content": text_of(id)}, "metadata": {},
                "createdAt": "2026-01-01T00:00:00.000Z", "source": {"type": "user"}, "x-other": 1,
            })
        };
        match self {
            Self::Append(id) => json!({"type": "append", "message": message(id)}),
            Self::Replace(target, id) => {
                json!({"type": "replace", "targetId": target, "message": message(id)})
            }
            Self::Remove(target) => json!({"type": "remove", "targetId": target}),
            Self::Truncate => json!({"type": "truncate"}),
        }
    }

    pub(crate) fn of_json(value: &Value) -> Self {
        let id = || value["message"]["id"].as_str().unwrap().to_owned();
        let target = || value["targetId"].as_str().unwrap().to_owned();
        match value["type"].as_str().unwrap() {
            "append" => Self::Append(id()),
            "replace" => Self::Replace(target(), id()),
            "remove" => Self::Remove(target()),
            _ => Self::Truncate,
        }
    }
}
