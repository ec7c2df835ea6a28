//! Checks that the examples of `docs/scripted-model.md` work, and that `docs/tools.md` lists every
//! export, argument and error.

use std::path::Path;

use goondan_agent_process::model::scripted::ScriptedModel;
use goondan_agent_process::model::{ModelReply, ModelRequest};
use goondan_protocol::base_package::{AGENT_TOOL, tool_names, tools};
use goondan_protocol::conversation::Conversation;
use goondan_protocol::ids::{StepId, TurnId};
use goondan_protocol::message::{Message, MessageContent, ToolCall, ToolResult};
use goondan_protocol::time::Timestamp;
use serde_json::Value;

use crate::bash::toolbox_of;
use crate::support::{TestProject, script, tool};

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../docs")
        .join(name);
    std::fs::read_to_string(path).unwrap()
}

/// The fenced blocks of a page: language and text.
fn blocks(page: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let text: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
            blocks.push((language.to_owned(), text.join("\n")));
        }
    }
    blocks
}

/// A dialogue with a model, checked line by line.
struct Dialogue {
    model: ScriptedModel,
    turn_number: u32,
    step: u32,
    messages: Vec<Message>,
    /// The model's output at this step that the dialogue has not mentioned yet.
    open: Option<Result<ModelReply, String>>,
    called: Vec<ToolCall>,
}

impl Dialogue {
    fn new(yaml: &str) -> Self {
        Self {
            model: ScriptedModel::new(&script(yaml)),
            turn_number: 0,
            step: 0,
            messages: Vec::new(),
            open: None,
            called: Vec::new(),
        }
    }

    fn id(&self) -> goondan_protocol::ids::MessageId {
        format!("m{}", self.messages.len()).parse().unwrap()
    }

    fn line(&mut self, line: &str) {
        let (who, text) = line.split_once(": ").unwrap_or_else(|| panic!("{line:?}"));
        let text = text.replace("\\n", "\n");
        let at = Timestamp::from_unix_millis(0);
        match who {
            "user" => {
                self.end_step();
                (self.turn_number, self.step) = (self.turn_number + 1, 0);
                self.messages.push(Message::user(self.id(), at, &text));
            }
            "result" | "error" => {
                self.end_step();
                let call = self.called.remove(0);
                let result = ToolResult {
                    tool_call_id: call.id,
                    tool_name: call.tool_name,
                    text,
                    is_error: who == "error",
                    images: Vec::new(),
                };
                self.messages.push(Message::tool(self.id(), at, &result));
            }
            "model" => {
                let reply = self.reply().as_mut().unwrap();
                assert_eq!(std::mem::take(&mut reply.text), text);
            }
            "calls" => {
                let (tool, args) = text.split_once(' ').unwrap();
                let call = self.reply().as_mut().unwrap().calls.remove(0);
                assert_eq!(call.tool_name, tool);
                assert_eq!(call.input, serde_json::from_str::<Value>(args).unwrap());
                self.called.push(call);
            }
            "fails" => {
                let error = self.reply().as_ref().unwrap_err();
                assert!(error.starts_with(&text), "{error}");
                self.open = None;
            }
            other => panic!("{other:?} is nobody in a dialogue"),
        }
    }

    /// The model's output at this step, which is requested once.
    fn reply(&mut self) -> &mut Result<ModelReply, String> {
        if self.open.is_none() {
            self.step += 1;
            let turn: TurnId = format!("t{}", self.turn_number).parse().unwrap();
            let step_id = StepId::of_turn(&turn, self.step);
            let played = self.model.play(ModelRequest {
                system: None,
                messages: &Conversation::from_base(self.messages.clone()),
                catalog: &[],
                turn_id: &turn,
                step_id: &step_id,
                seq: 1,
                message_id: &"m".parse().unwrap(),
                trace: None,
                step: self.step,
            });
            let reply = played.and_then(|played| played.reply);
            if let Ok(reply) = &reply {
                let content = MessageContent::assistant(&reply.text, &reply.calls);
                let at = Timestamp::from_unix_millis(0);
                let message = Message::assistant(self.id(), at, step_id, content);
                self.messages.push(message);
            }
            self.open = Some(reply.map_err(|error| error.to_string()));
        }
        self.open.as_mut().unwrap()
    }

    /// Everything the model did was mentioned.
    fn end_step(&mut self) {
        if let Some(reply) = self.open.take() {
            assert_eq!(
                reply,
                Ok(ModelReply::default()),
                "more than the dialogue says"
            );
        }
    }
}

