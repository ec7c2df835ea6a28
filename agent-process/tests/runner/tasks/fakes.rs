//! Programs that imitate command-line agents.

use std::path::Path;

/// Fake `claude`: reads a prompt, requests a permission, writes its result, and hangs until its
/// input ends, or forever.
pub(super) const CLAUDE: &str = r#"
say() { printf '%s\n' "$1"; }
read -r prompt
printf '%s\n' "$prompt" > prompt
say '{"type":"system","subtype":"init","session_id":"5d0c","model":"claude-sonnet-4-5"}'
say '{"type":"assistant","message":{"id":"m1","role":"assistant","model":"claude-sonnet-4-5","content":[{"type":"text","text":"[USER_QUESTION]\nquestion: Which?\n[/USER_QUESTION]"}],"usage":{"input_tokens":2,"output_tokens":5}},"parent_tool_use_id":null,"request_id":"r1"}'
say '{"type":"control_request","request_id":"p-1","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"ls"}}}'
read -r answer
printf '%s\n' "$answer" > answer
say '{"type":"user","message":{"role":"user","content":[{"tool_use_id":"t1","type":"tool_result","content":"[USER_QUESTION]\nquestion: in a file\n[/USER_QUESTION]","is_error":false}]},"parent_tool_use_id":null}'
say '{"type":"result","subtype":"success","is_error":false,"result":"Done.","session_id":"5d0c","usage":{"input_tokens":2,"output_tokens":5}}'
cat > rest
[ "$1" = hang ] && exec sleep 1000
exit 0
"#;

/// `codex exec --json -`.
pub(super) const CODEX: &str = r#"
cat > prompt
printf '%s\n' '{"type":"thread.started","thread_id":"th-1"}' \
  '{"type":"item.completed","item":{"id":"i1","type":"agent_message","text":"Progress: 50%\nBye."}}' \
  '{"type":"turn.completed","usage":{"input_tokens":9,"cached_input_tokens":4,"output_tokens":3}}'
"#;

/// Fake agent of the Agent Client Protocol. It answers requests in order, and requests a permission
/// and a file.
pub(super) const ACP: &str = r#"
say() { printf '%s\n' "$1"; }
while read -r line; do
  printf '%s\n' "$line" >> asked
  case $line in
    *'"initialize"'*) say '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1,"agentCapabilities":{"loadSession":true},"authMethods":[]}}' ;;
    *'"session/new"'*) say '{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s-1"}}' ;;
    *'"session/load"'*)
      say '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s-0","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"played back"}}}}'
      say '{"jsonrpc":"2.0","id":1,"result":{}}' ;;
    *'"_goondan/probe"'*)
      id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
      say '{"jsonrpc":"2.0","id":'"$id"',"error":{"code":-32601,"message":"method not found"}}' ;;
    *'"session/prompt"'*)
      say '{"jsonrpc":"2.0","id":5,"method":"fs/read_text_file","params":{"sessionId":"s-1","path":"/etc/passwd"}}'
      say '{"jsonrpc":"2.0","id":"p-1","method":"session/request_permission","params":{"sessionId":"s-1","toolCall":{"toolCallId":"c1","title":"Run tests"},"options":[{"optionId":"once","name":"Allow once","kind":"allow_once"},{"optionId":"no","name":"Reject","kind":"reject_once"}]}}' ;;
    *'"optionId":"no"'*)
      say '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s-1","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Then not."}}}}'
      say '{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}' ;;
  esac
done
"#;

/// A file that a fake has written into the work area.
pub(super) fn file(work: &Path, name: &str) -> String {
    std::fs::read_to_string(work.join(name)).unwrap()
}
