//! Real servers of `npx` and `uvx` work by their documented command (`PROV-1`).
//!
//! Method: a person permits the download (`gdn run --allow packages`), each server is downloaded by
//! `npx` or `uvx` in its sandbox, one of its tools is called by an agent, and its result is checked.
//! Then a second daemon, which cannot reach the registry, starts the server again.
//! The sandbox has no other network. Servers of services get a made-up key, so that their result
//! is the service's refusal, or that it cannot be reached. `GOONDAN_TEST_MCP_SERVERS` has the names
//! of packages, or `all`; without it this is left out, because it takes half an hour and a network.

use std::time::{Duration, Instant};

use goondan_tests::binaries::bin;
use goondan_tests::home::ORCHESTRATOR;
use goondan_tests::wait::within;
use goondan_tests::{Daemon, Home, needs};

use super::mcp::last_result;
use super::mcp_packages::detail;

const SERVERS_VAR: &str = "GOONDAN_TEST_MCP_SERVERS";

/// Maximum time for a download and the start.
const START_MAX: Duration = Duration::from_secs(300);

/// Maximum time for a start without a download.
const RESTART_MAX: Duration = Duration::from_secs(120);

/// A proxy that no connection reaches.
const NO_NETWORK: [(&str, &str); 2] = [
    ("HTTPS_PROXY", "http://127.0.0.1:9"),
    ("HTTP_PROXY", "http://127.0.0.1:9"),
];

/// Variables of this machine's network that the daemon gets.
const OF_NETWORK: [&str; 5] = [
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
];

/// Results that say that goondan, and not the server, refused a call.
const NOT_FROM_SERVER: [&str; 5] = [
    "E_UNAVAILABLE",
    "E_TOOL_TIMEOUT",
    "E_TOOL_NOT_IN_CATALOG",
    "E_TOOL_INVALID_ARGS",
    "E_TOOL_INTERRUPTED",
];

/// A server, and a call of one of its tools.
struct RealServer {
    package: &'static str,
    /// Further arguments, and environment variables.
    arguments: &'static [&'static str],
    env: &'static [(&'static str, &'static str)],
    tool: &'static str,
    /// Arguments of the call, as JSON.
    input: &'static str,
    /// Part of the result.
    says: &'static str,
}

const fn server(
    package: &'static str,
    (tool, input): (&'static str, &'static str),
    says: &'static str,
) -> RealServer {
    RealServer {
        package,
        arguments: &[],
        env: &[],
        tool,
        input,
        says,
    }
}

impl RealServer {
    const fn and(self, arguments: &'static [&'static str]) -> Self {
        Self { arguments, ..self }
    }

    const fn with(self, env: &'static [(&'static str, &'static str)]) -> Self {
        Self { env, ..self }
    }
}