#[test]
fn scripted_model_examples_behave_as_documented() {
    let blocks = blocks(&page("scripted-model.md"));
    let mut dialogue_count = 0;
    for pair in blocks.windows(2) {
        let [(yaml, rules), (text, lines)] = pair else {
            unreachable!("windows of two");
        };
        if yaml != "yaml" || text != "text" {
            continue;
        }
        let mut dialogue = Dialogue::new(rules);
        for line in lines.lines() {
            dialogue.line(line);
        }
        dialogue.end_step();
        dialogue_count += 1;
    }
    let texts = blocks.iter().filter(|(language, _)| language == "text");
    assert_eq!(
        dialogue_count,
        texts.count(),
        "a dialogue without its script"
    );
    assert!(
        dialogue_count >= 7,
        "only {dialogue_count} dialogues were found"
    );
}

#[test]
fn invalid_model_script_reports_its_error_at_every_step() {
    for (yaml, why) in [
        (
            "rules: [{say: a}, {when: {user: '('}, say: b}]",
            "rule 2 of the script: `when.user` is not",
        ),
        (
            "rules: [{when: {user: a}}]",
            "rule 1 of the script: without effect",
        ),
        (
            "rules: [{say: a, fail: b}]",
            "rule 1 of the script: `fail` cannot be combined",
        ),
        (
            "rules: [{say: a, delayMs: 600001}]",
            "rule 1 of the script: `delayMs` is 600001",
        ),
        (
            "rules: [{when: {user: '(?P<a>.)', result: '(?P<a>.)'}, say: b}]",
            "rule 1 of the script: `when.result` captures `a`, which another",
        ),
        (
            "rules: [{when: {user: '(?P<step>.)'}, say: b}]",
            "rule 1 of the script: `when.user` captures `step`, which is always there",
        ),
    ] {
        let mut dialogue = Dialogue::new(yaml);
        dialogue.line("user: hi");
        dialogue.line(&format!("fails: {why}"));
    }
}

#[test]
fn a_reply_cannot_grow_without_limit() {
    let mut dialogue = Dialogue::new(&format!("rules: [{{say: '{}'}}]", "${input}".repeat(2_000)));
    dialogue.line(&format!("user: {}", "x".repeat(1_000)));
    dialogue.line("fails: rule 1 of the script: its reply has 2000000 bytes; at most 1048576");
}

#[test]
fn the_page_about_tools_names_all_there_is() {
    let page = page("tools.md");
    let tools_of = |name: &str| {
        let mut definition = tool(name);
        if name == AGENT_TOOL {
            definition
                .config
                .insert("agent".to_owned(), "helper".into());
        }
        definition
    };
    let toolbox = toolbox_of(&TestProject::new(), tool_names().map(tools_of).collect());
    let mut described: Vec<(&str, Vec<&str>)> = Vec::new();
    let catalog = toolbox.catalog();
    for entry in catalog.iter() {
        let (tool, export) = entry.name.as_str().split_once("__").unwrap();
        match described.last_mut() {
            Some((last, exports)) if *last == tool => exports.push(export),
            _ => described.push((tool, vec![export])),
        }
        let (_, section) = page.split_once(&format!("\n## {tool}\n")).unwrap();
        let section = section.split("\n## ").next().unwrap();
        let (_, section) = section.split_once(&format!("### `{export}`\n")).unwrap();
        let section = section.split("\n#").next().unwrap();
        let required = entry.parameters["required"].as_array();
        for name in entry.parameters["properties"].as_object().unwrap().keys() {
            let is_required =
                required.is_some_and(|names| names.contains(&Value::from(name.as_str())));
            let described = format!("`{name}`");
            assert!(section.contains(&described), "{}: {name}", entry.name);
            let must = section.contains(&format!("`{name}` (required)"));
            assert_eq!(must, is_required, "{}: {name}", entry.name);
        }
    }
    // Tools of MCP servers are known only at run time.
    assert!(page.contains("\n## mcp\n"));
    let all = tools().into_iter().filter(|(tool, _)| *tool != "mcp");
    assert_eq!(described, all.collect::<Vec<_>>());
    let sources = [
        include_str!("../../src/tools.rs"),
        include_str!("../../src/tools/bash.rs"),
        include_str!("../../src/tools/file_system.rs"),
        include_str!("../../src/tools/host.rs"),
        include_str!("../../src/tools/json_query.rs"),
        include_str!("../../src/tools/mcp.rs"),
        include_str!("../../src/tools/module.rs"),
        include_str!("../../src/tools/connection_tools.rs"),
        include_str!("../../src/tools/search.rs"),
        include_str!("../../src/tools/session.rs"),
        include_str!("../../src/tools/text_transform.rs"),
        include_str!("../../src/tools/rooted_files.rs"),
        include_str!("../../src/turn/calls.rs"),
    ];
    let is_code = |c: char| c.is_ascii_uppercase() || c == '_';
    for word in sources.concat().split(|c| !is_code(c)) {
        if word.starts_with("E_") && word.len() > 2 {
            assert!(
                page.contains(&format!("`{word}`")),
                "{word} is not explained"
            );
        }
    }
}
