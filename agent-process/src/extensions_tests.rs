//! Tests of the built-in extensions, and of the order in which a stack of extensions is entered and
//! left.

use goondan_protocol::JsonObject;
use goondan_protocol::base_package::BaseContract;
use goondan_protocol::event::{EventSource, ReplyTo};
use goondan_protocol::ids::{StepId, ToolCallId};
use goondan_protocol::limits::MAX_EXTENSION_STATE_BYTES;
use goondan_protocol::message::{Message, MessageContent, MessageRole, ToolResult};
use serde_json::{Value, json};

use super::context::KEPT;
use super::*;

const TURN: &str = "t9";

fn now() -> Timestamp {
    Timestamp::from_unix_millis(1_700_000_000_000)
}

fn definition(builtin: &str, config: Value) -> ExtensionDefinition {
    let Value::Object(config) = config else {
        panic!("settings are an object")
    };
    ExtensionDefinition {
        name: builtin.parse().unwrap(),
        source: ExtensionSource::Builtin {
            package: "@goondan/base".to_owned(),
            name: builtin.parse().unwrap(),
        },
        config,
    }
}

fn of(
    definitions: &[ExtensionDefinition],
    states: ExtensionStates,
) -> Result<Extensions, ExtensionError> {
    let (agent, key) = ("clerk".parse().unwrap(), "ann".parse().unwrap());
    Extensions::new(agent, key, definitions, states)
}

fn begin(
    extensions: &mut Extensions,
    facts: &TurnFacts,
    conversation: &mut Conversation,
) -> Vec<ExtensionOutput> {
    extensions.begin_turn(&facts.turn_id, &facts.event, &[]);
    enter(extensions, None, conversation)
}

/// Passes the layers around a turn or a step; every layer must be a built-in extension.
fn enter(
    extensions: &mut Extensions,
    step: Option<u32>,
    conversation: &mut Conversation,
) -> Vec<ExtensionOutput> {
    let scope = step.map_or(MiddlewareScope::Turn, |_| MiddlewareScope::Step);
    let mut outputs = Vec::new();
    for at in 0..extensions.depth(scope) {
        let Some(Layer::Builtin { place }) = extensions.layer(scope, at) else {
            panic!("layer {at} is not a built-in extension")
        };
        outputs.extend(extensions.enter_at(place, step, conversation, now()));
    }
    outputs
}

fn only(builtin: &str, config: Value, state: Option<Value>) -> Extensions {
    let states = state.map(|state| (builtin.parse().unwrap(), state));
    of(&[definition(builtin, config)], states.into_iter().collect()).unwrap()
}

fn event(source: &EventSource) -> AgentEvent {
    let is_agent = matches!(source, EventSource::Agent { .. });
    AgentEvent {
        input: Some("What now?".to_owned()),
        reply_to: is_agent.then(|| ReplyTo {
            target: source.clone(),
            correlation_id: None,
        }),
        ..serde_json::from_value(json!({
            "id": "e9", "type": "message", "createdAt": now(), "source": source,
        }))
        .unwrap()
    }
}

fn person() -> EventSource {
    EventSource::Connector {
        name: "cli".parse().unwrap(),
    }
}

fn facts(source: &EventSource) -> TurnFacts {
    TurnFacts {
        agent_name: "clerk".parse().unwrap(),
        instance_key: "ann".parse().unwrap(),
        turn_id: TURN.parse().unwrap(),
        event: event(source),
    }
}

fn user(id: &str) -> Message {
    Message::user(id.parse().unwrap(), now(), "text")
}

fn call(id: &str, tool: &str) -> ToolCall {
    ToolCall {
        id: ToolCallId::new(id).unwrap(),
        tool_name: tool.to_owned(),
        input: json!({}),
    }
}

fn asks(id: &str, calls: &[ToolCall]) -> Message {
    let step = StepId::new(format!("{id}-step")).unwrap();
    Message::assistant(
        id.parse().unwrap(),
        now(),
        step,
        MessageContent::assistant("", calls),
    )
}

