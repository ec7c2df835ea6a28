//! The tools `json-query`, `text-transform` and `wait` through the toolbox: arguments, errors, limits.

use goondan_agent_process::tool_call::{ToolOutcome, ToolRules as _};
use goondan_agent_process::tools::Toolbox;
use goondan_protocol::base_package::tool_names;
use serde_json::{Value, json};

use crate::bash::{call, toolbox_of};
use crate::support::{TestProject, put, tool};

fn toolbox(site: &TestProject) -> Toolbox {
    let tools = tool_names().map(|name| {
        let mut tool = tool(name);
        if name == "agent" {
            tool.config.insert("agent".to_owned(), json!("expert"));
        }
        tool
    });
    toolbox_of(site, tools.collect())
}

/// Checks and runs a call, as a turn does.
async fn run(toolbox: &Toolbox, name: &str, input: Value) -> ToolOutcome {
    let call = call(name, input);
    match toolbox.check(&call) {
        Ok(()) => toolbox.run(&call).await,
        Err(refusal) => ToolOutcome::error(refusal.to_string()),
    }
}

#[tokio::test]
async fn json_is_queried_in_files_and_in_the_call() {
    let site = TestProject::new();
    let toolbox = toolbox(&site);
    put(
        site.project.join("stock.json"),
        r#"{"books": [{"title": "Emma", "price": 12}, {"title": "Persuasion", "price": 8}]}"#,
    );
    let stock = "$GOONDAN_PROJECT_ROOT/stock.json";
    let query = json!({"query": "books[?price < `10`].title", "path": stock});
    assert_eq!(
        run(&toolbox, "json-query__query", query).await,
        ToolOutcome::ok("[\n  \"Persuasion\"\n]")
    );
    let pointer = json!({"pointer": "/1/a~1b", "json": r#"[1, {"a/b": "x"}]"#});
    assert_eq!(
        run(&toolbox, "json-query__pointer", pointer).await,
        ToolOutcome::ok("\"x\"")
    );
    for (name, input, code) in [
        (
            "query",
            json!({"query": "a["  , "json": "1"}),
            "E_INVALID_QUERY",
        ),
        (
            "query",
            json!({"query": "sum(a)", "json": "{\"a\": 1}"}),
            "E_INVALID_QUERY",
        ),
        ("query", json!({"query": "a", "json": "{"}), "E_NOT_JSON"),
        ("query", json!({"query": "a"}), "E_TOOL_INVALID_ARGS"),
        (
            "query",
            json!({"query": "a", "json": "1", "path": "b"}),
            "E_TOOL_INVALID_ARGS",
        ),
        (
            "query",
            json!({"query": "a", "path": "/etc/hosts"}),
            "E_PATH_OUTSIDE",
        ),
        (
            "pointer",
            json!({"pointer": "/0", "json": "{}"}),
            "E_NO_MATCH",
        ),
    ] {
        let outcome = run(&toolbox, &format!("json-query__{name}"), input.clone()).await;
        assert!(outcome.is_error, "{input}: {}", outcome.text);
        assert!(outcome.text.starts_with(code), "{input}: {}", outcome.text);
    }
}

#[tokio::test]
async fn texts_are_transformed_and_a_long_result_goes_to_a_file() {
    let site = TestProject::new();
    let toolbox = toolbox(&site);
    let upper = json!({"text": "가a", "to": "upper"});
    assert_eq!(
        run(&toolbox, "text-transform__case", upper).await,
        ToolOutcome::ok("가A")
    );
    let long = json!({"text": "x".repeat(20_000), "find": "x", "with": "ab"});
    let outcome = run(&toolbox, "text-transform__replace", long).await;
    assert!(!outcome.is_error);
    assert!(outcome.text.len() < 33_000, "{} bytes", outcome.text.len());
    assert!(outcome.text.starts_with("abab") && outcome.text.ends_with("abab"));
    assert!(
        outcome.text.contains(
            "[7232 bytes are left out here; the full output is in .goondan/outputs/t.1_c0.txt]"
        ),
        "{}",
        outcome.text
    );
    let kept = std::fs::read_to_string(site.work.join(".goondan/outputs/t.1_c0.txt")).unwrap();
    assert_eq!(kept, "ab".repeat(20_000));
}

#[tokio::test(start_paused = true)]
async fn wait_takes_the_requested_time_up_to_its_maximum() {
    let site = TestProject::new();
    let toolbox = toolbox(&site);
    let begun = tokio::time::Instant::now();
    let outcome = run(&toolbox, "wait__for", json!({"seconds": 1.5})).await;
    assert_eq!(outcome, ToolOutcome::ok("waited 1.5 s"));
    assert_eq!(begun.elapsed().as_millis(), 1_500);
    let refused = run(&toolbox, "wait__for", json!({"seconds": 601})).await;
    assert_eq!(
        refused.text,
        "E_TOOL_INVALID_ARGS: wait__for: at `/seconds`: the value is greater than the maximum of \
         600"
    );
}

#[test]
fn every_schema_of_a_built_in_tool_is_valid() {
    let site = TestProject::new();
    let toolbox = toolbox(&site);
    assert!(toolbox.catalog().len() > 15);
    for entry in toolbox.catalog().iter() {
        let refused = toolbox.check(&call(entry.name.as_str(), json!(0)));
        let why = refused.unwrap_err().to_string();
        assert!(why.contains("at `/`: the value is not of type"), "{why}");
    }
}
