//! Deterministic simulation of the core: children crash, hang and violate the protocol, the disk
//! fails, the daemon is killed, clocks jump, and a user edits, restarts, deletes, stops and starts.
//! The store is the real one, on a simulated disk.
//!
//! Every run is a function of its seed. [`invariants`] are checked after each step. After each run
//! all faults stop, and an [`oracle::Oracle`] compares the promised results with the stored state:
//!
//! * never two processes in one slot, and no start before its back-off is over;
//! * never two turns at once, and no turn before the agent has the whole conversation;
//! * every acknowledged event is answered once, in order, completely, in its own conversation;
//! * each call that needs approval is decided once, even with concurrent decisions, and begun at
//!   most once;
//! * no turn begins for a paused event, and each is answered once it is resumed;
//! * every client receives exactly one response;
//! * a connection receives the replies to its own events only, and the same reply to each repeated
//!   request;
//! * every outgoing call ends, a call that is not idempotent is made at most once, and the model
//!   reply that an agent receives is the recorded one;
//! * agents that send each other random requests receive each answer once, as a result or as an
//!   event, and never deadlock;
//! * no process outlives the daemon or its workspace.
//!
//! `GOONDAN_SIMULATION_RUNS` sets the number of seeds, `GOONDAN_SIMULATION_SEED` selects a single
//! one.

use std::collections::BTreeMap;

mod agent;
mod approvals;
mod budgets;
mod chat;
pub(crate) mod config;
mod decisions;
mod invariants;
mod oracle;
mod places;
mod queue_control;
mod replies;
mod reply_wait;
mod watcher;
mod world;

use std::sync::atomic::{AtomicU64, Ordering};

use goondan_durable::disk::CallFault;
use goondan_protocol::control::{
    AnswerQuestion, Call, CancelEvent, CloseWorkspace, DeclineQuestion, DeleteInstance, DropEvent,
    EventInfo, ListEvents, ListProcesses, OpenWorkspace, Restart, RetryEvent, SendEvent, Status,
};
use goondan_protocol::ids::{EventId, InstanceKey, WorkspaceId};

use nix::errno::Errno;

use self::config::{ENTRY_AGENT, Edit, HELPER_AGENT, key_of};
use self::decisions::ASK_FIRST;
use self::oracle::SimulatedRequest;
use self::world::{FaultRates, PostedEvent, World};
use crate::limits::RETENTION_INTERVAL_MS;
use crate::limits::{IDLE_AGENT_DESCRIPTORS, SPARE_STARTS_PART, WORKING_AGENT_DESCRIPTORS};
use crate::{CoreInput, ResourceLevel, ResourceUsage};

/// A little more than two million steps in total.
const RUNS: u64 = 230;
/// Longer than the maximum back-off, grace period and heartbeat together.
const HEALING_MS: u64 = 1_800_000;
const CONVERSATIONS: [&str; 4] = ["ann", "bob", "웹훅", "../../x"];

fn workspace_id(world: &World) -> WorkspaceId {
    let project = std::path::Path::new(config::PROJECT);
    let id = goondan_store::file_names::workspace_id(project, None).unwrap();
    assert!(world.layout.workspace(&id).starts_with("/root"));
    id
}

fn plan_of(seed: u64) -> FaultRates {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x9e37_79b9_7f4a_7c15);
    let mut pick = |rates: [u64; 4]| rates[rng.usize(..4)];
    FaultRates {
        crash: pick([0, 5, 40, 400]),
        hang: pick([0, 0, 2, 20]),
        garbage: pick([0, 0, 5, 20]),
        disk: pick([0, 0, 20, 150]),
        kill: pick([0, 5, 20, 60]),
        person: pick([0, 20, 100, 300]),
        work: pick([40, 80, 150, 300]),
    }
}

