//! Tasks with several agents, at the usage limits of these.

use goondan_protocol::task::ChangedFile;

use super::*;
use crate::fact::{FallbackAgent, HistoryEntry};

const HOUR_MS: i64 = 3_600_000;

/// Agents with these profiles, the first of which is the task's own.
fn agents(profiles: [(&str, AgentProfile); 3]) -> BTreeMap<AgentName, AgentProfile> {
    let agents = profiles.into_iter();
    agents
        .map(|(name, agent)| (name.parse().unwrap(), agent))
        .collect()
}

fn usual() -> BTreeMap<AgentName, AgentProfile> {
    agents(["coder", "codex", "gemini"].map(|name| (name, AgentProfile::default())))
}

/// A started task of `coder`, which `codex` and `gemini` may continue.
fn running(phases: u32, agents: BTreeMap<AgentName, AgentProfile>) -> TaskDriver {
    let other = |agent: &str| FallbackAgent {
        agent: agent.parse().unwrap(),
        tells_result: true,
    };
    let new = NewTask {
        fallbacks: vec![other("codex"), other("gemini")],
        ..new_task(phases)
    };
    let (task, _) = Task::create(new, Timestamp::from_unix_millis(0)).unwrap();
    let mut driven = TaskDriver { task, now: 0 };
    driven.task.set_agents(agents);
    driven.does(TaskInput::Start);
    driven
}

/// Ends a run at a limit that is reset at this time. Returns the facts.
fn reach_limit(task: &mut TaskDriver, reset_at: i64) -> (Vec<HistoryEntry>, Vec<TaskEffect>) {
    let reset = Reset::At(Timestamp::from_unix_millis(reset_at));
    task.tells(CliEvent::RateLimit(reset));
    let (run, now) = (task.run(), Timestamp::from_unix_millis(task.now));
    let exited = TaskInput::Exited { run, code: Some(1) };
    let output = task.task.handle(exited, now).unwrap();
    (output.facts, output.effects)
}

fn changes(facts: &[HistoryEntry]) -> Vec<(&str, &str)> {
    let changes = facts.iter().filter_map(|entry| match &entry.fact {
        TaskEvent::AgentChanged { from, to, .. } => Some((from.as_str(), to.as_str())),
        _ => None,
    });
    changes.collect()
}

#[test]
fn agent_8_at_a_limit_the_next_agent_gets_the_whole_task() {
    let mut task = running(2, usual());
    let id = "s".to_owned();
    task.tells(CliEvent::Session { id, model: None });
    task.tells(question("Which?", true));
    task.ends_well();
    task.does(answer("q-0001", "a"));
    task.tells(complete(1));
    task.ends_well();
    started(&task.does(approve(1)));
    task.tells(CliEvent::FileChanged(ChangedFile {
        path: "src/cart.rs".to_owned(),
        diff: String::new(),
    }));
    let words = "The cart is done.\n[ERROR]\nThe till is next.";
    task.tells(CliEvent::Text(words.to_owned()));
    let (facts, effects) = reach_limit(&mut task, HOUR_MS);
    assert_eq!(changes(&facts), [("coder", "codex")]);
    let Some(TaskEffect::StartRun {
        session: None,
        prompt,
        ..
    }) = effects.last()
    else {
        panic!("{effects:?}");
    };
    for said in [
        "Build a shop.",
        "Another agent, `coder`, worked on this until it reached its usage limit.",
        "Phases approved so far: 1.",
        "- docs/a.md",
        "Files changed so far:\n- src/cart.rs\n",
        "Its last message:\n    The cart is done.\n    [ERROR]\n    The till is next.\n",
        "Answer q-0001 to \"Which?\": a",
        "You are in phase 2 of 2.",
    ] {
        assert!(prompt.contains(said), "{said}: {prompt}");
    }
    let shown = task
        .task
        .state()
        .detail(&"w".parse().unwrap(), "/w".as_ref(), Vec::new());
    let current: Vec<bool> = shown.agents.iter().map(|agent| agent.is_current).collect();
    assert_eq!(current, [false, true, false]);
    assert!(shown.agents[0].limited_until.is_some());
    // A lost first run of the new agent gets the same description.
    let requested = &facts.last().unwrap().fact;
    assert!(
        matches!(requested, TaskEvent::RunRequested { agent: Some(agent), .. } if agent.as_str() == "codex"),
        "{requested:?}"
    );
    task.exits(None);
    let effects = task.does(answer("q-0002", "go on"));
    assert!(started(&effects).contains("Another agent, `coder`"));
    // It then keeps its own session.
    let id = "c".to_owned();
    task.tells(CliEvent::Session { id, model: None });
    task.tells(question("And?", true));
    task.ends_well();
    let effects = task.does(answer("q-0003", "a"));
    let is_resumed =
        matches!(&effects[..], [TaskEffect::StartRun { session: Some(id), .. }] if id == "c");
    assert!(is_resumed, "{effects:?}");
    assert!(!started(&effects).contains("Another agent"));
}

