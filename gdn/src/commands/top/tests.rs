//! Goal: `gdn top` shows and does the right thing for any update, key and terminal size, without a terminal.
//! Method: frames as text; each action by its keys; random sizes and keys.

use goondan_protocol::control::{
    InstanceSummary, InstancesPage, WatchCursor, WatchUpdate, WorkspaceChange,
};
use goondan_protocol::ids::InstanceKey;
use goondan_protocol::lifecycle::LifecycleEvent as Event;
use goondan_protocol::time::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::app::{App, ConnectionState, Mode};
use super::board::Facts;
use super::draw::{RenderContext, as_text};
use super::input::{
    Act, FeedQuery, KeyPress, PageSubject, PendingDecision, Size, TopEffect, TopInput,
};
use super::view::View;
use crate::context::Context;
use crate::output::Output;

const SIZE: Size = Size {
    columns: 80,
    rows: 24,
};
const ESCAPE: char = '\u{1b}';

/// 2026-01-01T12:00:00Z plus `ms` milliseconds.
fn at(ms: i64) -> Timestamp {
    Timestamp::from_unix_millis(1_767_268_800_000 + ms)
}

fn process(more: &Value) -> Value {
    let mut process = json!({
        "workspaceId": "w", "role": "agent", "name": "clerk", "state": "idle", "consecutiveCrashes": 0,
        "pendingEvents": 0,
    });
    let fields = more.as_object().unwrap().clone();
    process.as_object_mut().unwrap().extend(fields);
    process
}

fn facts() -> Facts {
    let processes = json!([
        process(
            &json!({"instanceKey": "main", "state": "processing", "turnId": "t1", "pid": 4711,
            "startedAt": at(-65_000), "pendingEvents": 3, "waitingFor": ["writer:1"]})
        ),
        process(
            &json!({"instanceKey": "cust\u{1b}[2Jomer", "state": "crashLoopBackOff",
            "consecutiveCrashes": 6, "nextStartAt": at(8_000), "detail": "exit code 3"})
        ),
        process(
            &json!({"role": "connector", "name": "hook", "readiness": "notReady", "pid": 4712,
            "startedAt": at(-3_600_000), "detail": "cannot listen on 127.0.0.1:8080"})
        ),
    ]);
    let workspace = json!({
        "workspaceId": "w", "projectRoot": "/srv/shop", "package": "bookshop", "agents": ["clerk"],
        "connections": ["hook"], "runningAgents": 1, "pendingEvents": 3, "parkedEvents": 1, "approvals": 2,
        "unhealthy": [{"role": "connector", "name": "hook", "state": "idle", "readiness": "notReady",
            "detail": "cannot listen on 127.0.0.1:8080"}],
        "unhealthyTotal": 1,
    });
    Facts {
        workspace: serde_json::from_value(workspace).unwrap(),
        processes: serde_json::from_value(processes).unwrap(),
    }
}

fn conversation(key: &str, changed_ms: i64) -> InstanceSummary {
    InstanceSummary {
        workspace_id: "w".parse().unwrap(),
        instance_key: key.parse().unwrap(),
        agent_name: "clerk".parse().unwrap(),
        status: "idle".to_owned(),
        created_at: at(-90_000_000),
        updated_at: at(changed_ms),
    }
}

fn page(instances: Vec<InstanceSummary>) -> TopInput {
    TopInput::Conversations(Box::new(InstancesPage {
        total: instances.len(),
        instances,
        next: None,
    }))
}

fn watch_update(count: u64, at: Timestamp, told: WatchUpdate) -> TopInput {
    TopInput::Told(Box::new(WorkspaceChange {
        request_id: 1,
        workspace_id: "w".parse().unwrap(),
        cursor: WatchCursor { epoch: 1, count },
        at,
        told,
    }))
}

fn event(event: Value) -> WatchUpdate {
    WatchUpdate::Event(serde_json::from_value::<Event>(event).unwrap())
}

fn context() -> Context {
    let output = Output::new(false, anstream::ColorChoice::Never);
    let root = std::path::Path::new("/state");
    Context::new(output, Some(root), None, None, None).unwrap()
}

fn picture(app: &App, columns: u16, rows: u16) -> String {
    let context = context();
    let ink = RenderContext {
        context: &context,
        now: at(0),
        has_colors: false,
    };
    as_text(app, ink, Size { columns, rows })
}