fn result(id: &str, call: &ToolCall) -> Message {
    let result = ToolResult {
        tool_call_id: call.id.clone(),
        tool_name: call.tool_name.clone(),
        text: "ok".to_owned(),
        is_error: false,
        images: Vec::new(),
    };
    Message::tool(id.parse().unwrap(), now(), &result)
}

/// `exchanges` questions with their tool calls and answers, four messages each; then this turn's
/// question.
fn history(exchanges: usize) -> Conversation {
    let mut messages = Vec::new();
    for n in 0..exchanges {
        let call = call(&format!("c{n}"), "bash__exec");
        messages.push(user(&format!("u{n}")));
        messages.push(asks(&format!("a{n}"), std::slice::from_ref(&call)));
        messages.push(result(&format!("r{n}"), &call));
        messages.push(asks(&format!("z{n}"), &[]));
    }
    messages.push(user(&format!("{TURN}:u")));
    Conversation::from_base(messages)
}

fn ids(conversation: &Conversation) -> Vec<String> {
    let messages = conversation.messages();
    messages
        .map(|message| message.unwrap().id.to_string())
        .collect()
}

fn events(outputs: &[ExtensionOutput]) -> usize {
    outputs
        .iter()
        .filter(|output| matches!(output, ExtensionOutput::Event(_)))
        .count()
}

#[test]
fn a_window_cuts_where_an_exchange_begins_and_not_at_every_turn() {
    let mut conversation = history(10);
    let mut window = only("message-window", json!({"maxMessages": 40}), None);
    let outputs = begin(&mut window, &facts(&person()), &mut conversation);
    assert_eq!(ids(&conversation).first().unwrap(), "u3", "{outputs:?}");
    assert_eq!(events(&outputs), 12);
    let outputs = begin(&mut window, &facts(&person()), &mut conversation);
    assert_eq!(events(&outputs), 0, "it fits now");
}

#[test]
fn context_window_keeps_current_turn_and_extension_messages() {
    let mut context = Message::extension(
        "x".parse().unwrap(),
        now(),
        "context-message".parse().unwrap(),
        MessageRole::System,
        "kept",
    );
    context.metadata.insert(KEPT.to_owned(), json!(true));
    let mut conversation = Conversation::from_base(vec![context, user("u0")]);
    for n in 0..6 {
        conversation.push(asks(&format!("z{n}"), &[]));
    }
    conversation.push(user(&format!("{TURN}:u")));
    let mut window = only("message-window", json!({"maxMessages": 4}), None);
    begin(&mut window, &facts(&person()), &mut conversation);
    assert_eq!(ids(&conversation), ["x", "t9:u"]);
}

#[test]
fn ext_2_a_context_message_is_one_message_that_follows_its_text() {
    let config = json!({"text": "You are ${agentName}; today is ${date}."});
    let mut conversation = history(0);
    let mut first = only("context-message", config.clone(), None);
    let outputs = begin(&mut first, &facts(&person()), &mut conversation);
    assert_eq!(events(&outputs), 1);
    let last = conversation.messages().next_back().unwrap().unwrap();
    assert_eq!(
        last.data.content.to_text(),
        "You are clerk; today is 2023-11-14."
    );
    let state = first.changed().into_values().next().unwrap();
    first.committed();
    assert!(first.changed().is_empty(), "nothing changed since (EXT-3)");

    let mut again = only("context-message", config, Some(state.clone()));
    let outputs = begin(&mut again, &facts(&person()), &mut conversation);
    assert_eq!(events(&outputs), 0, "the text is the same");
    assert!(again.changed().is_empty());

    let mut edited = only("context-message", json!({"text": "New."}), Some(state));
    let mut later = facts(&person());
    later.turn_id = "t10".parse().unwrap();
    let outputs = begin(&mut edited, &later, &mut conversation);
    assert_eq!(events(&outputs), 1);
    let texts: Vec<String> = conversation
        .messages()
        .map(|message| message.unwrap().data.content.to_text())
        .collect();
    assert_eq!(texts, ["text", "New."]);
}