/// Executes one random external action.
fn work(world: &mut World) {
    if world.chance(world.plan.kill) {
        world.kill_daemon();
    }
    if world.chance(world.plan.disk) {
        world.fail_disk_once();
    }
    if world.chance(20) {
        world.wall_skew_ms += world.rng.i64(-100_000_000..100_000_000);
    }
    if world.chance(world.plan.person) {
        meddle(world);
    }
    if world.has_exited {
        return;
    }
    answer_questions(world);
    approvals::decide_some(world);
    world.press_some();
    let id = workspace_id(world);
    world.come_or_go(id);
    if world.rng.bool() {
        let conversation = *world.rng.choice(&CONVERSATIONS).unwrap();
        hand_in(world, conversation);
    } else {
        let is_careful = world.rng.u64(..4) == 0;
        send(world, if is_careful { ASK_FIRST } else { "x" });
    }
    world.post();
    world.change_mind();
    world.await_replies();
}

/// Creates an event that the connection will post.
fn hand_in(world: &mut World, conversation: &str) {
    let key = key_of(ENTRY_AGENT, conversation);
    let event_id = world.new_post(&key);
    let is_in_flight = false;
    world.posts.push(PostedEvent {
        event_id,
        key,
        is_in_flight,
    });
}

fn send(world: &mut World, input: &str) {
    let agent = *world.rng.choice(&[ENTRY_AGENT, HELPER_AGENT]).unwrap();
    let conversation = *world.rng.choice(&CONVERSATIONS).unwrap();
    let key = key_of(agent, conversation);
    let event_id = world.new_event(&key);
    let waits = world.rng.bool();
    let send = SendEvent {
        workspace_id: workspace_id(world),
        agent: Some(agent.parse().unwrap()),
        conversation_key: conversation.parse().unwrap(),
        input: input.to_owned(),
        images: Vec::new(),
        event_id: Some(event_id.clone()),
        traceparent: None,
        wait: waits,
    };
    let asked = SimulatedRequest::Send { event_id, waits };
    let token = world.ask(asked, Call::SendEvent(send));
    if world.rng.u64(..10) == 0 {
        world.oracle.leave(|gone| gone == token);
        let tokens = vec![token];
        world.input(CoreInput::ClientGone { tokens });
    }
}

fn meddle(world: &mut World) {
    let id = workspace_id(world);
    match world.rng.u64(0..13) {
        0 => {
            let conversation = *world.rng.choice(&CONVERSATIONS).unwrap();
            delete(world, &key_of(ENTRY_AGENT, conversation));
        }
        1 => {
            let conversation = *world.rng.choice(&CONVERSATIONS).unwrap();
            delete(world, &key_of(HELPER_AGENT, conversation));
        }
        2 => close(world),
        3 => open(world),
        4 => {
            world.edit = match world.rng.u64(0..10) {
                0 => Edit::Broken,
                1 => Edit::Smaller,
                5 => Edit::OtherModel(world.rng.u32(0..2)),
                6.. => Edit::Partial([(); 5].map(|()| world.rng.u32(0..2))),
                n => Edit::Valid(u32::try_from(n).unwrap()),
            };
            world.input(CoreInput::Reload);
        }
        5 | 6 => {
            let agent = world.rng.bool().then(|| ENTRY_AGENT.parse().unwrap());
            let fresh = world.rng.u64(0..4) == 0;
            let asked = if fresh {
                SimulatedRequest::FreshRestart
            } else {
                SimulatedRequest::Other
            };
            let call = Call::Restart(Restart {
                workspace_id: id,
                agent,
                instance_key: None,
                fresh,
            });
            world.ask(asked, call);
        }
        7 => {
            world.ask(SimulatedRequest::Other, Call::Status(Status {}));
        }
        9 => cancel(world),
        10 | 11 => queue_control::arrange(world),
        8 => {
            list_parked(world);
            for event in world.parked.take().into_iter().flatten() {
                let is_dropped = world.rng.bool();
                decide(world, &event, is_dropped);
            }
        }
        _ => {
            let call = Call::ListProcesses(ListProcesses::default());
            world.ask(SimulatedRequest::Other, call);
        }
    }
}

/// Answers or declines some open questions.
fn answer_questions(world: &mut World) {
    let open = world.core.calls.open_questions();
    let open: Vec<_> = open.map(|open| open.info.clone()).collect();
    for info in open {
        let (workspace_id, question_id) = (info.workspace_id, info.question_id);
        let call = match world.rng.u64(0..4) {
            0 => Call::AnswerQuestion(AnswerQuestion {
                workspace_id,
                question_id,
                content: goondan_protocol::JsonObject::new(),
            }),
            1 => Call::DeclineQuestion(DeclineQuestion {
                workspace_id,
                question_id,
            }),
            _ => continue,
        };
        world.ask(SimulatedRequest::Other, call);
    }
}

