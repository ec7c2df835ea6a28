//! goondan's tools: a program starts their server, and its calls become events (`AGENT-2`).

use goondan_cli_agents::CliEvent;
use goondan_cli_agents::blocks::{Block, PhaseComplete};
use goondan_confinement::SandboxPolicy;
use goondan_protocol::task::AgentFormat;
use serde_json::Value;

use super::example::levels;
use super::fakes::file;
use super::run::{Run, assignment};
use crate::support::TestProject;

/// Program that starts the server it is given, and calls tools.
const CLIENT: &str = r#"
part() { printf '%s' "$GOONDAN_MCP_CONFIG" | sed "s/.*$1\"\([^\"]*\)\".*/\1/"; }
command=$(part '"command":')
directory=$(part '"--task-tools",')
printf '%s\n' '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"complete_phase","arguments":{"phase":1}}}' \
  '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"complete_phase","arguments":{"phase":-1}}}' \
  'not JSON' | "$command" --task-tools "$directory"
rm "$directory/goondan.calls"; ls -a "$directory" >&2
printf '%s\n' '{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"finish"}}' |
  "$command" --task-tools "$directory"
"#;

#[test]
fn agent_2_a_program_calls_goondans_tools_at_each_level() {
    for level in levels() {
        let site = TestProject::new();
        let mut it = assignment(&site, CLIENT);
        it.agent.sandbox = SandboxPolicy {
            require: level,
            ..SandboxPolicy::default()
        };
        let told = Run::start(&it).finish();
        let documents = Vec::new();
        let block = Block::PhaseComplete(PhaseComplete {
            phase: 1,
            documents,
        });
        let called = |event: &&CliEvent| matches!(event, CliEvent::ToolMessage(_));
        let called: Vec<&CliEvent> = told.events.iter().filter(called).collect();
        assert_eq!(called, [&CliEvent::ToolMessage(block)], "{level}: {told:?}");
        assert_eq!(told.stderr, ".\n..\n", "{level}: nothing is left");
        let lines = told.stdout.lines();
        let answers: Vec<Value> = lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let [taken, refused, invalid, unreachable] = &answers[..] else {
            panic!("{level}: {told:?}");
        };
        assert_eq!(taken["result"]["isError"], false);
        let text = |answer: &Value| answer["result"]["content"][0]["text"].to_string();
        assert!(text(refused).contains("invalid value"), "{refused}");
        assert_eq!(invalid["error"]["code"], -32700);
        let instead = text(unreachable);
        assert!(
            instead.contains("=== CUSTOM TASK COMPLETE ==="),
            "{instead}"
        );
    }
}

/// Fake `claude` that requests permission for one of goondan's tools.
const ASKING: &str = r#"
read -r prompt
echo '{"type":"control_request","request_id":"p-1","request":{"subtype":"can_use_tool","tool_name":"mcp__goondan__finish","input":{}}}'
read -r answer
printf '%s\n' "$answer" > answer
echo '{"type":"result","subtype":"success","is_error":false,"result":"Done.","session_id":"5d0c"}'
cat > rest
"#;

#[test]
fn agent_2_no_person_decides_about_a_call_of_goondans_tool() {
    let site = TestProject::new();
    let mut it = assignment(&site, ASKING);
    it.agent.format = AgentFormat::ClaudeStreamJson;
    let finished = Run::start(&it).finish();
    let asks = |event: &CliEvent| matches!(event, CliEvent::Permission(_));
    assert!(!finished.events.iter().any(asks), "{finished:?}");
    let answer: Value = serde_json::from_str(&file(&site.work, "answer")).unwrap();
    assert_eq!(answer["response"]["response"]["behavior"], "allow");
}