#[test]
fn compat_1_context_message_describes_the_event_and_its_caller() {
    let config = json!({"text": "${inbound}\n${call}"});
    let mut conversation = history(0);
    let mut extensions = only("context-message", config.clone(), None);
    let mut asked = facts(&person());
    let of_event = |facts: &TurnFacts| {
        let AgentEvent {
            id,
            kind,
            created_at,
            ..
        } = &facts.event;
        (id.to_string(), kind.clone(), created_at.to_string())
    };
    let text = |conversation: &Conversation| {
        let last = conversation.messages().next_back().unwrap().unwrap();
        last.data.content.to_text()
    };
    asked
        .event
        .properties
        .insert("chat_id".to_owned(), json!("${call}"));
    begin(&mut extensions, &asked, &mut conversation);
    let (id, kind, at) = of_event(&asked);
    let described = text(&conversation);
    assert!(
        described.starts_with(&format!("Event `{kind}` ({id}) from connection `")),
        "{described}"
    );
    assert!(
        described.contains(&format!(
            " at {at}.\nIts properties: {{\"chat_id\":\"${{call}}\"}}"
        )),
        "{described}"
    );
    let state = extensions.changed().into_values().next().unwrap();
    let mut called = facts(&EventSource::Agent {
        name: "boss".parse().unwrap(),
        instance_key: "main".parse().unwrap(),
    });
    called.turn_id = "t10".parse().unwrap();
    let mut extensions = only("context-message", config, Some(state));
    begin(&mut extensions, &called, &mut conversation);
    let described = text(&conversation);
    assert!(
        described.contains("The agent `boss` calls you from its conversation `main`"),
        "{described}"
    );
    // Without a caller, a message that only describes it disappears.
    let state = extensions.changed().into_values().next().unwrap();
    let mut only_call = only("context-message", json!({"text": "${call}"}), Some(state));
    let mut later = facts(&person());
    later.turn_id = "t11".parse().unwrap();
    let outputs = begin(&mut only_call, &later, &mut conversation);
    assert_eq!(events(&outputs), 1);
    assert!(!text(&conversation).contains("calls you"));
}

#[test]
fn a_turn_that_begins_again_after_a_crash_appends_nothing_twice() {
    let config = json!({"text": "Be brief."});
    let mut conversation = history(1);
    for _ in 0..2 {
        let mut extensions = only("context-message", config.clone(), None);
        begin(&mut extensions, &facts(&person()), &mut conversation);
        assert_eq!(extensions.changed().len(), 1);
    }
    assert_eq!(conversation.len(), 6);
}

#[test]
fn agent_asked_by_another_gets_the_requester_in_its_prompt() {
    let mut extensions = only("inter-agent-response-format", json!({}), None);
    let mut conversation = history(0);
    let outputs = begin(&mut extensions, &facts(&person()), &mut conversation);
    assert_eq!(events(&outputs), 0);
    let requester = EventSource::Agent {
        name: "boss".parse().unwrap(),
        instance_key: "ann".parse().unwrap(),
    };
    begin(&mut extensions, &facts(&requester), &mut conversation);
    let last = conversation.messages().next_back().unwrap().unwrap();
    assert!(last.data.content.to_text().contains("`boss`"));
}

#[test]
fn a_required_tool_is_asked_for_and_then_insisted_on() {
    let config = json!({"tools": ["bash__exec"], "maxReminders": 1});
    let mut guard = only("required-tools-guard", config, None);
    let mut conversation = history(1);
    begin(&mut guard, &facts(&person()), &mut conversation);
    let mut reply = "Done.".to_owned();
    let (ending, outputs) = guard.end_turn(1, &mut reply, &mut conversation, now());
    assert_eq!((ending, events(&outputs)), (TurnEndDecision::GoOn, 1));
    let last = conversation.messages().next_back().unwrap().unwrap();
    assert_eq!(
        last.data.role,
        MessageRole::User,
        "models cannot continue their own message"
    );
    let reminded = conversation.len();
    drop(last);
    let (ending, _) = guard.end_turn(2, &mut reply, &mut conversation, now());
    assert!(matches!(
        ending,
        TurnEndDecision::Refuse {
            code: "E_REQUIRED_TOOLS",
            ..
        }
    ));
    assert_eq!(
        conversation.len(),
        reminded - 1,
        "a reminder is for its turn only"
    );
    let (ending, _) = guard.end_turn(2, &mut reply, &mut conversation, now());
    assert_eq!(ending, TurnEndDecision::GoOn);
    let call = call("c", "bash__exec");
    conversation.push(asks(&format!("{TURN}.2:a"), &[call]));
    let (ending, outputs) = guard.end_turn(3, &mut reply, &mut conversation, now());
    assert_eq!((ending, events(&outputs)), (TurnEndDecision::Accept, 1));
    assert_eq!(
        conversation.len(),
        reminded,
        "the call took the reminder's place"
    );
}