/// A project with much activity.
fn busy(view: View) -> App {
    let mut app = App::new(view, false, SIZE);
    app.handle(TopInput::Facts(Box::new(facts())), at(-9_000));
    let conversations = vec![
        conversation("main", -4_000),
        conversation("cust\u{1b}[2Jomer", -70_000),
        conversation("안녕 🦀", -86_400_000),
    ];
    app.handle(page(conversations), at(-9_000));
    let events = [
        json!({"type": "event.accepted", "instanceKey": "main", "eventId": "e1"}),
        json!({"type": "turn.started", "instanceKey": "main", "turnId": "t1", "eventId": "e1", "attempt": 2}),
        json!({"type": "approval.asked", "instanceKey": "main", "approvalId": "a-1", "toolName": "bash__exec"}),
        json!({"type": "process.crashed", "role": "agent", "instanceKey": "cust\u{1b}[2Jomer",
            "consecutiveCrashes": 6, "nextStartInMs": 8_000, "how": "exit code 3"}),
    ];
    for (count, happened) in (1..).zip(events) {
        app.handle(watch_update(count, at(-4_000), event(happened)), at(-4_000));
    }
    app.handle(
        TopInput::LogLine(
            json!({
                "timestamp": at(-4_000), "level": "warn", "message": "slow", "process": "agent",
                "agentName": "clerk", "instanceKey": "main",
            })
            .to_string(),
        ),
        at(-4_000),
    );
    app
}

fn press(app: &mut App, keys: &str) -> Vec<TopEffect> {
    let mut effects = Vec::new();
    for key in keys.chars() {
        effects.extend(app.handle(TopInput::Key(KeyPress::Char(key)), at(0)));
    }
    effects
}

/// Renders a view. The local time is replaced, because it depends on the machine.
fn shown(view: View, columns: u16, rows: u16) -> String {
    let local = crate::output::text::clock(at(0));
    let local = local.split_once(' ').unwrap().1.to_owned();
    let then = crate::output::text::clock_ms(at(-4_000));
    let (day, time) = then.split_once(' ').unwrap();
    picture(&busy(view), columns, rows)
        .replace(&local, "[time]  ")
        .replace(day, "[day]     ")
        .replace(time, "[then]      ")
}

#[test]
fn obs_4_the_views_at_80_by_24() {
    for view in View::ALL {
        insta::assert_snapshot!(format!("{}_80x24", view.title()), shown(view, 80, 24));
    }
}

#[test]
fn obs_4_the_views_at_200_by_60() {
    for view in View::ALL {
        insta::assert_snapshot!(format!("{}_200x60", view.title()), shown(view, 200, 60));
    }
}

#[test]
fn obs_4_turn_is_canceled_only_after_confirmation() {
    let mut app = busy(View::Conversations);
    assert_eq!(press(&mut app, "cn"), []);
    assert_eq!(app.mode, Mode::Look);
    let main = "main".parse().unwrap();
    assert_eq!(press(&mut app, "cy"), [TopEffect::Act(Act::Cancel(main))]);
    let main = "main".parse().unwrap();
    assert_eq!(press(&mut app, "ry"), [TopEffect::Act(Act::Restart(main))]);
    app.handle(
        TopInput::Acted(Err("no turn is in progress".to_owned())),
        at(0),
    );
    assert!(picture(&app, 80, 24).ends_with("no turn is in progress\n"));
}

