//! Tools that use a connection, as models and turns see them: compared with `service_tools.json`,
//! so that no text for a model changes unnoticed.

use goondan_agent_process::tool_call::ToolRules as _;
use serde_json::{Value, json};

use crate::bash::toolbox_of;
use crate::support::{TestProject, tool};

/// Definitions of these tools in a project with these connections.
fn offered(tools: &[&str], connections: &[&str]) -> Vec<Value> {
    let tools = tools.iter().map(|name| {
        let mut tool = tool(name);
        let connections = connections.iter().map(|name| name.parse().unwrap());
        tool.connections = connections.collect();
        tool
    });
    let toolbox = toolbox_of(&TestProject::new(), tools.collect());
    let catalog = toolbox.catalog();
    let entries = catalog.iter().map(|entry| {
        json!({
            "name": entry.name,
            "description": entry.description,
            "parameters": entry.parameters,
            "isIdempotent": toolbox.is_idempotent(entry.name.as_str()),
        })
    });
    entries.collect()
}

#[test]
fn the_tools_of_services_are_offered_as_they_are_written_down() {
    let tools = [
        "discord",
        "github",
        "gitlab",
        "http-fetch",
        "matrix",
        "slack",
        "telegram",
    ];
    let all = json!({
        "oneConnection": offered(&tools, &["only"]),
        "severalConnections": offered(&["github"], &["home", "work"]),
    });
    let text = serde_json::to_string_pretty(&all).unwrap();
    let expected = include_str!("service_tools.json");
    assert!(
        text == expected.trim_end(),
        "service_tools.json is to be:\n{text}"
    );
}