#[test]
fn calls_and_results_are_paired_again() {
    let (lost, kept) = (call("lost", "bash__exec"), call("kept", "wait__for"));
    let nobody = call("nobody", "wait__for");
    let mut conversation = Conversation::from_base(vec![
        user("u"),
        asks("a", &[lost, kept.clone()]),
        result("r", &kept),
        result("orphan", &nobody),
    ]);
    let mut integrity = only("message-integrity", json!({}), None);
    begin(&mut integrity, &facts(&person()), &mut conversation);
    let outputs = enter(&mut integrity, Some(1), &mut conversation);
    assert_eq!(events(&outputs), 2);
    assert_eq!(ids(&conversation), ["u", "a", "r"]);
    let mended = conversation
        .messages()
        .nth(1)
        .unwrap()
        .unwrap()
        .into_owned();
    assert_eq!(mended.data.content.tool_calls(), [kept]);
    assert!(
        mended
            .data
            .content
            .to_text()
            .contains("`bash__exec` has no result")
    );
    let outputs = enter(&mut integrity, Some(2), &mut conversation);
    assert_eq!(outputs, [], "nothing is left to mend");
}

#[test]
fn ext_4_oversized_extension_state_is_reported_and_not_stored() {
    let mut state = None;
    let (name, turn) = ("notes".parse().unwrap(), facts(&person()));
    let conversation = Conversation::default();
    let mut context = ExtensionContext {
        turn: &turn,
        now: now(),
        conversation: &conversation,
        name: &name,
        state: &mut state,
        place: "x0b",
        appended: 0,
        events: Vec::new(),
        lines: Vec::new(),
    };
    context.set_state(json!("x".repeat(MAX_EXTENSION_STATE_BYTES)));
    assert!(context.state().is_none() && context.lines.len() == 1);
    context.set_state(json!({"n": 1}));
    assert_eq!(context.state(), Some(&json!({"n": 1})));
}

#[test]
fn the_stack_is_entered_in_order_and_left_in_reverse() {
    let mut outer = definition("logging", json!({}));
    outer.name = "outer".parse().unwrap();
    let mut inner = definition("logging", json!({"content": true}));
    inner.name = "inner".parse().unwrap();
    let mut extensions = of(&[outer, inner], ExtensionStates::new()).unwrap();
    let who = |outputs: Vec<ExtensionOutput>| -> Vec<String> {
        outputs
            .into_iter()
            .filter_map(|output| match output {
                ExtensionOutput::Line(name, _) => Some(name.to_string()),
                ExtensionOutput::Event(_) | ExtensionOutput::Missing(_) => None,
            })
            .collect()
    };
    let mut conversation = history(0);
    let begun = begin(&mut extensions, &facts(&person()), &mut conversation);
    assert_eq!(who(begun), ["outer", "inner"]);
    let mut reply = String::new();
    let (_, ended) = extensions.end_turn(1, &mut reply, &mut conversation, now());
    assert_eq!(who(ended), ["inner", "outer"]);
}

#[test]
fn invalid_extension_settings_fail_with_the_extension_name() {
    let unknown = definition("message-window", Value::Object(JsonObject::new()));
    let error = of(&[unknown], ExtensionStates::new()).unwrap_err();
    assert!(error.to_string().contains("message-window"));
}

fn finding(id: &str, names: &[&str]) -> Message {
    let tools: Vec<Value> = names
        .iter()
        .map(|name| json!({"name": name, "description": ""}))
        .collect();
    let result = ToolResult {
        tool_call_id: ToolCallId::new(id).unwrap(),
        tool_name: "tool-search__find".to_owned(),
        text: json!({"tools": tools, "more": 0}).to_string(),
        is_error: false,
        images: Vec::new(),
    };
    Message::tool(format!("{TURN}.1:{id}").parse().unwrap(), now(), &result)
}

