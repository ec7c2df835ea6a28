//! Goal: `gdn top` shows and does the right thing for any update, key and terminal size, without a terminal.
//! Method: frames as text; each action by its keys; random sizes and keys.

use goondan_protocol::control::{
    InstanceSummary, InstancesPage, WatchCursor, WatchUpdate, WorkspaceChange,
};
use goondan_protocol::lifecycle::LifecycleEvent as Event;
use goondan_protocol::time::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::app::{App, ConnectionState, Mode};
use super::board::Facts;
use super::draw::{RenderContext, as_text};
use super::input::{
    Act, FeedQuery, ItemDecision, KeyPress, PageSubject, Size, TopEffect, TopInput,
};
use super::view::{Scope, View};
use crate::commands::inbox::decisions::{Choice, EnteredText};
use crate::commands::inbox::details::Subject;
use crate::commands::inbox::{Inbox, InboxItem, Target};
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
        workspaces: vec![serde_json::from_value(workspace).unwrap()],
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

/// A call of a conversation, and an event of another workspace's.
fn inbox() -> Inbox {
    let item = |kind, workspace: &str, key: &str, id: &str, target| InboxItem {
        kind,
        workspace_id: workspace.parse().unwrap(),
        id: id.to_owned(),
        conversation: Some(key.parse().unwrap()),
        from: Some("clerk".to_owned()),
        since: Some(at(-65_000)),
        until: None,
        subject: format!("{kind} \u{1b}[2J of {id}, which does not fit on a line of 80 columns"),
        default: "it waits",
        commands: Vec::new(),
        target,
    };
    let call = Target::Approval("a-1".parse().unwrap());
    let event = Target::ParkedEvent("other".parse().unwrap(), "e-1".parse().unwrap());
    Inbox {
        items: vec![
            item("approval", "w", "main", "a-1", call),
            item("parkedEvent", "w2", "other", "e-1", event),
        ],
        failures: Vec::new(),
    }
}

/// A project with much activity.
fn busy(view: View) -> App {
    let mut app = App::new(Scope::Project, view, false, SIZE);
    app.handle(TopInput::Facts(Box::new(facts())), at(-9_000));
    let conversations = vec![
        conversation("main", -4_000),
        conversation("cust\u{1b}[2Jomer", -70_000),
        conversation("안녕 🦀", -86_400_000),
    ];
    app.handle(page(conversations), at(-9_000));
    app.handle(TopInput::Inbox(Box::new(inbox())), at(-9_000));
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
    for view in Scope::Project.views().iter().copied() {
        insta::assert_snapshot!(format!("{}_80x24", view.title()), shown(view, 80, 24));
    }
}