fn delete(world: &mut World, key: &InstanceKey) {
    let call = Call::DeleteInstance(DeleteInstance {
        workspace_id: workspace_id(world),
        instance_key: key.clone(),
    });
    world.ask(SimulatedRequest::Delete(key.clone()), call);
}

fn list_parked(world: &mut World) {
    let call = Call::ListEvents(ListEvents {
        workspace_id: workspace_id(world),
        instance_key: None,
        parked: true,
        after: None,
        limit: None,
    });
    world.ask(SimulatedRequest::ListParked, call);
}

fn decide(world: &mut World, event: &EventInfo, is_dropped: bool) {
    let workspace_id = workspace_id(world);
    let (instance_key, event_id) = (event.instance_key.clone(), event.event_id.clone());
    if is_dropped {
        let asked = SimulatedRequest::Drop(event_id.clone());
        let call = Call::DropEvent(DropEvent {
            workspace_id,
            instance_key,
            event_id,
        });
        world.ask(asked, call);
    } else {
        let asked = SimulatedRequest::Retry(event_id.clone());
        let call = Call::RetryEvent(RetryEvent {
            workspace_id,
            instance_key,
            event_id,
        });
        world.ask(asked, call);
    }
}

/// Cancels an event, in progress or queued.
fn cancel(world: &mut World) {
    let known: Vec<_> = world.oracle.unanswered().collect();
    let Some((event_id, instance_key)) = world.rng.choice(&known).cloned() else {
        return;
    };
    let call = Call::CancelEvent(CancelEvent {
        workspace_id: workspace_id(world),
        instance_key,
        event_id: Some(event_id.clone()),
    });
    world.ask(SimulatedRequest::Cancel(event_id), call);
}

fn close(world: &mut World) {
    let workspace_id = workspace_id(world);
    let call = Call::CloseWorkspace(CloseWorkspace { workspace_id });
    world.ask(SimulatedRequest::Other, call);
}

fn open(world: &mut World) {
    let project_root = config::PROJECT.into();
    let call = Call::OpenWorkspace(OpenWorkspace {
        project_root,
        watch: None,
        env_files: None,
        swarm: None,
    });
    world.ask(SimulatedRequest::Other, call);
}

fn run_for(world: &mut World, ms: u64) {
    let until = world.mono_ms + ms;
    while world.mono_ms < until && !world.has_exited {
        world.step();
    }
}

fn simulate(seed: u64) -> World {
    let mut world = World::new(seed, plan_of(seed), false);
    let run =
        |world: &mut World| std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| live(world)));
    if run(&mut world).is_ok() {
        return world;
    }
    // Runs again with a trace.
    let mut world = World::new(seed, plan_of(seed), true);
    let failure = run(&mut world).expect_err("one seed, one run");
    for line in &world.trace {
        eprintln!("{line}");
    }
    eprintln!(
        "seed {seed}, {:?}; again with\n  GOONDAN_SIMULATION_SEED={seed} \
         cargo test -p goondan-core simulation",
        world.plan
    );
    std::panic::resume_unwind(failure);
}

fn live(world: &mut World) {
    for _ in 0..world.plan.work {
        work(world);
        let pause_ms = world.rng.u64(0..400);
        run_for(world, pause_ms);
    }
    heal(world, Edit::Valid(1));
    world.stop();
    let ended_by = world.mono_ms + HEALING_MS;
    while !world.has_exited {
        assert!(world.mono_ms < ended_by, "it never ended");
        world.step();
    }
    assert_eq!(world.running(), 0);
    world.oracle.assert_all_answered();
    world.oracle.assert_kept(&world.conversations());
    world.oracle.assert_counted(&world.ledger());
}