/// Servers that `npx -y` starts.
const OF_NPM: [RealServer; 25] = [
    server(
        "@modelcontextprotocol/server-everything",
        ("echo", r#"{"message": "hello"}"#),
        "hello",
    ),
    server(
        "@modelcontextprotocol/server-filesystem",
        ("list_directory", r#"{"path": "docs"}"#),
        "[FILE] note.txt",
    )
    .and(&["docs"]),
    server(
        "@modelcontextprotocol/server-memory",
        ("read_graph", "{}"),
        "entities",
    ),
    server(
        "@modelcontextprotocol/server-sequential-thinking",
        (
            "sequentialthinking",
            r#"{"thought": "one", "nextThoughtNeeded": false, "thoughtNumber": 1, "totalThoughts": 1}"#,
        ),
        "thoughtHistoryLength",
    ),
    server(
        "@modelcontextprotocol/server-github",
        ("search_repositories", r#"{"query": "goondan"}"#),
        "",
    )
    .with(&[("GITHUB_PERSONAL_ACCESS_TOKEN", "made-up-token")]),
    server(
        "@modelcontextprotocol/server-gitlab",
        ("search_repositories", r#"{"search": "goondan"}"#),
        "",
    )
    .with(&[("GITLAB_PERSONAL_ACCESS_TOKEN", "made-up-token")]),
    server(
        "@modelcontextprotocol/server-slack",
        ("slack_list_channels", "{}"),
        "",
    )
    .with(&[("SLACK_BOT_TOKEN", "xoxb-made-up"), ("SLACK_TEAM_ID", "T1")]),
    server(
        "@modelcontextprotocol/server-google-maps",
        ("maps_geocode", r#"{"address": "Seoul"}"#),
        "",
    )
    .with(&[("GOOGLE_MAPS_API_KEY", "made-up-key")]),
    server(
        "@modelcontextprotocol/server-brave-search",
        ("brave_web_search", r#"{"query": "x"}"#),
        "",
    )
    .with(&[("BRAVE_API_KEY", "made-up-key")]),
    server(
        "@modelcontextprotocol/server-postgres",
        ("query", r#"{"sql": "SELECT 1"}"#),
        "",
    )
    .and(&["postgresql://127.0.0.1:1/none"]),
    server(
        "@upstash/context7-mcp",
        (
            "resolve-library-id",
            r#"{"query": "router", "libraryName": "react"}"#,
        ),
        "",
    ),
    server(
        "@playwright/mcp",
        ("browser_tabs", r#"{"action": "list"}"#),
        "",
    )
    .and(&[
        "--headless",
        "--isolated",
        "--no-sandbox",
        "--executable-path",
        "/usr/bin/chromium",
    ]),
    server("chrome-devtools-mcp", ("list_pages", "{}"), "about:blank").and(&[
        "--headless",
        "--isolated",
        "--executablePath",
        "/usr/bin/chromium",
        "--chromeArg=--no-sandbox",
    ]),
    server("@notionhq/notion-mcp-server", ("API-get-self", "{}"), "")
        .with(&[("NOTION_TOKEN", "ntn_made_up")]),
    server(
        "firecrawl-mcp",
        ("firecrawl_map", r#"{"url": "https://example.com"}"#),
        "",
    )
    .with(&[("FIRECRAWL_API_KEY", "fc-made-up")]),
    server("tavily-mcp", ("tavily_search", r#"{"query": "x"}"#), "")
        .with(&[("TAVILY_API_KEY", "tvly-made-up")]),
    server(
        "exa-mcp-server",
        ("web_search_exa", r#"{"query": "x"}"#),
        "",
    )
    .with(&[("EXA_API_KEY", "made-up-key")]),
    server(
        "mcp-server-kubernetes",
        ("kubectl_get", r#"{"resourceType": "pods"}"#),
        "",
    ),
    server(
        "@eslint/mcp",
        ("lint-files", r#"{"filePaths": ["/none.js"]}"#),
        "",
    ),
    server(
        "figma-developer-mcp",
        ("get_figma_data", r#"{"fileKey": "abc"}"#),
        "",
    )
    .and(&["--stdio", "--figma-api-key=made-up"]),
    server(
        "@brave/brave-search-mcp-server",
        ("brave_web_search", r#"{"query": "x"}"#),
        "",
    )
    .and(&["--transport", "stdio"])
    .with(&[("BRAVE_API_KEY", "made-up-key")]),
    server(
        "@antv/mcp-server-chart",
        (
            "generate_pie_chart",
            r#"{"data": [{"category": "a", "value": 1}]}"#,
        ),
        "",
    ),
    server(
        "mcp-searxng",
        ("searxng_web_search", r#"{"query": "x"}"#),
        "",
    )
    .with(&[("SEARXNG_URL", "http://127.0.0.1:1")]),
    server(
        "mcp-server-code-runner",
        (
            "run-code",
            r#"{"languageId": "javascript", "code": "console.log(6 * 7)"}"#,
        ),
        "42",
    ),
    server(
        "mongodb-mcp-server",
        (
            "connect",
            r#"{"connectionString": "mongodb://127.0.0.1:1"}"#,
        ),
        "",
    ),
];

/// Servers that `uvx` starts.
const OF_PYPI: [RealServer; 6] = [
    server(
        "mcp-server-time",
        ("get_current_time", r#"{"timezone": "Asia/Seoul"}"#),
        "Asia/Seoul",
    ),
    server(
        "mcp-server-git",
        ("git_status", r#"{"repo_path": "."}"#),
        "On branch",
    ),
    server(
        "mcp-server-fetch",
        ("fetch", r#"{"url": "http://127.0.0.1:1/"}"#),
        "",
    ),
    server(
        "mcp-server-calculator",
        ("calculate", r#"{"expression": "6*7"}"#),
        "42",
    ),
    server("duckduckgo-mcp-server", ("search", r#"{"query": "x"}"#), ""),
    server(
        "wikipedia-mcp",
        ("search_wikipedia", r#"{"query": "x"}"#),
        "",
    ),
];

fn project(runner: &str, server: &RealServer) -> String {
    let words = runner
        .split(' ')
        .chain([server.package])
        .chain(server.arguments.iter().copied());
    let words: Vec<String> = words.map(|word| format!("'{word}'")).collect();
    let env: Vec<String> = server
        .env
        .iter()
        .map(|(name, value)| format!("{name}: '{value}'"))
        .collect();
    let connection = format!(
        "  config: {{command: [{}], env: {{{}}}, startSeconds: {}}}",
        words.join(", "),
        env.join(", "),
        START_MAX.as_secs(),
    );
    let (tool, input) = (server.tool, server.input);
    let rule = format!("call: [{{tool: kit__{tool}, args: {input}}}]");
    let call = "call: [{tool: kit__fail, args: {}}]";
    super::mcp::project(&connection).replacen(call, &rule, 1)
}

/// Name and version of a server that works, with its time; or what went wrong.
fn tried(runner: &str, server: &RealServer) -> Result<String, String> {
    let home = Home::new(&project(runner, server));
    home.write("project/docs/note.txt", "a note\n");
    for words in [&["init", "--quiet"][..], &["add", "docs"]] {
        let git = std::process::Command::new("git")
            .args(words)
            .current_dir(home.project())
            .status();
        assert!(git.unwrap().success());
    }
    let since = Instant::now();
    let mut command = home.command(&bin(ORCHESTRATOR), &[]);
    command.envs(
        OF_NETWORK
            .iter()
            .filter_map(|name| Some((name, std::env::var_os(name)?))),
    );
    let daemon = Daemon::start_command(&home, command);
    // It may fail, and is asked for its reason below.
    drop(home.gdn(&["run", "--allow", "packages"]));
    let introduction = wait_for_introduction(&home, START_MAX)?;
    let took = since.elapsed();
    drop(home.gdn(&["send", "--instance", "a", "call fail"]));
    let result = last_result(&home, "a");
    drop(daemon.stop());
    let mut command = home.command(&bin(ORCHESTRATOR), &[]);
    command.envs(NO_NETWORK);
    let daemon = Daemon::start_command(&home, command);
    drop(home.gdn(&["run"]));
    let again = wait_for_introduction(&home, RESTART_MAX);
    drop(daemon.stop());
    again.map_err(|why| format!("second start, without the registry: {why}"))?;
    let is_own = NOT_FROM_SERVER.iter().any(|code| result.starts_with(code));
    if is_own || !result.contains(server.says) {
        return Err(format!("{}: {result}", server.tool));
    }
    let introduction = introduction.trim_start_matches("MCP server ");
    let result: String = result.chars().take(60).collect();
    Ok(format!(
        "{introduction} | {} s | {}: {}",
        took.as_secs(),
        server.tool,
        result.replace('\n', " ")
    ))
}

/// Name and version of the server once it is ready, or the reason why it is not.
fn wait_for_introduction(home: &Home, time_limit: Duration) -> Result<String, String> {
    let ready = within(time_limit, || {
        let detail = detail(home);
        // The first start, before the permission, is refused.
        let has_failed = !detail.contains("gdn workspace permission allow")
            && (detail.contains("trying again after") || detail.starts_with("parked"));
        (has_failed || detail.starts_with("MCP server ")).then_some(detail)
    });
    let introduction = ready.ok_or("was not ready in time")?;
    match introduction.starts_with("MCP server ") {
        true => Ok(introduction),
        false => Err(introduction),
    }
}

#[test]
fn prov_1_real_mcp_servers_work_by_their_documented_command() {
    let Ok(wanted) = std::env::var(SERVERS_VAR) else {
        needs::note_left_out(&format!("{SERVERS_VAR} is not set"));
        return;
    };
    let is_wanted = |server: &&RealServer| {
        wanted == "all" || wanted.split(',').any(|name| name == server.package)
    };
    let of_npm = OF_NPM.iter().map(|server| ("npx -y", server));
    let of_pypi = OF_PYPI.iter().map(|server| ("uvx", server));
    let mut failed = Vec::new();
    for (runner, server) in of_npm
        .chain(of_pypi)
        .filter(|(_, server)| is_wanted(server))
    {
        let name = server.package;
        match tried(runner, server) {
            Ok(row) => eprintln!("| `{runner} {name}` | {row} |"),
            Err(why) => {
                eprintln!("| `{runner} {name}` | failed: {why} |");
                failed.push(name);
            }
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}
