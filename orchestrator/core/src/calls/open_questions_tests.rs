//! Tests of open questions: their end, their time, and their limits.

use goondan_protocol::time::Timestamp;
use serde_json::json;

use super::*;

/// A question of the call `call` by the connection `connection`, asked at `asked_ms` with a timeout
/// of one second.
fn question(id: &str, connection: &str, call: u64, asked_ms: u64) -> OpenQuestion {
    let at = Timestamp::from_unix_millis(0);
    OpenQuestion {
        info: QuestionInfo {
            workspace_id: "w".parse().unwrap(),
            question_id: id.parse().unwrap(),
            source: QuestionSource::Mcp {
                connection: connection.parse().unwrap(),
                tool: None,
            },
            instance_key: "main".parse().unwrap(),
            agent_name: "clerk".parse().unwrap(),
            turn_id: None,
            tool_call_id: None,
            message: "Which?".to_owned(),
            asked_at: at,
            expires_at: at,
        },
        form: QuestionForm::default(),
        call_id: CallId(call),
        requester: ChildRequest {
            process: ProcessId(1),
            request_id: Some(call),
        },
        step_id: None,
        trace: None,
        asked_ms,
        due_ms: asked_ms + 1_000,
    }
}

fn room(questions: &Questions, connection: &str, call: u64) -> Result<(), String> {
    let (id, connection) = ("w".parse().unwrap(), connection.parse().unwrap());
    questions.has_room(&id, &connection, CallId(call))
}

fn id(text: &str) -> QuestionId {
    text.parse().unwrap()
}

#[test]
fn question_closes_once_and_its_call_learns_how_long_it_waited() {
    let mut questions = Questions::default();
    questions.ask(question("a", "kit", 1, 100));
    assert!(questions.holds(CallId(1)) && !questions.holds(CallId(2)));
    let closed = questions.close(&id("a"), 350).unwrap();
    assert_eq!((closed.waited_ms, closed.held_ms), (250, Some(250)));
    assert!(questions.close(&id("a"), 400).is_none());
    assert!(!questions.holds(CallId(1)) && questions.is_empty());
}

#[test]
fn overlapping_questions_pause_their_call_while_any_is_open() {
    let mut questions = Questions::default();
    questions.ask(question("a", "kit", 1, 100));
    questions.ask(question("b", "kit", 1, 300));
    let first = questions.close(&id("a"), 400).unwrap();
    assert_eq!((first.waited_ms, first.held_ms), (300, None));
    assert!(questions.holds(CallId(1)));
    let last = questions.close(&id("b"), 900).unwrap();
    assert_eq!((last.waited_ms, last.held_ms), (600, Some(800)));
    // The time between the two questions does not count.
    questions.ask(question("c", "kit", 1, 2_000));
    assert_eq!(questions.close(&id("c"), 2_010).unwrap().held_ms, Some(10));
}

#[test]
fn a_question_is_due_when_its_time_is_up_and_no_sooner() {
    let mut questions = Questions::default();
    questions.ask(question("a", "kit", 1, 100));
    questions.ask(question("b", "kit", 2, 500));
    assert!(questions.due(1_099).is_empty());
    assert_eq!(questions.due(1_100), [id("a")]);
    assert_eq!(questions.due(9_999), [id("a"), id("b")]);
}

#[test]
fn each_question_limit_is_reported_by_name() {
    let mut questions = Questions::default();
    for n in 0..MAX_QUESTIONS_PER_CONNECTION as u64 {
        assert_eq!(room(&questions, "kit", n), Ok(()));
        questions.ask(question(&format!("kit-{n}"), "kit", n, 0));
    }
    assert!(
        room(&questions, "kit", 99)
            .unwrap_err()
            .contains("this connection already")
    );
    assert_eq!(room(&questions, "other", 99), Ok(()));
    for n in 100..100 + (QUESTIONS_OPEN_MAX - MAX_QUESTIONS_PER_CONNECTION) as u64 {
        questions.ask(question(&format!("q-{n}"), &format!("c{n}"), n, 0));
    }
    let error = room(&questions, "other", 99).unwrap_err();
    assert!(error.contains(&QUESTIONS_OPEN_MAX.to_string()), "{error}");
}

#[test]
fn questions_of_a_call_count_until_the_call_ends() {
    let mut questions = Questions::default();
    for _ in 0..QUESTIONS_PER_CALL_MAX {
        assert_eq!(room(&questions, "kit", 1), Ok(()));
        questions.ask(question("a", "kit", 1, 0));
        questions.close(&id("a"), 1);
    }
    assert!(
        room(&questions, "kit", 1)
            .unwrap_err()
            .contains("a call can ask")
    );
    questions.forget_calls(|_| true);
    assert!(room(&questions, "kit", 1).is_err());
    questions.forget_calls(|_| false);
    assert_eq!(room(&questions, "kit", 1), Ok(()));
}

#[test]
fn question_is_found_by_id_requester_and_conversation() {
    let mut questions = Questions::default();
    questions.ask(question("a", "kit", 1, 0));
    let (here, there) = ("w".parse().unwrap(), "v".parse().unwrap());
    assert!(questions.get(&here, &id("a")).is_some());
    assert!(questions.get(&there, &id("a")).is_none());
    assert!(questions.is_free(&id("b")) && !questions.is_free(&id("a")));
    assert_eq!(questions.asked_as(ProcessId(1), 1), Some(id("a")));
    assert_eq!(questions.asked_as(ProcessId(2), 1), None);
    let at = questions.get(&here, &id("a")).unwrap().at();
    assert_eq!(questions.of_instance(&at), [id("a")]);
    assert_eq!(questions.all(Some(&there)).count(), 0);
}

#[test]
fn question_with_bad_text_or_form_is_refused() {
    let ask = |message: &str, schema: serde_json::Value| {
        judged(&QuestionAsk {
            call_id: CallId(1),
            message: message.to_owned(),
            schema,
            timeout_ms: u64::MAX,
        })
    };
    let flat = json!({"type": "object", "properties": {"f": {"type": "boolean"}}});
    let (form, wait_ms) = ask("Which?", flat.clone()).unwrap();
    assert_eq!((form.fields().len(), wait_ms), (1, MAX_QUESTION_TIMEOUT_MS));
    assert!(
        ask(" \n", flat.clone())
            .unwrap_err()
            .contains("needs a `message`")
    );
    let long = "x".repeat(MAX_QUESTION_TEXT_BYTES + 1);
    assert!(ask(&long, flat).unwrap_err().contains("at most 4096"));
    let nested = json!({"type": "object", "properties": {"f": {"type": "object"}}});
    let error = ask("Which?", nested).unwrap_err();
    assert!(error.contains("field `f`"), "{error}");
}