/// Runs without faults until the world is quiet.
fn heal(world: &mut World, edit: Edit) {
    world.is_healing = true;
    world.edit = edit;
    let healed_by = world.mono_ms + HEALING_MS;
    let mut next_look_ms = world.mono_ms;
    world.parked = None;
    let is_at_rest = |world: &World| {
        let is_none_parked = world.parked.as_ref().is_some_and(Vec::is_empty);
        world.is_quiet()
            && is_none_parked
            && world.replies.are_told()
            && !world
                .core
                .fleet
                .view()
                .every_workspace(&world.core.calls)
                .is_empty()
    };
    while !is_at_rest(world) {
        assert!(world.mono_ms < healed_by, "it never came to rest");
        if world.mono_ms >= next_look_ms {
            open(world);
            for event in world.parked.take().into_iter().flatten() {
                decide(world, &event, false);
            }
            queue_control::resume_all(world);
            approvals::decide_all(world);
            list_parked(world);
            next_look_ms = world.mono_ms + 10_000;
        }
        world.post();
        world.await_replies();
        run_for(world, 250);
    }
}

/// Totals over several runs.
#[derive(Default)]
struct RunTotals {
    steps: u64,
    /// Number of turns that began with the commit of the previous one.
    begun_behind: u64,
    /// Number of answers between agents, by kind.
    told: BTreeMap<String, u64>,
}

impl RunTotals {
    fn add(&mut self, world: World) {
        self.steps += world.steps;
        self.begun_behind += world.begun_behind;
        self.add_told(world.oracle.told);
        self.add_told(world.replies.counts);
        let watched = [
            ("a watcher: snapshot", world.watcher.snapshots),
            ("a watcher: missed updates", world.watcher.came_back),
        ];
        let watched = watched.into_iter().filter(|(_, times)| *times > 0);
        self.add_told(watched.map(|(what, n)| (what.to_owned(), n)).collect());
    }

    fn add_told(&mut self, told: BTreeMap<String, u64>) {
        for (what, times) in told {
            *self.told.entry(what).or_default() += times;
        }
    }
}

/// Runs the seeds below `runs` on all processors.
fn simulate_all(runs: u64) -> RunTotals {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let share = || {
            let mut tally = RunTotals::default();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= runs {
                    return tally;
                }
                tally.add(simulate(seed));
            }
        };
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(share)).collect();
        let mut all = RunTotals::default();
        for thread in running {
            match thread.join() {
                Ok(tally) => {
                    all.steps += tally.steps;
                    all.begun_behind += tally.begun_behind;
                    all.add_told(tally.told);
                }
                Err(failure) => std::panic::resume_unwind(failure),
            }
        }
        all
    })
}

/// The number of runs set in the environment, or `few`.
fn runs_or(few: u64) -> u64 {
    std::env::var("GOONDAN_SIMULATION_RUNS").map_or(few, |n| {
        n.parse().expect("GOONDAN_SIMULATION_RUNS is a number")
    })
}

#[test]
fn all_guarantees_hold_under_crashes_hangs_garbage_and_edits() {
    if let Ok(seed) = std::env::var("GOONDAN_SIMULATION_SEED") {
        drop(simulate(
            seed.parse().expect("GOONDAN_SIMULATION_SEED is a number"),
        ));
        return;
    }
    let runs = runs_or(RUNS);
    let RunTotals {
        steps,
        begun_behind,
        told,
    } = simulate_all(runs);
    eprintln!(
        "{runs} runs, {steps} steps, {begun_behind} turns begun behind others, agents were told {told:?}"
    );
    assert!(steps > runs * 100, "almost nothing happened");
    assert!(
        begun_behind > runs,
        "hardly any turn was begun with a commit"
    );
    for what in [
        "answered",
        "accepted",
        "pending",
        "restarting",
        "E_CIRCULAR_REQUEST",
        "cancelled",
        "paused",
        "moved",
        "approval: approved",
        "approval: approved, and may have begun",
        "approval: denied",
        "approval: 1 of 2",
        "button: counted",
        "button: decided",
        "button: decided before",
        "button: not allowed",
        "question: accept",
        "question: decline",
        "question: cancel",
        "question: refused",
        "reply: over",
        "reply: ended by a person",
        "reply: open",
        "reply: gone",
        "reply: not its own",
        "a watcher: snapshot",
        "a watcher: missed updates",
    ] {
        assert!(told.contains_key(what), "no report of {what}");
    }
}

