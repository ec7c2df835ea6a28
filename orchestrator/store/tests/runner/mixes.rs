//! Workloads: small mixes for exhaustive runs, seeded ones for long runs.

use crate::model::{Batch, Change, INSTANCES, ModelQueueOp, ModelStep};

/// Instructions to repeat a failure; its message has the failing mix or seed.
pub(crate) const REPEAT: &str = "to repeat a seed: GOONDAN_STORE_SEED=<seed> GOONDAN_STORE_SEEDS=1 \
     cargo nextest run -p goondan-store -E 'binary(runner)'";

/// Reads a number from the environment.
pub(crate) fn knob(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

fn accept(at: &'static str, event: &str) -> ModelStep {
    ModelStep::Accept(at, event.into())
}

fn begin(at: &'static str, turn: &str, event: &str) -> ModelStep {
    ModelStep::Begin(at, turn.into(), event.into())
}

fn append(at: &'static str, turn: &str, seq: u64, id: &str) -> ModelStep {
    ModelStep::Append(at, turn.into(), seq, Change::Append(id.into()))
}

fn change(at: &'static str, turn: &str, seq: u64, change: Change) -> ModelStep {
    ModelStep::Append(at, turn.into(), seq, change)
}

fn complete(at: &'static str, turn: &str, last: u64) -> ModelStep {
    ModelStep::Complete(at, turn.into(), last)
}

fn arrange(at: &'static str, event: &str, arranged: ModelQueueOp) -> ModelStep {
    ModelStep::Arrange(at, event.into(), arranged)
}

fn one_by_one(steps: Vec<ModelStep>) -> Vec<Batch> {
    steps.into_iter().map(|step| vec![step]).collect()
}

/// One mix for each kind of operation; every step is a separate batch.
pub(crate) fn small() -> Vec<(&'static str, Vec<Batch>)> {
    let first_turn = || {
        vec![
            accept("a", "e1"),
            begin("a", "t1", "e1"),
            append("a", "t1", 1, "m1"),
            append("a", "t1", 2, "m2"),
            complete("a", "t1", 2),
        ]
    };
    let with_first = |more: Vec<ModelStep>| one_by_one([first_turn(), more].concat());
    vec![
        (
            "fold by delta",
            with_first(vec![
                accept("a", "e2"),
                begin("a", "t2", "e2"),
                append("a", "t2", 1, "m3"),
                begin("a", "ignored", "e2"),
                append("a", "t2", 2, "m4"),
                complete("a", "t2", 2),
                accept("a", "e2"),
            ]),
        ),
        (
            "fold by rewrite",
            with_first(vec![
                accept("a", "e2"),
                begin("a", "t2", "e2"),
                change("a", "t2", 1, Change::Replace("m1".into(), "m1b".into())),
                change("a", "t2", 2, Change::Remove("not-there".into())),
                append("a", "t2", 3, "m3"),
                complete("a", "t2", 3),
                accept("a", "e3"),
                begin("a", "t3", "e3"),
                change("a", "t3", 1, Change::Truncate),
                append("a", "t3", 2, "m4"),
                complete("a", "t3", 2),
            ]),
        ),
        (
            "park, retry and drop",
            one_by_one(vec![
                accept("a", "e1"),
                accept("a", "e2"),
                begin("a", "t1", "e1"),
                append("a", "t1", 1, "m1"),
                ModelStep::Attempts("a", "e1".into(), 1),
                ModelStep::Attempts("a", "e1".into(), 1),
                ModelStep::Attempts("a", "e1".into(), 3),
                ModelStep::Park("a", "e1".into()),
                ModelStep::Park("a", "e1".into()),
                begin("a", "t2", "e2"),
                append("a", "t2", 1, "m2"),
                complete("a", "t2", 1),
                ModelStep::Retry("a", "e1".into()),
                ModelStep::Retry("a", "e1".into()),
                begin("a", "t3", "e1"),
                append("a", "t3", 1, "m3"),
                ModelStep::Park("a", "e1".into()),
                ModelStep::Drop("a", "e1".into()),
                ModelStep::Drop("a", "e1".into()),
                accept("a", "e1"),
            ]),
        ),
        (
            "pause, resume and move",
            one_by_one(vec![
                accept("a", "e1"),
                accept("a", "e2"),
                accept("a", "e3"),
                arrange("a", "e2", ModelQueueOp::Pause),
                arrange("a", "e2", ModelQueueOp::Pause),
                arrange("a", "e3", ModelQueueOp::First),
                begin("a", "t1", "e3"),
                append("a", "t1", 1, "m1"),
                accept("a", "e4"),
                arrange("a", "e4", ModelQueueOp::First),
                arrange("a", "e1", ModelQueueOp::Last),
                complete("a", "t1", 1),
                arrange("a", "e1", ModelQueueOp::Before("e2".into())),
                arrange("a", "e1", ModelQueueOp::Before("e2".into())),
                ModelStep::Close("a"),
                arrange("a", "e2", ModelQueueOp::Resume),
                arrange("a", "e2", ModelQueueOp::Resume),
                ModelStep::Park("a", "e1".into()),
                arrange("a", "e2", ModelQueueOp::First),
                ModelStep::Retry("a", "e1".into()),
            ]),
        ),
        (
            "questions and answers",
            one_by_one(vec![
                accept("a", "e1"),
                begin("a", "t1", "e1"),
                append("a", "t1", 1, "m1"),
                ModelStep::Await("a", "q1".into(), "e3".into()),
                ModelStep::Await("a", "q1".into(), "e3".into()),
                ModelStep::Await("a", "q2".into(), "e4".into()),
                ModelStep::Await("a", "q3".into(), "e5".into()),
                ModelStep::Forgo("a", "q2".into()),
                ModelStep::Forgo("a", "q2".into()),
                accept("a", "e2"),
                accept("a", "e3"),
                ModelStep::Await("a", "q1".into(), "e3".into()),
                append("a", "t1", 2, "m2"),
                accept("a", "e5"),
                ModelStep::CompleteWith("a", "t1".into(), 2, vec!["e3".into(), "e5".into()]),
                ModelStep::Await("a", "q3".into(), "e5".into()),
                accept("a", "e3"),
                begin("a", "t2", "e2"),
                change("a", "t2", 1, Change::Truncate),
                ModelStep::Await("a", "q4".into(), "e6".into()),
                accept("a", "e6"),
                ModelStep::CompleteWith("a", "t2".into(), 1, vec!["e6".into()]),
            ]),
        ),
        (
            "extensions, metadata, logs, audit",
            with_first(vec![
                ModelStep::Observe("a"),
                accept("a", "e2"),
                begin("a", "t2", "e2"),
                complete("a", "t2", 0),
                ModelStep::Audit(1),
                ModelStep::Close("a"),
                ModelStep::Audit(2),
                accept("a", "e3"),
                begin("a", "t3", "e3"),
                append("a", "t3", 1, "m3"),
                complete("a", "t3", 1),
                accept("a", "e4"),
                begin("a", "t4", "e4"),
                append("a", "t4", 1, "m4"),
                complete("a", "t4", 1),
                ModelStep::Close("a"),
            ]),
        ),
        (
            "delete and make again",
            with_first(vec![
                accept("b", "e2"),
                ModelStep::Delete("a"),
                ModelStep::Delete("a"),
                accept("a", "e3"),
                begin("a", "t3", "e3"),
                append("a", "t3", 1, "m5"),
                ModelStep::Delete("b"),
                complete("a", "t3", 1),
            ]),
        ),
    ]
}

/// A conversation with three turns, waiting events and an open fourth turn.
pub(crate) fn with_open_turn() -> Vec<Batch> {
    let mut batches = Vec::new();
    for (turn, event) in [("t1", "e1"), ("t2", "e2"), ("t3", "e3")] {
        batches.push(vec![accept("a", event)]);
        batches.push(vec![begin("a", turn, event)]);
        batches.push(vec![
            append("a", turn, 1, &format!("{turn}:u")),
            append("a", turn, 2, &format!("{turn}:a")),
        ]);
        // Extension states differ between turns.
        let last = if turn == "t2" { 3 } else { 2 };
        if last > 2 {
            batches.push(vec![append("a", turn, 3, &format!("{turn}:b"))]);
        }
        batches.push(vec![complete("a", turn, last)]);
    }
    batches.extend([
        vec![accept("a", "e4"), accept("a", "e5")],
        vec![begin("a", "t4", "e4")],
        vec![append("a", "t4", 1, "t4:u"), append("a", "t4", 2, "t4:a")],
        vec![append("a", "t4", 3, "t4:b")],
        vec![
            ModelStep::Attempts("a", "e4".into(), 1),
            ModelStep::Observe("a"),
        ],
        vec![ModelStep::Close("a")],
    ]);
    batches
}

/// Append-only turns, one turn that rewrites them, and an open turn.
pub(crate) fn rewritten() -> Vec<Batch> {
    let mut batches = vec![vec![accept("a", "e1"), accept("a", "e2")]];
    for (turn, event) in [("t1", "e1"), ("t2", "e2")] {
        batches.push(vec![
            begin("a", turn, event),
            append("a", turn, 1, &format!("{turn}:u")),
            append("a", turn, 2, &format!("{turn}:a")),
        ]);
        batches.push(vec![complete("a", turn, 2)]);
    }
    batches.extend([
        vec![accept("a", "e3"), accept("a", "e4")],
        vec![
            begin("a", "t3", "e3"),
            change("a", "t3", 1, Change::Remove("t1:u".into())),
            change("a", "t3", 2, Change::Replace("t2:u".into(), "t2:v".into())),
            append("a", "t3", 3, "t3:a"),
        ],
        vec![complete("a", "t3", 3), begin("a", "t4", "e4")],
        vec![append("a", "t4", 1, "t4:u")],
    ]);
    batches
}

/// Creates `count` consecutive turns of one conversation, each with the next event already queued.
pub(crate) fn many_turns(count: usize) -> Vec<Batch> {
    let mut batches = vec![vec![accept("a", "e0")]];
    for n in 0..count {
        let (turn, event) = (format!("t{n}"), format!("e{n}"));
        batches.push(vec![
            begin("a", &turn, &event),
            append("a", &turn, 1, &format!("{turn}:u")),
            accept("a", &format!("e{}", n + 1)),
            complete("a", &turn, 1),
        ]);
    }
    batches
}

/// Many steps in few batches, so that many of the steps share one sync.
pub(crate) fn grouped() -> Vec<Batch> {
    vec![
        vec![accept("a", "e1"), accept("b", "e2"), accept("a", "e3")],
        vec![begin("a", "t1", "e1"), begin("b", "t2", "e2")],
        vec![
            append("a", "t1", 1, "m1"),
            append("a", "t1", 2, "m2"),
            append("b", "t2", 1, "m3"),
            append("a", "t1", 3, "m4"),
            accept("a", "e4"),
        ],
        vec![
            append("a", "t1", 4, "m5"),
            complete("a", "t1", 4),
            change("b", "t2", 2, Change::Truncate),
        ],
        vec![begin("a", "t3", "e3"), complete("b", "t2", 2)],
        vec![append("a", "t3", 1, "m6"), complete("a", "t3", 1)],
        vec![
            begin("a", "t4", "e4"),
            change("a", "t4", 1, Change::Replace("m6".into(), "m6b".into())),
            accept("a", "e5"),
            accept("a", "e6"),
            complete("a", "t4", 1),
        ],
        vec![
            begin("a", "t5", "e5"),
            change("a", "t5", 1, Change::Remove("m6b".into())),
            complete("a", "t5", 1),
        ],
        vec![
            begin("a", "t6", "e6"),
            append("a", "t6", 1, "m7"),
            complete("a", "t6", 1),
        ],
    ]
}

/// A random valid history of two instances.
pub(crate) fn seeded(seed: u64, batches: usize) -> Vec<Batch> {
    let mut maker = MixGenerator {
        random: fastrand::Rng::with_seed(seed),
        next_event: 1,
        next_turn: 1,
        next_message: 1,
        instances: [Plan::default(), Plan::default()],
    };
    (0..batches).map(|_| maker.batch()).collect()
}

/// The generator's state of an instance, sufficient for valid steps.
#[derive(Default)]
struct Plan {
    exists: bool,
    waiting: Vec<String>,
    paused: Vec<String>,
    parked: Vec<String>,
    messages: Vec<String>,
    turn: Option<(String, String, u64)>,
    added: Vec<String>,
    answers: Vec<String>,
    /// Answers that a turn may consume.
    taken_in: Vec<String>,
}

impl Plan {
    /// Returns an event whose turn may begin.
    fn next(&self) -> Option<String> {
        let mut ready = self.waiting.iter();
        ready.find(|id| !self.paused.contains(id)).cloned()
    }
}

struct MixGenerator {
    random: fastrand::Rng,
    next_event: u32,
    next_turn: u32,
    next_message: u32,
    instances: [Plan; 2],
}

impl MixGenerator {
    fn batch(&mut self) -> Batch {
        let mut batch = Vec::new();
        for (at, key) in INSTANCES.into_iter().enumerate() {
            if self.random.u8(..) < 200 {
                self.steps(at, &mut batch);
            }
            // The end of a turn and its successors may be in one batch.
            while self.random.u8(..) < 100 && !batch.contains(&ModelStep::Delete(key)) {
                self.steps(at, &mut batch);
            }
        }
        if batch.is_empty() || self.random.u8(..) < 12 {
            batch.push(ModelStep::Audit(self.next_event));
        }
        batch
    }

    fn event(&mut self) -> String {
        self.next_event += 1;
        format!("e{}", self.next_event)
    }

    /// A user reorders or pauses an event whose turn has not begun.
    fn arrange(&mut self, at: usize) -> Option<ModelStep> {
        let plan = &mut self.instances[at];
        let open = plan.turn.as_ref().map(|(_, event, _)| event);
        let waiting: Vec<&String> = plan.waiting.iter().filter(|id| Some(*id) != open).collect();
        let event = (*self.random.choice(&waiting)?).clone();
        let arranged = match self.random.u8(0..5) {
            0 => {
                plan.paused.push(event.clone());
                ModelQueueOp::Pause
            }
            1 => {
                plan.paused.retain(|id| *id != event);
                ModelQueueOp::Resume
            }
            2 => ModelQueueOp::First,
            3 => ModelQueueOp::Last,
            _ => ModelQueueOp::Before((*self.random.choice(&waiting)?).clone()),
        };
        Some(ModelStep::Arrange(INSTANCES[at], event, arranged))
    }

    /// Concurrent steps of an agent and its clients.
    fn steps(&mut self, at: usize, batch: &mut Batch) {
        let key = INSTANCES[at];
        let (event, dice) = (self.event(), self.random.u8(..));
        let plan = &mut self.instances[at];
        if !plan.exists || dice < 60 {
            plan.exists = true;
            plan.waiting.push(event.clone());
            batch.push(ModelStep::Accept(key, event));
            return;
        }
        if dice < 64 {
            *plan = Plan::default();
            batch.push(ModelStep::Delete(key));
            return;
        }
        match dice {
            64..84 => batch.push(ModelStep::Observe(key)),
            84..88 => batch.push(ModelStep::Verify(key)),
            88..90 => batch.push(ModelStep::Close(key)),
            90..108 => {
                let step = self.arrange(at);
                batch.extend(step);
                return;
            }
            _ => {}
        }
        let plan = &mut self.instances[at];
        let Some((turn, event, mut seq)) = plan.turn.take() else {
            if let Some(event) = plan.parked.first().cloned().filter(|_| dice < 110) {
                plan.parked.retain(|id| *id != event);
                if dice % 2 == 0 {
                    plan.waiting.insert(0, event.clone());
                    batch.push(ModelStep::Retry(key, event));
                } else {
                    batch.push(ModelStep::Drop(key, event));
                }
            } else if let Some(event) = plan.next() {
                self.next_turn += 1;
                let turn = format!("t{}", self.next_turn);
                plan.turn = Some((turn.clone(), event.clone(), 0));
                batch.push(ModelStep::Begin(key, turn, event));
            }
            return;
        };
        if dice > 246 {
            plan.waiting.retain(|id| *id != event);
            plan.parked.push(event.clone());
            plan.added.clear();
            batch.push(ModelStep::Attempts(key, event.clone(), 3));
            batch.push(ModelStep::Park(key, event));
            return;
        }
        for _ in 0..self.random.u8(0..4) {
            seq += 1;
            self.next_message += 1;
            let id = format!("m{}", self.next_message);
            let target = plan.messages.last().cloned();
            let change = match (self.random.u8(..), target) {
                (0..20, Some(target)) => Change::Replace(target, id),
                (20..35, Some(target)) => Change::Remove(target),
                (35..40, _) => Change::Truncate,
                _ => {
                    plan.added.push(id.clone());
                    Change::Append(id)
                }
            };
            batch.push(ModelStep::Append(key, turn.clone(), seq, change));
        }
        if self.random.u8(..) < 40 {
            self.next_event += 1;
            let (question, reply) = (
                format!("q{}", self.next_event),
                format!("e{}", self.next_event),
            );
            batch.push(ModelStep::Await(key, question.clone(), reply.clone()));
            match self.random.u8(0..4) {
                0 => batch.push(ModelStep::Forgo(key, question)),
                1 => {}
                _ => plan.answers.push(reply),
            }
        } else if let Some(reply) = plan.answers.pop() {
            plan.waiting.push(reply.clone());
            plan.taken_in.push(reply.clone());
            batch.push(ModelStep::Accept(key, reply));
        } else if self.random.bool() {
            plan.waiting.retain(|id| *id != event);
            plan.messages.append(&mut plan.added);
            let also = std::mem::take(&mut plan.taken_in);
            let waits = |id: &String| plan.waiting.contains(id);
            let also: Vec<String> = also.into_iter().filter(waits).collect();
            plan.waiting.retain(|id| !also.contains(id));
            batch.push(ModelStep::CompleteWith(key, turn, seq, also));
            return;
        }
        if self.random.bool() {
            plan.waiting.retain(|id| *id != event);
            plan.messages.append(&mut plan.added);
            batch.push(ModelStep::Complete(key, turn, seq));
        } else {
            plan.turn = Some((turn, event, seq));
        }
    }
}
