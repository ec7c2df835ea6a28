//! Approval rules: `approve` of a listed tool.

use goondan_config::ProjectConfig;
use goondan_protocol::approval::ApproveRule;
use serde_json::{Value, json};

use crate::support::{Project, SMALLEST};

fn documents(approve: &str) -> String {
    let tool = "{kind: Tool, name: bash, package: \"@goondan/base\"}";
    let tools = format!("tools: [{{ref: {tool}, approve: {approve}}}]");
    let agent = "spec: {modelConfig: {modelRef: Model/main}}";
    let with_tools = format!("spec: {{modelConfig: {{modelRef: Model/main}}, {tools}}}");
    SMALLEST.replace(agent, &with_tools)
}

fn project(approve: &str) -> Project {
    Project::new(&documents(approve))
}

fn rules(bundle: &ProjectConfig) -> Value {
    let rules: &[ApproveRule] = &bundle.agents[&"helper".parse().unwrap()].tools[0].approve;
    json!(rules)
}

#[test]
fn steer_3_calls_need_a_person_by_a_word_or_by_rules() {
    assert_eq!(rules(&project("always").load()), json!([]));
    assert_eq!(rules(&project("ask").load()), json!([{"approve": "ask"}]));
    assert_eq!(
        rules(&project("never").load()),
        json!([{"approve": "never"}])
    );
    let written = "{rules: [{export: exec, when: {command: 'ls( .*)?'}, approve: always}, \
                   {when: {command: '.*sudo.*'}, approve: never}]";
    let expected = |otherwise: &str| {
        json!([
            {"export": "exec", "when": {"command": "ls( .*)?"}, "approve": "always"},
            {"when": {"command": ".*sudo.*"}, "approve": "never"},
            {"approve": otherwise},
        ])
    };
    assert_eq!(
        rules(&project(&format!("{written}}}")).load()),
        expected("ask")
    );
    let otherwise = format!("{written}, otherwise: never}}");
    assert_eq!(rules(&project(&otherwise).load()), expected("never"));
}

#[test]
fn steer_3_invalid_approval_rule_is_reported_at_its_place() {
    for (approve, told) in [
        (
            "sometimes",
            "must be `always`, `never`, `ask` or `askTwo`, or a mapping",
        ),
        ("{otherwise: ask}", "`rules`"),
        (
            "{rules: [{when: {command: '('}, approve: ask}]}",
            "is not a valid regular expression",
        ),
        (
            "{rules: [{when: {command: 5}, approve: ask}]}",
            "must be text",
        ),
        (
            "{rules: [{export: exce, approve: ask}]}",
            "`approve` lists `exce`",
        ),
        ("{rules: [{export: exec}]}", "`approve`"),
        ("{rules: [{approve: maybe}]}", "`maybe`"),
        (
            "{rules: [{when: {a: b}, approve: ask, why: x}]}",
            "unknown field `why`",
        ),
    ] {
        let problems = project(approve).problems().join("\n");
        assert!(problems.contains(told), "{approve}: {problems}");
    }
    let many = vec!["{approve: ask}"; 65].join(", ");
    let problems = project(&format!("{{rules: [{many}]}}"))
        .problems()
        .join("\n");
    assert!(problems.contains("65 rules; at most 64"), "{problems}");
}

/// A connection whose chat shows decisions with these settings.
fn chat(settings: &str) -> String {
    format!(
        "apiVersion: goondan.ai/v1\nkind: Connection\nmetadata: {{name: chat}}\nspec:\n  connectorRef: {{kind: \
         Connector, name: telegram, package: \"@goondan/base\"}}\n  config: {{approvals: {{chat: -100, users: \
         [7], {settings}}}}}\n  secrets: {{botToken: {{value: \"1:x\"}}}}\n"
    )
}

#[test]
fn steer_3_a_chat_asks_about_agents_that_there_are() {
    let project = |agents: &str| Project::with(&chat(&format!("agents: {agents}")));
    let found = project("[helper]").load();
    let chat = found.connections[&"chat".parse().unwrap()].approvals();
    assert_eq!(chat.unwrap().agents().collect::<Vec<_>>(), ["helper"]);
    let told = project("[helper, helpr]").problems().join("\n");
    assert!(told.contains("Agent `helpr` is not an agent of"), "{told}");
}

#[test]
fn need_1_tools_that_a_chat_never_shows_are_warned_about() {
    let warnings = |settings: &str| {
        let project = Project::new(&format!("{}---\n{}", documents("ask"), chat(settings)));
        let warnings = project.warnings().into_iter();
        warnings
            .filter(|warning| warning.contains("NO_EFFECT"))
            .collect::<Vec<_>>()
    };
    for fine in [
        "tools: [bash]",
        "tools: [bash__exec], kinds: [question, call]",
        "tools: [bash], agents: [helper]",
        "kinds: [review]",
    ] {
        assert_eq!(warnings(fine), Vec::<String>::new(), "{fine}");
    }
    for (unseen, told) in [
        (
            "tools: [bash, bahs]",
            "`bahs` has no effect: it is not a tool of an agent",
        ),
        ("tools: [bash__exce]", "`bash__exce` has no effect"),
        ("tools: [bash_]", "`bash_` has no effect"),
        (
            "tools: [bash], kinds: [review]",
            "`kinds` does not list `call`",
        ),
    ] {
        let warnings = warnings(unseen);
        assert_eq!(warnings.len(), 1, "{unseen}: {warnings:?}");
        assert!(warnings[0].contains(told), "{unseen}: {warnings:?}");
        assert!(warnings[0].contains("W_CONFIG_NO_EFFECT"), "{warnings:?}");
    }
}
