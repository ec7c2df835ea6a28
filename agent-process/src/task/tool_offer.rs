//! Passes goondan's tools to a program, by the means that its preset supports (`AGENT-2`). Pure.

use std::path::Path;

use goondan_cli_agents::tools::{SERVER, ToolServer};
use goondan_protocol::task::{MCP_CONFIG_VARIABLE, SANDBOX_PROPOSAL, TaskAssignment, ToolsBy};
use serde_json::{Value, json};

use crate::tools::tool_supervisor::task::calls::TOOL_SERVER;
use crate::tools::tool_supervisor::task::wire::Launch;

/// Variable with the configuration of `opencode`, as JSON.
const OPENCODE_CONFIG: &str = "OPENCODE_CONFIG_CONTENT";

/// The server of the tools, and the way in which the program is given it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Offer {
    server: ToolServer,
    by: ToolsBy,
}

impl Offer {
    /// The offer for a run, whose server is a mode of `executable` and finds its pipes in
    /// `directory`. `None` for other runs than the agent's.
    pub(super) fn of(
        assignment: &TaskAssignment,
        executable: &Path,
        directory: &Path,
    ) -> Option<Self> {
        if !assignment.kind.is_agent() {
            return None;
        }
        let mut arguments = vec![TOOL_SERVER.to_owned(), directory.to_str()?.to_owned()];
        if let Some(sandbox) = &assignment.sandbox {
            arguments.push(sandbox.join(SANDBOX_PROPOSAL).to_str()?.to_owned());
        }
        Some(Self {
            server: ToolServer {
                program: executable.to_str()?.to_owned(),
                arguments,
            },
            by: assignment.agent.tools,
        })
    }

    /// The server for the session, if the program is given it there.
    pub(super) fn of_session(&self) -> Option<&ToolServer> {
        (self.by == ToolsBy::AcpSession).then_some(&self.server)
    }

    /// Adds the tools to the command and the environment of the program.
    pub(super) fn add_to(&self, launch: &mut Launch) {
        let ToolServer { program, arguments } = &self.server;
        let config = |entry: Value| json!({"mcpServers": {SERVER: entry}}).to_string();
        let usual = config(json!({"command": program, "args": arguments}));
        let words = match self.by {
            ToolsBy::Variable | ToolsBy::AcpSession => Vec::new(),
            ToolsBy::ClaudeArguments => {
                let allowed = format!("mcp__{SERVER}");
                ["--mcp-config", &usual, "--allowedTools", &allowed]
                    .map(str::to_owned)
                    .to_vec()
            }
            ToolsBy::CodexArguments => {
                // JSON strings and lists of strings are valid TOML.
                let command = format!("mcp_servers.{SERVER}.command={}", json!(program));
                let arguments = format!("mcp_servers.{SERVER}.args={}", json!(arguments));
                vec!["-c".to_owned(), command, "-c".to_owned(), arguments]
            }
            ToolsBy::QwenArguments => {
                let entry = json!({
                    "command": program,
                    "args": arguments,
                    // The program asks no person about these tools, and does not hide them until
                    // the agent searches for them.
                    "trust": true,
                    "alwaysLoadTools": true,
                });
                vec!["--mcp-config".to_owned(), config(entry)]
            }
            ToolsBy::OpencodeVariable => {
                let command: Vec<&String> = [program].into_iter().chain(arguments).collect();
                let entry = json!({"type": "local", "command": command, "enabled": true});
                let written = launch.environment.get(OPENCODE_CONFIG).map(String::as_str);
                if let Some(merged) = merged(written, &entry) {
                    let name = OPENCODE_CONFIG.to_owned();
                    launch.environment.insert(name, merged);
                }
                Vec::new()
            }
        };
        let at = launch.words.len().min(1);
        launch.words.splice(at..at, words);
        let name = MCP_CONFIG_VARIABLE.to_owned();
        launch.environment.insert(name, usual);
    }
}