/// No faults and no user actions.
const CALM: FaultRates = FaultRates {
    crash: 0,
    hang: 0,
    garbage: 0,
    disk: 0,
    kill: 0,
    person: 0,
    work: 0,
};

/// Agents send each other random requests in a world without faults: each request is rejected or
/// answered immediately, and no deadlock occurs.
#[test]
fn ipc_3_random_requests_between_agents_never_deadlock() {
    let mut tally = RunTotals::default();
    for seed in 0..40 {
        let mut world = World::new(seed, CALM, false);
        world.is_healing = true;
        open(&mut world);
        run_for(&mut world, 1_000);
        for _ in 0..30 {
            send(&mut world, "x");
            let pause_ms = world.rng.u64(0..100);
            run_for(&mut world, pause_ms);
        }
        // Far below the timeout of requests, so a deadlock would be detected.
        let deadline_ms = world.mono_ms + 200_000;
        while !world.is_quiet() {
            assert!(
                world.mono_ms < deadline_ms,
                "seed {seed}: agents wait for each other"
            );
            run_for(&mut world, 250);
        }
        world.oracle.assert_kept(&world.conversations());
        tally.add(world);
    }
    let codes: Vec<&str> = tally.told.keys().map(String::as_str).collect();
    assert_eq!(
        codes,
        [
            "E_CIRCULAR_REQUEST",
            "accepted",
            "answered",
            "pending",
            "restarting"
        ]
    );
}

/// A disk that is sometimes full makes the store fail and stops agents in the middle of turns,
/// repeatedly. This counts against no event.
#[test]
fn a_disk_that_is_full_parks_no_event() {
    // The disk fails only if the test requests it.
    let plan = FaultRates { disk: 1, ..CALM };
    for seed in 0..100 {
        let mut world = World::new(seed, plan, false);
        world.is_healing = true;
        open(&mut world);
        run_for(&mut world, 1_000);
        for conversation in CONVERSATIONS {
            hand_in(&mut world, conversation);
        }
        world.post();
        let full = CallFault::Errno(Errno::ENOSPC as i32);
        for _ in 0..400 {
            let call = world.disk.calls() + world.rng.u64(0..8);
            world.disk.fail_at(call, full, false);
            run_for(&mut world, 50);
            world.post();
        }
        // A call that has already happened, so the fault is disarmed.
        world.disk.fail_at(0, full, false);
        let deadline_ms = world.mono_ms + 120_000;
        loop {
            list_parked(&mut world);
            run_for(&mut world, 250);
            if let Some(parked) = world.parked.take() {
                assert!(parked.is_empty(), "seed {seed}: {parked:?}");
                if world.is_quiet() {
                    break;
                }
            }
            assert!(
                world.mono_ms < deadline_ms,
                "seed {seed}: it was not answered"
            );
            world.post();
        }
        world.oracle.assert_kept(&world.conversations());
    }
}

/// Models are edited while a turn begins with the commit of the previous one. Its process receives
/// it with the model it began on.
#[test]
fn a_turn_that_begins_behind_another_has_the_model_it_began_on() {
    let mut edits = 0;
    for seed in 0..20 {
        let mut world = World::new(seed, CALM, false);
        world.is_healing = true;
        world.edit = Edit::OtherModel(0);
        open(&mut world);
        run_for(&mut world, 1_000);
        for round in 1..20 {
            for _ in 0..4 {
                send(&mut world, "x");
            }
            let begun_behind = world.begun_behind;
            let deadline_ms = world.mono_ms + 60_000;
            while world.begun_behind == begun_behind && !world.is_quiet() {
                assert!(world.mono_ms < deadline_ms, "seed {seed}: no turn ends");
                world.step();
            }
            edits += u64::from(world.begun_behind > begun_behind);
            world.edit = Edit::OtherModel(round % 2);
            world.input(CoreInput::Reload);
            run_for(&mut world, 2_000);
        }
    }
    assert!(edits > 100, "only {edits} edits came while a turn began");
}