#[test]
fn agent_8_if_all_limits_are_reached_the_earliest_reset_counts() {
    let mut task = running(1, usual());
    let id = "s".to_owned();
    task.tells(CliEvent::Session { id, model: None });
    assert_eq!(
        changes(&reach_limit(&mut task, 3 * HOUR_MS).0),
        [("coder", "codex")]
    );
    let id = "c".to_owned();
    task.tells(CliEvent::Session { id, model: None });
    assert_eq!(
        changes(&reach_limit(&mut task, HOUR_MS).0),
        [("codex", "gemini")]
    );
    let (facts, effects) = reach_limit(&mut task, 2 * HOUR_MS);
    assert_eq!(changes(&facts), []);
    assert_eq!(effects, [TaskEffect::MakeCheckpoint { kind: "rate_limit" }]);
    assert_eq!(task.task.state().waits_for().as_deref(), Some("rate_limit"));
    assert_eq!(task.waits(HOUR_MS - 1), []);
    let due = task.task.next_tick(Timestamp::from_unix_millis(task.now));
    let due = due.unwrap().as_unix_millis();
    assert!((HOUR_MS..=HOUR_MS + RATE_LIMIT_JITTER_MS).contains(&due));
    let effects = task.waits(RATE_LIMIT_JITTER_MS + 1);
    assert!(
        matches!(&effects[..], [TaskEffect::StartRun { session: None, .. }]),
        "{effects:?}"
    );
    assert_eq!(task.task.state().agent().as_str(), "codex");
    // Each agent that is open again is used, in order; the limit of the current one is over first.
    task.now = 2 * HOUR_MS;
    let (facts, _) = reach_limit(&mut task, 9 * HOUR_MS);
    assert_eq!(
        changes(&facts),
        [],
        "gemini's limit includes a random delay"
    );
    task.waits(RATE_LIMIT_JITTER_MS + 1);
    assert_eq!(task.task.state().agent().as_str(), "gemini");
}

#[test]
fn agent_8_limits_are_those_of_accounts() {
    let of = |account: &str, limited_until: Option<i64>| AgentProfile {
        account: account.to_owned(),
        limited_until: limited_until.map(Timestamp::from_unix_millis),
        ..AgentProfile::default()
    };
    // Another task has reached the limit of the first account.
    let task = running(
        0,
        agents([
            ("coder", of("a", Some(HOUR_MS))),
            ("codex", of("b", None)),
            ("gemini", of("c", None)),
        ]),
    );
    assert_eq!(task.task.state().agent().as_str(), "codex");
    assert_eq!(task.run(), 1, "the limited agent was not tried");
    // The second agent has the same account as the first.
    let same = [
        ("coder", of("a", None)),
        ("codex", of("a", None)),
        ("gemini", of("c", None)),
    ];
    let mut task = running(0, agents(same));
    let (facts, _) = reach_limit(&mut task, HOUR_MS);
    assert_eq!(changes(&facts), [("coder", "gemini")]);
    // An agent that is no longer configured is skipped, and so is every change for one agent.
    let mut others = usual();
    others.remove(&"codex".parse().unwrap());
    let mut task = running(0, others);
    assert_eq!(
        changes(&reach_limit(&mut task, HOUR_MS).0),
        [("coder", "gemini")]
    );
    let mut task = running(0, BTreeMap::new());
    assert_eq!(changes(&reach_limit(&mut task, HOUR_MS).0), []);
}

#[test]
fn agent_8_histories_without_agents_are_read() {
    for (line, fact) in [
        (
            r#"{"timestamp":"2026-01-01T00:00:00.000Z","event":"retry_planned","data":{"at":"2026-01-01T00:00:10.000Z"}}"#,
            "not before 2026-01-01T00:00:10.000Z",
        ),
        (
            r#"{"timestamp":"2026-01-01T00:00:00.000Z","event":"run_requested","data":{"run":1,"session":null,"carried":0}}"#,
            "run 1",
        ),
    ] {
        let entry = HistoryEntry::from_record(line.as_bytes()).unwrap();
        assert_eq!(crate::display::happening(&entry).detail, fact);
        assert_eq!(serde_json::to_string(&entry).unwrap(), line);
    }
}