#[test]
fn need_1_a_call_is_decided_with_a_key_after_it_was_shown() {
    let mut app = busy(View::Conversations);
    let main: InstanceKey = "main".parse().unwrap();
    let query = FeedQuery::Approval(main.clone(), true);
    assert_eq!(press(&mut app, "a"), [TopEffect::Load(query)]);
    let pending = Box::new(PendingDecision {
        approval_id: "a-1".parse().unwrap(),
        key: main,
        is_approved: true,
        is_always: false,
        changed: None,
        detail: serde_json::from_value(json!({
            "approval": {
                "workspaceId": "w1", "approvalId": "a-1", "instanceKey": "main",
                "agentName": "clerk", "turnId": "t", "stepId": "t.1", "toolCallId": "c1",
                "toolName": "bash__exec", "summary": "…", "askedAt": "2026-01-01T00:00:00.000Z",
            },
            "input": {"command": "make release ".repeat(20)},
            "schema": {"properties": {"timeoutMs": {"type": "integer"}}},
        }))
        .unwrap(),
    });
    app.handle(TopInput::Approval(Some(pending.clone())), at(0));
    let shown = picture(&app, 80, 24);
    assert!(shown.contains("Waits for approval"), "{shown}");
    assert_eq!(shown.matches("make").count(), 20, "{shown}");
    assert!(
        shown.ends_with("Approve this call of main? y/N, e edit, A always\n"),
        "{shown}"
    );
    let decision = |change: &dyn Fn(&mut PendingDecision)| {
        let mut pending = pending.clone();
        change(&mut pending);
        [TopEffect::Act(Act::Decide(pending))]
    };
    assert_eq!(press(&mut app, "y"), decision(&|_| {}));

    // Always, after the scope was shown.
    app.handle(TopInput::Approval(Some(pending.clone())), at(0));
    assert_eq!(press(&mut app, "A"), []);
    let shown = picture(&app, 80, 24);
    let always = "Approve exactly this call in main from now on, without asking? y/N\n";
    assert!(shown.ends_with(always), "{shown}");
    assert_eq!(press(&mut app, "y"), decision(&|it| it.is_always = true));

    // With a changed argument, which must fit.
    app.handle(TopInput::Approval(Some(pending.clone())), at(0));
    press(&mut app, "etimeoutMs=soon");
    app.handle(TopInput::Key(KeyPress::Enter), at(0));
    let shown = picture(&app, 80, 24);
    assert!(shown.contains("takes JSON of the type integer"), "{shown}");
    for _ in "soon".chars() {
        app.handle(TopInput::Key(KeyPress::Backspace), at(0));
    }
    press(&mut app, "5");
    app.handle(TopInput::Key(KeyPress::Enter), at(0));
    let shown = picture(&app, 80, 24);
    assert!(
        shown.ends_with("Approve the changed call of main? y/N, e edit\n"),
        "{shown}"
    );
    assert!(shown.contains("timeoutMs:"), "{shown}");
    assert_eq!(press(&mut app, "A"), [], "changed calls are approved once");
    let changed = json!({"command": "make release ".repeat(20), "timeoutMs": 5});
    let changed = Some(changed);
    assert_eq!(
        press(&mut app, "y"),
        decision(&|it| it.changed.clone_from(&changed))
    );
    app.handle(TopInput::Approval(None), at(0));
    assert!(picture(&app, 80, 24).contains("No tool call of this conversation waits"));
}

#[test]
fn obs_4_nothing_is_changed_where_a_person_only_wants_to_look() {
    let mut app = busy(View::Conversations);
    app.is_read_only = true;
    assert_eq!(press(&mut app, "cyryady"), []);
    assert!(!picture(&app, 80, 24).contains("c cancel"));
}

#[test]
fn obs_4_selection_stays_when_the_list_moves() {
    let mut app = busy(View::Conversations);
    press(&mut app, "j");
    let begun = json!({"type": "instance.created", "instanceKey": "new", "agentName": "clerk"});
    app.handle(watch_update(9, at(-1), event(begun)), at(0));
    let key = "cust\u{1b}[2Jomer".parse().unwrap();
    let page = app.handle(TopInput::Key(KeyPress::Enter), at(0));
    assert_eq!(
        page,
        [TopEffect::Load(FeedQuery::Page(
            PageSubject::Transcript(key),
            80
        ))]
    );
}

#[test]
fn obs_4_a_filter_narrows_and_escape_widens_again() {
    let mut app = busy(View::Conversations);
    press(&mut app, "/안녕");
    assert_eq!(app.rows().len(), 1);
    app.handle(TopInput::Key(KeyPress::Enter), at(0));
    assert!(picture(&app, 80, 24).contains("only with “안녕”"));
    app.handle(TopInput::Key(KeyPress::Escape), at(0));
    assert_eq!(app.rows().len(), 3);
}