#[test]
fn obs_4_the_views_at_200_by_60() {
    for view in Scope::Project.views().iter().copied() {
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

fn enter(app: &mut App, text: &str) -> Vec<TopEffect> {
    press(app, text);
    app.handle(TopInput::Key(KeyPress::Enter), at(0))
}

/// The page of the item that the last key opened, and the reply to its query.
fn answer_item(app: &mut App, item: &InboxItem, subject: &Subject) {
    let text = "bash__exec\nmake release\n".repeat(10);
    let (item, subject) = (Box::new(item.clone()), Box::new(subject.clone()));
    app.handle(TopInput::Item(item, text, subject), at(0));
}

fn query_of(item: &InboxItem) -> [TopEffect; 1] {
    let about = PageSubject::Item(Box::new(item.clone()));
    [TopEffect::Load(FeedQuery::Page(about, 80))]
}

fn call_subject() -> Subject {
    let detail = json!({
        "approval": {
            "workspaceId": "w", "approvalId": "a-1", "instanceKey": "main",
            "agentName": "clerk", "turnId": "t", "stepId": "t.1", "toolCallId": "c1",
            "toolName": "bash__exec", "summary": "…", "askedAt": "2026-01-01T00:00:00.000Z",
        },
        "input": {"command": "make"},
        "schema": {"properties": {"timeoutMs": {"type": "integer"}}},
    });
    Subject::Call(Box::new(serde_json::from_value(detail).unwrap()))
}

#[test]
fn need_1_an_item_is_decided_with_the_keys_of_the_inbox() {
    let mut app = busy(View::Inbox);
    let items = inbox().items;
    let (call, parked) = (&items[0], &items[1]);
    // The first key only shows the item.
    assert_eq!(press(&mut app, "y"), query_of(call));
    assert_eq!(press(&mut app, "y"), [], "it is not shown yet");
    let subject = call_subject();
    answer_item(&mut app, call, &subject);
    let shown = picture(&app, 80, 24);
    assert!(shown.contains("Needs a person\nbash__exec\n"), "{shown}");
    let keys = "y approve  n deny  e edit  a always  s skip  Esc back  q quit\n";
    assert!(shown.ends_with(keys), "{shown}");
    let decision = |choice, entered: EnteredText| {
        [TopEffect::Act(Act::Decide(Box::new(ItemDecision {
            item: call.clone(),
            subject: subject.clone(),
            choice,
            entered,
        })))]
    };

    // With a reason, a scope, and a changed argument, which must fit.
    press(&mut app, "n");
    assert!(picture(&app, 80, 24).contains("Reason (optional): ▏"));
    let text = "too early".to_owned();
    let denied = decision(
        Choice::No,
        EnteredText {
            text,
            ..EnteredText::default()
        },
    );
    assert_eq!(enter(&mut app, "too early"), denied);
    assert_eq!(press(&mut app, "y"), [], "a decision is being carried out");
    let refused = Err("the daemon is stopping".to_owned());
    app.handle(TopInput::Decided(Box::new(call.clone()), refused), at(0));
    assert!(picture(&app, 80, 24).ends_with("the daemon is stopping\n"));
    press(&mut app, "a");
    let shown = picture(&app, 80, 24);
    assert!(
        shown.contains("From now on, bash__exec of clerk runs"),
        "{shown}"
    );
    assert_eq!(enter(&mut app, ""), [], "canceled");
    press(&mut app, "e");
    assert_eq!(enter(&mut app, "timeoutMs=soon"), []);
    let shown = picture(&app, 80, 24);
    assert!(shown.contains("takes JSON of the type integer"), "{shown}");
    assert_eq!(enter(&mut app, "timeoutMs=5"), []);
    let input = Some(json!({"command": "make", "timeoutMs": 5}));
    let changed = decision(
        Choice::Edit,
        EnteredText {
            input,
            ..EnteredText::default()
        },
    );
    assert_eq!(enter(&mut app, ""), changed);
    let done = Ok("Approved a-1 with changed arguments.".to_owned());
    app.handle(TopInput::Decided(Box::new(call.clone()), done), at(0));
    assert!(picture(&app, 80, 24).ends_with("Approved a-1 with changed arguments.\n"));

    // The next item; meanwhile another person decides it.
    app.handle(TopInput::Key(KeyPress::Enter), at(0));
    assert_eq!(press(&mut app, "s"), query_of(parked));
    answer_item(&mut app, parked, &Subject::Other);
    assert!(picture(&app, 80, 24).ends_with("y retry  n drop  s skip  Esc back  q quit\n"));
    app.handle(TopInput::Inbox(Box::default()), at(0));
    let shown = picture(&app, 80, 24);
    assert!(shown.ends_with("e-1 no longer needs you.\n"), "{shown}");
    assert!(shown.contains("nothing needs you"), "{shown}");
}

#[test]
fn need_1_the_oldest_item_of_a_conversation_opens_with_a_key() {
    let mut app = busy(View::Conversations);
    assert_eq!(press(&mut app, "a"), query_of(&inbox().items[0]));
    press(&mut app, "s");
    app.handle(TopInput::Key(KeyPress::Escape), at(0));
    press(&mut app, "G");
    assert_eq!(press(&mut app, "a"), []);
    assert!(picture(&app, 80, 24).ends_with("Nothing of 안녕 🦀 needs a person.\n"));
    assert!(picture(&app, 80, 24).contains("2 need you"));
}

#[test]
fn need_1_all_workspaces_have_their_inbox_and_processes() {
    let mut app = App::new(Scope::All, View::Inbox, false, SIZE);
    assert_eq!(
        app.handle(TopInput::Connected, at(0)),
        [TopEffect::Load(FeedQuery::Facts)]
    );
    app.handle(TopInput::Facts(Box::new(facts())), at(0));
    let failures = vec!["the ledger cannot be read".to_owned()];
    let inbox = Inbox {
        failures,
        ..inbox()
    };
    app.handle(TopInput::Inbox(Box::new(inbox)), at(0));
    let local = crate::output::text::clock(at(0));
    let local = local.split_once(' ').unwrap().1.to_owned();
    let frame = |app: &App| picture(app, 80, 24).replace(&local, "[time]  ");
    insta::assert_snapshot!("all_inbox_80x24", frame(&app));
    press(&mut app, "2");
    insta::assert_snapshot!("all_processes_80x24", frame(&app));
    assert_eq!(press(&mut app, "c"), []);
    assert_eq!(
        app.mode,
        Mode::Look,
        "the project of a row is not the one of the keys"
    );
}

#[test]
fn obs_4_nothing_is_changed_where_a_person_only_wants_to_look() {
    let mut app = busy(View::Conversations);
    app.is_read_only = true;
    assert_eq!(press(&mut app, "cyry"), []);
    assert!(!picture(&app, 80, 24).contains("c cancel"));
    let call = &inbox().items[0];
    assert_eq!(press(&mut app, "a"), query_of(call));
    answer_item(&mut app, call, &call_subject());
    assert!(!picture(&app, 80, 24).contains("y approve"));
    assert_eq!(press(&mut app, "y"), []);
    assert!(picture(&app, 80, 24).ends_with("Changes are disabled by --read-only.\n"));
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
    let mut app = App::new(Scope::Project, View::Overview, false, SIZE);
    let Facts {
        workspaces,
        processes,
    } = facts();
    let snapshot = json!({"workspace": workspaces[0], "processes": processes});
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
        proptest::sample::select("q?/ jkgGtlcryneas1234567".chars().collect::<Vec<_>>())
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