/// The configuration of `opencode` with the server in it. `None` if the user's own is no object:
/// the program reports that better.
fn merged(written: Option<&str>, entry: &Value) -> Option<String> {
    let mut config: Value = serde_json::from_str(written.unwrap_or("{}")).ok()?;
    let servers = config.as_object_mut()?.entry("mcp").or_insert(json!({}));
    servers
        .as_object_mut()?
        .insert(SERVER.to_owned(), entry.clone());
    Some(config.to_string())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use goondan_protocol::task::{AgentFormat, PromptChannel, TaskRunKind};

    use super::super::launch::launch_of;
    use super::super::launch::tests::assignment;
    use super::*;

    fn offered(it: &TaskAssignment) -> Launch {
        let offer = Offer::of(it, Path::new("/opt/a b/agent"), Path::new("/w/.cache")).unwrap();
        let mut launch = launch_of(it).unwrap();
        offer.add_to(&mut launch);
        launch
    }

    fn parsed(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn agent_2_each_program_is_given_the_tools_in_its_own_way() {
        let mut it = assignment(AgentFormat::Plain, PromptChannel::Stdin);
        let usual = json!({"mcpServers": {"goondan": {"command": "/opt/a b/agent", "args": ["--task-tools", "/w/.cache"]}}});
        for (by, added) in [
            (ToolsBy::Variable, 0),
            (ToolsBy::AcpSession, 0),
            (ToolsBy::OpencodeVariable, 0),
            (ToolsBy::ClaudeArguments, 4),
            (ToolsBy::CodexArguments, 4),
            (ToolsBy::QwenArguments, 2),
        ] {
            it.agent.tools = by;
            let before = launch_of(&it).unwrap().words;
            let launch = offered(&it);
            assert_eq!(launch.words.len(), before.len() + added, "{by:?}");
            assert_eq!(launch.words[0], before[0]);
            assert_eq!(launch.words[1 + added..], before[1..]);
            assert_eq!(parsed(&launch.environment[MCP_CONFIG_VARIABLE]), usual);
            let words = &launch.words;
            match by {
                ToolsBy::ClaudeArguments => {
                    assert_eq!(
                        (&*words[1], parsed(&words[2])),
                        ("--mcp-config", usual.clone())
                    );
                    assert_eq!(words[3..5], ["--allowedTools", "mcp__goondan"]);
                }
                ToolsBy::CodexArguments => {
                    assert_eq!(words[2], r#"mcp_servers.goondan.command="/opt/a b/agent""#);
                    assert_eq!(
                        words[4],
                        r#"mcp_servers.goondan.args=["--task-tools","/w/.cache"]"#
                    );
                }
                ToolsBy::QwenArguments => {
                    assert_eq!(parsed(&words[2])["mcpServers"]["goondan"]["trust"], true);
                }
                _ => {}
            }
            let offer = Offer::of(&it, Path::new("/a"), Path::new("/w")).unwrap();
            assert_eq!(offer.of_session().is_some(), by == ToolsBy::AcpSession);
        }
    }

    #[test]
    fn agent_2_opencode_configuration_keeps_its_existing_content() {
        let mut it = assignment(AgentFormat::OpencodeJson, PromptChannel::Argument);
        it.agent.tools = ToolsBy::OpencodeVariable;
        let config = |it: &TaskAssignment| parsed(&offered(it).environment[OPENCODE_CONFIG]);
        assert_eq!(
            config(&it)["mcp"]["goondan"]["command"][0],
            "/opt/a b/agent"
        );
        let own = r#"{"model": "m", "mcp": {"docs": {"type": "local"}}}"#;
        it.agent
            .environment
            .insert(OPENCODE_CONFIG.to_owned(), own.to_owned());
        let merged = config(&it);
        assert_eq!(
            (&merged["model"], &merged["mcp"]["docs"]["type"]),
            (&json!("m"), &json!("local"))
        );
        assert_eq!(merged["mcp"]["goondan"]["type"], "local");
        it.agent
            .environment
            .insert(OPENCODE_CONFIG.to_owned(), "not JSON".to_owned());
        assert_eq!(offered(&it).environment[OPENCODE_CONFIG], "not JSON");
    }

    #[test]
    fn agent_2_work_runs_get_the_proposal_offer_and_verify_runs_not() {
        let mut it = assignment(AgentFormat::Plain, PromptChannel::Stdin);
        it.sandbox = Some(PathBuf::from("/s"));
        let offer = Offer::of(&it, Path::new("/a"), Path::new("/w")).unwrap();
        assert_eq!(offer.server.arguments[2..], ["/s/proposal"]);
        it.kind = TaskRunKind::Verify;
        assert_eq!(Offer::of(&it, Path::new("/a"), Path::new("/w")), None);
    }
}