/// A world without faults in which conversations expire.
fn expiring_world() -> World {
    let mut world = World::new(1, CALM, false);
    world.is_healing = true;
    world.edit = Edit::Expiring;
    open(&mut world);
    run_for(&mut world, 1_000);
    world
}

fn post_to(world: &mut World, conversation: &str) {
    hand_in(world, conversation);
    let deadline_ms = world.mono_ms + 60_000;
    while !world.is_quiet() {
        assert!(world.mono_ms < deadline_ms, "it was not answered");
        world.post();
        run_for(world, 250);
    }
}

fn conversations_of(world: &World) -> Vec<String> {
    let conversations = world.conversations();
    conversations.keys().map(ToString::to_string).collect()
}

#[test]
fn inst_7_unused_conversation_is_deleted_and_used_one_is_kept() {
    let mut world = expiring_world();
    post_to(&mut world, "ann");
    for _ in 0..8 {
        post_to(&mut world, "bob");
        run_for(&mut world, config::KEEP_MS / 4);
    }
    assert_eq!(conversations_of(&world), ["bob"]);
}

#[test]
fn inst_7_a_clock_that_jumps_and_is_set_right_deletes_nothing() {
    let mut world = expiring_world();
    post_to(&mut world, "ann");
    world.wall_skew_ms += 1_000_000_000_000;
    run_for(&mut world, RETENTION_INTERVAL_MS);
    world.wall_skew_ms -= 1_000_000_000_000;
    run_for(&mut world, 2 * RETENTION_INTERVAL_MS);
    assert_eq!(conversations_of(&world), ["ann"]);
}

#[test]
fn sup_3_idle_agent_stops_and_the_next_event_restarts_it() {
    let mut world = expiring_world();
    post_to(&mut world, "ann");
    assert_eq!(world.running(), 2, "the first event asks no model");
    post_to(&mut world, "ann");
    assert_eq!(world.running(), 3, "connector, agent and model");
    run_for(
        &mut world,
        goondan_config::Lifecycle::default().idle_ms + 30_000,
    );
    assert_eq!(world.running(), 1, "the connector stays");
    post_to(&mut world, "ann");
    assert_eq!(world.running(), 2, "the third event asks no model");
}

#[test]
fn sup_8_reload_restarts_only_processes_affected_by_the_edit() {
    let mut world = expiring_world();
    let edit = |world: &mut World, numbers| {
        world.edit = Edit::Partial(numbers);
        world.input(CoreInput::Reload);
        run_for(world, 2_000);
        std::mem::take(&mut world.edits_felt)
    };
    edit(&mut world, [0; 5]);
    post_to(&mut world, "ann");
    // The entry agent has a process, the helper has none; there are two connections.
    assert_eq!(edit(&mut world, [0, 1, 0, 0, 0]), 0);
    assert_eq!(edit(&mut world, [0, 1, 0, 1, 0]), 1);
    assert_eq!(edit(&mut world, [1, 1, 0, 1, 0]), 1);
    assert_eq!(edit(&mut world, [1, 1, 0, 1, 0]), 0);
    post_to(&mut world, "ann");
    assert_eq!(edit(&mut world, [1, 1, 0, 1, 1]), 3);
}

#[test]
fn sup_3_no_more_agents_leave_for_those_that_are_leaving() {
    let mut world = expiring_world();
    for n in 0..20 {
        post_to(&mut world, &format!("person-{n}"));
    }
    let running = world.running();
    // Of 1,000 descriptors, 125 are reserved, and there is capacity for one start fewer than the
    // spare starts.
    let (limit, spare) = (1_000, 875 / WORKING_AGENT_DESCRIPTORS / SPARE_STARTS_PART);
    let used = 875 - (spare - 1) * WORKING_AGENT_DESCRIPTORS;
    let supply = ResourceUsage {
        descriptors: Some(ResourceLevel { used, limit }),
        ..ResourceUsage::default()
    };
    for _ in 0..20 {
        world.input(CoreInput::Supply(supply));
    }
    run_for(&mut world, 2_000);
    let left = u64::try_from(running - world.running()).unwrap();
    assert_eq!(
        left,
        WORKING_AGENT_DESCRIPTORS.div_ceil(IDLE_AGENT_DESCRIPTORS)
    );
}
