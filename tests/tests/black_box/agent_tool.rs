//! An agent as a tool of another one (`IPC-2`).

use goondan_tests::home::AGENT;
use goondan_tests::processes::{self, Signal};
use goondan_tests::{Daemon, Home, wait_until};

use crate::conversation::{check, result_text, shape, text};

/// `clerk` has three tools that are `expert`: with a text, with a form, and with a short time limit.
/// `wait NAME` is work of the expert that ends when there is the note `NAME`.
const SHOP: &str = r#"
apiVersion: goondan.ai/v1
models:
  front:
    provider: scripted
    options:
      rules:
        - when: {user: '^tell (?P<what>.+)$', step: 1}
          call: [{tool: advice__ask, args: {input: "${what}"}}]
        - when: {user: '^order$', step: 1}
          call: [{tool: desk__ask, args: {book: Dune, count: 2}}]
        - when: {user: '^wrong$', step: 1}
          call: [{tool: desk__ask, args: {book: Dune, count: many}}]
        - when: {user: '^hurry$', step: 1}
          call: [{tool: express__ask, args: {input: slow}}]
        - when: {user: '^outside$', step: 1}
          call: [{tool: agents__request, args: {agent: expert, input: x}}]
        - when: {user: '^\[agent .expert. '}
          say: "later: ${input}"
        - say: "${result}"
  back:
    provider: scripted
    options:
      rules:
        - when: {user: '^wait (?P<name>\w+)$', step: 1}
          call: [{tool: bash__exec, args: {command: "until [ -e NOTES/${name} ]; do sleep 0.02; done"}}]
        - when: {user: 'slow', step: 1}
          call: [{tool: bash__exec, args: {command: "until [ -e NOTES/go ]; do sleep 0.02; done"}}]
        - say: "expert on ${input}"
tools:
  advice: {builtin: agent, config: {agent: expert}}
  desk:
    builtin: agent
    config:
      agent: Agent/expert
      description: Orders a book.
      parameters:
        type: object
        required: [book]
        properties: {book: {type: string}, count: {type: integer}}
  express: {builtin: agent, config: {agent: expert, timeoutMs: 200}}
agents:
  clerk:
    model: front
    tools: [advice, desk, express]
  expert:
    description: Knows all books.
    model: back
    tools: [bash]
entryAgent: clerk
policy: {sandbox: {write: [NOTES]}}
"#;

#[test]
fn ipc_2_an_agent_is_a_tool_of_another() {
    let home = Home::new(SHOP);
    let _daemon = Daemon::serving(&home);
    assert_eq!(home.ask("main", "tell Dune"), "expert on Dune");
    let messages = home.history("expert:main");
    assert_eq!(shape(&messages), "ua");
    assert_eq!(messages[0]["metadata"]["from"]["agent"], "clerk");

    // Arguments of an own schema are checked, and reach the agent as JSON.
    home.ask("main", "order");
    let asked = text(&home.history("expert:main")[2]);
    let asked: serde_json::Value = serde_json::from_str(&asked).unwrap();
    assert_eq!(asked, serde_json::json!({"book": "Dune", "count": 2}));
    let refused = home.ask("main", "wrong");
    assert!(refused.starts_with("E_TOOL_INVALID_ARGS"), "{refused}");

    // The tool grants nothing else.
    let outside = home.ask("main", "outside");
    assert!(outside.starts_with("E_TOOL_NOT_IN_CATALOG"), "{outside}");

    // After the time limit, the reply is a message.
    let pending = home.ask("main", "hurry");
    assert!(pending.starts_with("E_AGENT_PENDING"), "{pending}");
    home.write("notes/go", "");
    wait_until("the reply arrives", || {
        let messages = home.history("main");
        messages
            .last()
            .is_some_and(|last| text(last).starts_with("later: "))
    });
}

#[test]
fn ipc_2_a_call_of_an_agent_as_a_tool_is_made_once_over_kills() {
    let home = Home::new(SHOP);
    let daemon = Daemon::serving(&home);
    home.gdn(&["send", "--no-wait", "tell wait a"]).exits(0);
    wait_until("the expert works", || home.running(AGENT).len() == 2);
    for process in home.running(AGENT) {
        processes::signal(process.pid, Signal::SIGKILL);
    }
    drop(daemon.kill());
    let _daemon = Daemon::start(&home);
    home.write("notes/a", "");
    wait_until("it is answered", || {
        let messages = home.history("main");
        messages
            .last()
            .is_some_and(|last| text(last) == "expert on wait a")
    });
    let messages = home.history("main");
    check(&messages);
    assert_eq!(shape(&messages), "uata");
    assert_eq!(result_text(&messages[2]), "expert on wait a");
    let questions = home.history("expert:main");
    check(&questions);
    assert_eq!(shape(&questions).matches('u').count(), 1);
}