#[test]
fn obs_4_snapshot_loads_missing_data_and_events_refresh_facts() {
    let mut app = App::new(View::Overview, false, SIZE);
    let Facts {
        workspace,
        processes,
    } = facts();
    let snapshot = json!({"workspace": workspace, "processes": processes});
    let snapshot = WatchUpdate::Snapshot(serde_json::from_value(snapshot).unwrap());
    let asked = app.handle(watch_update(0, at(0), snapshot), at(0));
    for wanted in [FeedQuery::Conversations, FeedQuery::Usage] {
        assert!(
            asked.contains(&TopEffect::Load(wanted.clone())),
            "{wanted:?}"
        );
    }
    assert_eq!(app.link, ConnectionState::Up);
    let accepted =
        || event(json!({"type": "event.accepted", "instanceKey": "main", "eventId": "e1"}));
    let facts_asked = |app: &mut App, count, ms| {
        let asked = app.handle(watch_update(count, at(ms), accepted()), at(ms));
        asked.contains(&TopEffect::Load(FeedQuery::Facts))
    };
    assert!(facts_asked(&mut app, 1, 1));
    assert!(!facts_asked(&mut app, 2, 2), "they are on their way");
    app.handle(TopInput::Facts(Box::new(facts())), at(10));
    assert!(!facts_asked(&mut app, 3, 11));
    assert!(facts_asked(&mut app, 4, 500));
}

#[test]
fn obs_4_open_page_reloads_when_its_conversation_changes() {
    let mut app = busy(View::Conversations);
    app.link = ConnectionState::Up;
    app.handle(TopInput::Key(KeyPress::Enter), at(0));
    let about = PageSubject::Transcript("main".parse().unwrap());
    app.handle(
        TopInput::Page(about.clone(), "one\ntwo\n".to_owned()),
        at(1),
    );
    assert!(picture(&app, 80, 24).contains("\ntwo\n"));
    let done = json!({"type": "turn.committed", "instanceKey": "main", "turnId": "t1", "eventId": "e1",
        "outcome": "completed"});
    let asked = app.handle(watch_update(9, at(900), event(done)), at(900));
    assert!(asked.contains(&TopEffect::Load(FeedQuery::Page(about, 80))));
}

#[test]
fn obs_4_page_wraps_to_width_and_keys_scroll_by_visible_lines() {
    let mut app = busy(View::Conversations);
    app.handle(TopInput::Key(KeyPress::Enter), at(0));
    let about = PageSubject::Transcript("main".parse().unwrap());
    let long: String = (0..60).map(|n| format!("word{n} ")).collect();
    app.handle(TopInput::Page(about.clone(), long), at(1));
    let is_whole = |app: &App, columns, rows| {
        let shown = picture(app, columns, rows);
        (0..60).all(|n| shown.contains(&format!("word{n}")))
    };
    assert!(is_whole(&app, 80, 24));
    let narrow = Size {
        columns: 30,
        rows: 12,
    };
    app.handle(TopInput::Resized(narrow), at(2));
    assert!(is_whole(&app, 30, 40), "nothing is cut off at the side");
    assert!(!picture(&app, 30, 12).contains("word0 "));
    app.handle(TopInput::Key(KeyPress::PageUp), at(3));
    app.handle(TopInput::Key(KeyPress::PageUp), at(3));
    assert!(picture(&app, 30, 12).contains("word0 "));
    app.handle(TopInput::Key(KeyPress::PageDown), at(3));
    app.handle(TopInput::Key(KeyPress::PageDown), at(3));
    assert!(picture(&app, 30, 12).contains("word59"));
}

fn any_key() -> impl Strategy<Value = KeyPress> {
    prop_oneof![
        any::<char>().prop_map(KeyPress::Char),
        proptest::sample::select("q?/ jkgGtlcry123456".chars().collect::<Vec<_>>())
            .prop_map(KeyPress::Char),
        Just(KeyPress::Enter),
        Just(KeyPress::Escape),
        Just(KeyPress::Backspace),
        Just(KeyPress::Up),
        Just(KeyPress::Down),
        Just(KeyPress::PageUp),
        Just(KeyPress::PageDown),
        Just(KeyPress::Home),
        Just(KeyPress::End),
        Just(KeyPress::NextView),
        Just(KeyPress::PreviousView),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn obs_4_any_keys_at_any_size_draw_a_frame_that_fits(
        keys in proptest::collection::vec(any_key(), 0..12),
        columns in 1..220_u16,
        rows in 1..70_u16,
    ) {
        let mut app = busy(View::Overview);
        for key in keys {
            app.handle(TopInput::Key(key), at(0));
            let shown = picture(&app, columns, rows);
            prop_assert_eq!(shown.lines().count(), usize::from(rows));
            for line in shown.lines() {
                prop_assert!(crate::output::text::width(line) <= usize::from(columns), "{}", line);
            }
            prop_assert!(!shown.contains(ESCAPE), "{}", shown);
        }
    }
}