#[test]
fn ext_2_found_tools_are_offered_from_the_next_step_and_kept() {
    let config = json!({"alwaysOffered": ["wait__for"]});
    let mut search = only("tool-search", config.clone(), None);
    let mut conversation = history(1);
    begin(&mut search, &facts(&person()), &mut conversation);
    let offers = |search: &Extensions, names: &[&str]| -> Vec<bool> {
        names
            .iter()
            .map(|name| search.why_not_offered(name).is_none())
            .collect()
    };
    let all = ["tool-search__find", "wait__for", "a__b", "c__d"];
    assert_eq!(offers(&search, &all), [true, true, false, false]);
    let refused = search.why_not_offered("a__b").unwrap();
    assert!(refused.starts_with("`a__b` is not among"), "{refused}");

    conversation.push(finding("r0", &["a__b"]));
    enter(&mut search, Some(2), &mut conversation);
    assert_eq!(offers(&search, &all), [true, true, true, false]);
    let state = search.changed().into_values().next().unwrap();
    search.committed();
    enter(&mut search, Some(3), &mut conversation);
    assert!(search.changed().is_empty(), "nothing new (EXT-3)");

    // Another process with another turn, and one that resumes this turn without the state.
    let mut later = only("tool-search", config.clone(), Some(state));
    begin(&mut later, &facts(&person()), &mut history(1));
    assert_eq!(offers(&later, &all), [true, true, true, false]);
    let mut resumed = only("tool-search", config, None);
    begin(&mut resumed, &facts(&person()), &mut conversation);
    assert_eq!(offers(&resumed, &all), [true, true, true, false]);
}

#[test]
fn compat_2_all_tools_are_offered_until_a_search_finds_some() {
    let offered = |search: &Extensions| -> Vec<bool> {
        let names = ["tool-search__find", "a__b", "c__d"];
        let hidden = names.map(|name| search.why_not_offered(name));
        hidden.iter().map(Option::is_none).collect()
    };
    let older = |config: Value, state: Option<Value>| {
        only("tool-search", config, state).with_contract(BaseContract::V0_0_3)
    };
    let mut search = older(json!({}), None);
    let mut conversation = history(1);
    begin(&mut search, &facts(&person()), &mut conversation);
    assert_eq!(offered(&search), [true, true, true]);
    conversation.push(finding("r0", &["a__b"]));
    enter(&mut search, Some(2), &mut conversation);
    assert_eq!(offered(&search), [true, true, false]);
    // A search replaces the findings of the previous one.
    conversation.push(finding("r1", &["c__d"]));
    enter(&mut search, Some(3), &mut conversation);
    assert_eq!(offered(&search), [true, false, true]);
    let state = search.changed().into_values().next();
    let mut later = older(json!({}), state);
    begin(&mut later, &facts(&person()), &mut history(1));
    assert_eq!(offered(&later), [true, false, true]);
    conversation.push(finding("r2", &[]));
    enter(&mut search, Some(4), &mut conversation);
    assert_eq!(offered(&search), [true, true, true]);
    // Findings that are not kept limited nothing.
    let mut unkept = older(json!({"persistSelection": false}), None);
    conversation.push(finding("r3", &["a__b"]));
    begin(&mut unkept, &facts(&person()), &mut conversation);
    assert_eq!(offered(&unkept), [true, true, true]);
}

#[test]
fn only_the_most_recently_found_tools_stay_offered() {
    let mut search = only("tool-search", json!({}), None);
    let mut conversation = history(0);
    for n in 0..70 {
        conversation.push(finding(&format!("r{n}"), &[&format!("a__n{n}")]));
    }
    conversation.push(finding("r70", &["a__n7"]));
    begin(&mut search, &facts(&person()), &mut conversation);
    let offered = (0..70)
        .filter(|n| search.why_not_offered(&format!("a__n{n}")).is_none())
        .count();
    assert_eq!(offered, 64);
    let is_offered = |name| search.why_not_offered(name).is_none();
    assert!(is_offered("a__n7") && is_offered("a__n69") && !is_offered("a__n5"));
}
