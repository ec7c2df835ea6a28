//! goondan's tools for command-line agents: the protocol as tool calls (`AGENT-2`).
//!
//! A call means the same as the protocol block of its kind. [`Tool::read`] validates its arguments,
//! and [`crate::mcp`] offers the tools to a program.

use goondan_protocol::JsonObject;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::blocks::{
    AgentError, Block, CustomTaskComplete, DependencyKind, DependencyRequest, ErrorKind,
    PhaseComplete, Progress, QuestionCategory, UserQuestion, document_of, is_environment_name,
};
use crate::event::{CliEvent, PermissionRequest};
use crate::limits::{DOCUMENTS_MAX, FIELD_CHARS_MAX, OPTIONS_MAX};

/// Name of the MCP server.
pub const SERVER: &str = "goondan";

/// Command that starts the MCP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolServer {
    /// Absolute path of the program.
    pub program: String,
    pub arguments: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// Asks a person a question.
    AskPerson,
    /// Requests a key, file, service or permission from a person.
    RequestDependency,
    ReportProgress,
    /// Sets the summary of the proposal.
    SubmitProposal,
    /// Hands in a phase for review.
    CompletePhase,
    Finish,
}

/// Meaning of a valid call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// The events for the task.
    Events(Vec<CallEvent>),
    /// The summary of the proposal, which belongs into its file.
    Summary(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallEvent {
    Message(Block),
    Progress(Progress),
}

impl From<CallEvent> for CliEvent {
    fn from(event: CallEvent) -> Self {
        match event {
            CallEvent::Message(block) => Self::ToolMessage(block),
            CallEvent::Progress(progress) => Self::Progress(progress),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AskPerson {
    question: String,
    #[serde(default)]
    options: Option<Vec<String>>,
    #[serde(default)]
    category: Option<QuestionCategory>,
    #[serde(default)]
    default: Option<String>,
    #[serde(default)]
    required: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestDependency {
    #[serde(rename = "type")]
    kind: DependencyKind,
    name: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    default: Option<String>,
    #[serde(default)]
    required: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReportProgress {
    #[serde(default)]
    percent: Option<u8>,
    #[serde(default)]
    step: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SubmitProposal {
    summary: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CompletePhase {
    phase: u32,
    #[serde(default)]
    documents: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Finish {
    #[serde(default)]
    documents: Option<Vec<String>>,
    #[serde(default)]
    failure: Option<String>,
}

impl Tool {
    /// All tools, in the order in which they are listed.
    pub const ALL: [Self; 6] = [
        Self::AskPerson,
        Self::RequestDependency,
        Self::ReportProgress,
        Self::SubmitProposal,
        Self::CompletePhase,
        Self::Finish,
    ];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::AskPerson => "ask_person",
            Self::RequestDependency => "request_dependency",
            Self::ReportProgress => "report_progress",
            Self::SubmitProposal => "submit_proposal",
            Self::CompletePhase => "complete_phase",
            Self::Finish => "finish",
        }
    }

    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    fn description(self) -> &'static str {
        match self {
            Self::AskPerson => {
                "Asks a person a question that you cannot answer yourself. After the call, end your turn: you are \
                 started again with the answer."
            }
            Self::RequestDependency => {
                "Requests something that you need from a person: a key, a variable, a service, a file, a permission \
                 or a package. Keys and variables arrive in your environment, under their name. After the call, end \
                 your turn: you are started again when it is there."
            }
            Self::ReportProgress => {
                "Shows people how far you are. Continue with your work after it."
            }
            Self::SubmitProposal => {
                "Sets the summary of your changes, which people read when they review them. It ends nothing: call \
                 `complete_phase` or `finish` when the work is done."
            }
            Self::CompletePhase => {
                "Hands in the phase you are in, when it is done. A person reviews it. After the call, end your turn: \
                 you are started again with the result."
            }
            Self::Finish => {
                "Ends a task without phases: when everything is done, or with `failure` if it cannot be done. After \
                 the call, end your turn."
            }
        }
    }

    /// JSON Schema of the arguments.
    fn parameters(self) -> Value {
        let text = |about: &str| json!({"type": "string", "maxLength": FIELD_CHARS_MAX, "description": about});
        let texts = |max: usize, about: &str| json!({"type": "array", "maxItems": max, "items": {"type": "string"}, "description": about});
        let documents = || {
            texts(
                DOCUMENTS_MAX,
                "The files you wrote, relative to the current directory",
            )
        };
        let required = || json!({"type": "boolean", "description": "false: after ten minutes without an answer, `default` is used"});
        let (properties, required) = match self {
            Self::AskPerson => (
                json!({
                    "question": text("The question, with what a person needs to know to answer it"),
                    "options": texts(OPTIONS_MAX, "Answers to choose from; leave it out if any text is an answer"),
                    "category": {"type": "string", "enum": ["business", "clarification", "choice", "confirmation"]},
                    "default": text("The answer that you would choose"),
                    "required": required(),
                }),
                json!(["question"]),
            ),
            Self::RequestDependency => (
                json!({
                    "type": {
                        "type": "string",
                        "enum": ["api_key", "env_variable", "service", "file", "permission", "package"],
                    },
                    "name": text("Its name; for `api_key` and `env_variable`, the name of the variable"),
                    "description": text("The reason why you need it"),
                    "default": text("The value that you use if no person provides one"),
                    "required": required(),
                }),
                json!(["type", "name"]),
            ),
            Self::ReportProgress => (
                json!({
                    "percent": {"type": "integer", "minimum": 0, "maximum": 100},
                    "step": text("What you do now, in a few words"),
                }),
                json!([]),
            ),
            Self::SubmitProposal => (
                json!({"summary": text("Your changes and the reasons, as Markdown, for the reviewer")}),
                json!(["summary"]),
            ),
            Self::CompletePhase => (
                json!({
                    "phase": {"type": "integer", "minimum": 1, "description": "Number of the phase you are in"},
                    "documents": documents(),
                }),
                json!(["phase"]),
            ),
            Self::Finish => (
                json!({
                    "documents": documents(),
                    "failure": text("Why the task cannot be done. Leave it out when it is done"),
                }),
                json!([]),
            ),
        };
        json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        })
    }

    /// Entry of the tool in the list of an MCP server.
    #[must_use]
    pub fn entry(self) -> Value {
        json!({
            "name": self.name(),
            "description": self.description(),
            "inputSchema": self.parameters(),
            // Programs that ask before they call a tool do not ask for one that changes nothing.
            "annotations": {"readOnlyHint": true, "destructiveHint": false, "openWorldHint": false},
            // Otherwise `claude` shows the tool only to agents that search for it.
            "_meta": {"anthropic/alwaysLoad": true},
        })
    }

    /// Validates the arguments of a call.
    ///
    /// # Errors
    ///
    /// A description of the problem, for the agent.
    pub fn read(self, arguments: &JsonObject) -> Result<Call, String> {
        let message = |block| Ok(Call::Events(vec![CallEvent::Message(block)]));
        match self {
            Self::AskPerson => message(Block::UserQuestion(question(parse(arguments)?)?)),
            Self::RequestDependency => {
                message(Block::DependencyRequest(dependency(parse(arguments)?)?))
            }
            Self::ReportProgress => progress(parse(arguments)?),
            Self::SubmitProposal => {
                let SubmitProposal { summary } = parse(arguments)?;
                Ok(Call::Summary(needed("summary", &summary)?))
            }
            Self::CompletePhase => {
                let CompletePhase { phase, documents } = parse(arguments)?;
                if phase == 0 {
                    return Err("`phase` is 0; phases are numbered from 1".to_owned());
                }
                let documents = paths(documents)?;
                message(Block::PhaseComplete(PhaseComplete { phase, documents }))
            }
            Self::Finish => {
                let Finish { documents, failure } = parse(arguments)?;
                let documents = paths(documents)?;
                message(match failure {
                    None => Block::CustomTaskComplete(CustomTaskComplete { documents }),
                    Some(why) => Block::Error(AgentError {
                        kind: ErrorKind::Fatal,
                        message: needed("failure", &why)?,
                        recovery: None,
                    }),
                })
            }
        }
    }

    /// Answer to a valid call.
    #[must_use]
    pub fn acknowledgement(self) -> &'static str {
        match self {
            Self::AskPerson => {
                "The question is sent to a person. End your turn now; you are started again with the answer."
            }
            Self::RequestDependency => {
                "The request is sent to a person. End your turn now; you are started again when it is there."
            }
            Self::ReportProgress => "Reported.",
            Self::SubmitProposal => {
                "The summary is stored. Call `complete_phase` or `finish` when the work is done."
            }
            Self::CompletePhase => {
                "The phase is submitted. End your turn now; you are started again with the result of the review."
            }
            Self::Finish => "Reported. End your turn now.",
        }
    }

    /// Text that an agent can write instead, if goondan cannot be reached.
    #[must_use]
    pub fn instead(self) -> &'static str {
        match self {
            Self::AskPerson => {
                "write your question into your answer instead, between the lines [USER_QUESTION] and [/USER_QUESTION], \
                 as `question: …`"
            }
            Self::RequestDependency => {
                "write your request into your answer instead, between the lines [DEPENDENCY_REQUEST] and \
                 [/DEPENDENCY_REQUEST], as `type: …` and `name: …`"
            }
            Self::ReportProgress => "continue with your work",
            Self::SubmitProposal => {
                "write the summary into `summary.md` of the `proposal` directory instead"
            }
            Self::CompletePhase => {
                "write the line `=== PHASE n COMPLETE ===` with its number into your answer instead"
            }
            Self::Finish => {
                "write the line `=== CUSTOM TASK COMPLETE ===` into your answer instead, or `type: fatal` and \
                 `message: …` between the lines [ERROR] and [/ERROR]"
            }
        }
    }
}

/// True if a program calls one of goondan's own tools by this name or title. Some titles end with
/// the arguments.
#[must_use]
pub fn is_own_tool(name: &str) -> bool {
    is_own_name(name)
        || name
            .split_once(": ")
            .is_some_and(|(name, _)| is_own_name(name))
}

/// True if a permission request is for a call of goondan's own tool. Its title must be the name of
/// the tool and nothing else, because other titles contain commands.
#[must_use]
pub fn is_own_request(request: &PermissionRequest) -> bool {
    is_own_name(&request.tool)
}

fn is_own_name(name: &str) -> bool {
    const FORMS: [(&str, &str); 5] = [
        ("mcp__goondan__", ""),
        ("mcp.goondan.", ""),
        ("goondan_", ""),
        ("goondan.", ""),
        ("", " (goondan MCP Server)"),
    ];
    let mut forms = FORMS.into_iter();
    let stripped = forms.find_map(|(before, after)| name.strip_prefix(before)?.strip_suffix(after));
    stripped.and_then(Tool::find).is_some()
}

fn parse<T: DeserializeOwned>(arguments: &JsonObject) -> Result<T, String> {
    serde_json::from_value(Value::Object(arguments.clone())).map_err(|error| error.to_string())
}

fn bounded(field: &str, text: &str) -> Result<String, String> {
    if text.chars().nth(FIELD_CHARS_MAX).is_some() {
        return Err(format!(
            "`{field}` is over {FIELD_CHARS_MAX} characters long; shorten it"
        ));
    }
    Ok(text.trim().to_owned())
}

fn needed(field: &str, text: &str) -> Result<String, String> {
    let text = bounded(field, text)?;
    if text.is_empty() {
        return Err(format!("`{field}` is empty"));
    }
    Ok(text)
}

/// Optional text; an empty one counts as absent.
fn optional(field: &str, text: Option<String>) -> Result<Option<String>, String> {
    let text = text.map(|text| bounded(field, &text)).transpose()?;
    Ok(text.filter(|text| !text.is_empty()))
}

fn question(asked: AskPerson) -> Result<UserQuestion, String> {
    let options = asked.options.unwrap_or_default();
    if options.len() > OPTIONS_MAX {
        return Err(format!("`options` lists more than {OPTIONS_MAX}"));
    }
    let options = options.iter().map(|option| needed("options", option));
    let options: Vec<String> = options.collect::<Result<_, _>>()?;
    let usual = if options.is_empty() {
        QuestionCategory::Clarification
    } else {
        QuestionCategory::Choice
    };
    Ok(UserQuestion {
        category: asked.category.unwrap_or(usual),
        question: needed("question", &asked.question)?,
        options,
        default: optional("default", asked.default)?,
        required: asked.required.unwrap_or(true),
    })
}

fn dependency(asked: RequestDependency) -> Result<DependencyRequest, String> {
    let name = needed("name", &asked.name)?;
    if asked.kind.is_environment() && !is_environment_name(&name) {
        return Err(format!(
            "`name` is `{name}`; it must be a name of the environment: letters, digits and `_`"
        ));
    }
    if name.contains('\n') {
        return Err("`name` must be one line".to_owned());
    }
    Ok(DependencyRequest {
        kind: asked.kind,
        name,
        description: optional("description", asked.description)?.unwrap_or_default(),
        required: asked.required.unwrap_or(true),
        default: optional("default", asked.default)?,
    })
}

fn progress(reported: ReportProgress) -> Result<Call, String> {
    let mut events = Vec::new();
    if let Some(percent) = reported.percent {
        if percent > 100 {
            return Err(format!("`percent` is {percent}; it must be at most 100"));
        }
        events.push(CallEvent::Progress(Progress::Percent(percent)));
    }
    if let Some(step) = optional("step", reported.step)? {
        let title = step.split_whitespace().collect::<Vec<_>>().join(" ");
        events.push(CallEvent::Progress(Progress::Step {
            number: 1,
            total: None,
            title,
        }));
    }
    if events.is_empty() {
        return Err("`percent` and `step` are missing; give one of them".to_owned());
    }
    Ok(Call::Events(events))
}

fn paths(documents: Option<Vec<String>>) -> Result<Vec<String>, String> {
    let documents = documents.unwrap_or_default();
    if documents.len() > DOCUMENTS_MAX {
        return Err(format!("`documents` lists more than {DOCUMENTS_MAX}"));
    }
    let paths = documents.iter().map(|path| {
        let path = path.strip_prefix("./").unwrap_or(path);
        document_of(path).map_err(|problem| problem.to_string())
    });
    paths.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(tool: &str, arguments: Value) -> Result<Call, String> {
        let Value::Object(arguments) = arguments else {
            panic!("{arguments}");
        };
        Tool::find(tool).unwrap().read(&arguments)
    }

    fn block(tool: &str, arguments: Value) -> Block {
        match read(tool, arguments).unwrap() {
            Call::Events(events) => match &events[..] {
                [CallEvent::Message(block)] => block.clone(),
                other => panic!("{other:?}"),
            },
            other @ Call::Summary(_) => panic!("{other:?}"),
        }
    }

    /// The block that an agent would write.
    fn written(text: &str) -> Block {
        use crate::blocks::{ScanItem, Scanner};
        let mut scanner = Scanner::new("");
        let mut found = scanner.push(text.as_bytes());
        found.extend(scanner.end());
        match &found[..] {
            [ScanItem::Block(block)] => block.clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn agent_2_a_call_means_the_same_as_its_block() {
        assert_eq!(
            block(
                "ask_person",
                json!({"question": " Which database? ", "options": ["PostgreSQL", "SQLite"], "default": "SQLite",
                       "required": false})
            ),
            written(
                "[USER_QUESTION]\ncategory: choice\nquestion: Which database?\noptions:\n- PostgreSQL\n- SQLite\n\
                 default: SQLite\nrequired: false\n[/USER_QUESTION]\n"
            )
        );
        assert_eq!(
            block("ask_person", json!({"question": "Which?", "options": null})),
            written("[USER_QUESTION]\nquestion: Which?\n[/USER_QUESTION]\n")
        );
        assert_eq!(
            block(
                "request_dependency",
                json!({"type": "api_key", "name": "STRIPE_KEY", "description": "Sends payments."})
            ),
            written(
                "[DEPENDENCY_REQUEST]\ntype: api_key\nname: STRIPE_KEY\ndescription: Sends payments.\n\
                 [/DEPENDENCY_REQUEST]\n"
            )
        );
        assert_eq!(
            block(
                "complete_phase",
                json!({"phase": 2, "documents": ["./docs/a.md"]})
            ),
            written("=== PHASE 2 COMPLETE ===\n\nDocuments created:\n- docs/a.md\n")
        );
        assert_eq!(
            block("finish", json!({})),
            written("=== CUSTOM TASK COMPLETE ===\n")
        );
        assert_eq!(
            block("finish", json!({"failure": "There is no API."})),
            written("[ERROR]\ntype: fatal\nmessage: There is no API.\n[/ERROR]\n")
        );
        let summary = read("submit_proposal", json!({"summary": "I did it."}));
        assert_eq!(summary, Ok(Call::Summary("I did it.".to_owned())));
        let progress = read(
            "report_progress",
            json!({"percent": 40, "step": "Test\nit"}),
        );
        let Ok(Call::Events(events)) = progress else {
            panic!("{progress:?}");
        };
        assert_eq!(
            events[0],
            CallEvent::Progress(Progress::Percent(40)),
            "{events:?}"
        );
        assert!(
            matches!(&events[1], CallEvent::Progress(Progress::Step { title, .. }) if title == "Test it"),
            "{events:?}"
        );
    }

    #[test]
    fn agent_2_invalid_arguments_are_refused_with_the_reason() {
        let long = "x".repeat(FIELD_CHARS_MAX + 1);
        for (tool, arguments, reason) in [
            ("ask_person", json!({}), "missing field `question`"),
            (
                "ask_person",
                json!({"question": " "}),
                "`question` is empty",
            ),
            (
                "ask_person",
                json!({"question": long}),
                "over 10000 characters",
            ),
            (
                "ask_person",
                json!({"question": "a", "answers": []}),
                "unknown field `answers`",
            ),
            (
                "ask_person",
                json!({"question": "a", "category": "x"}),
                "unknown variant `x`",
            ),
            (
                "ask_person",
                json!({"question": "a", "options": vec!["x"; OPTIONS_MAX + 1]}),
                "more than 100",
            ),
            (
                "request_dependency",
                json!({"type": "api_key", "name": "A B"}),
                "a name of the environment",
            ),
            (
                "request_dependency",
                json!({"type": "file", "name": "a\nb"}),
                "must be one line",
            ),
            ("report_progress", json!({}), "give one of them"),
            ("report_progress", json!({"percent": 101}), "at most 100"),
            ("report_progress", json!({"percent": -1}), "invalid value"),
            ("submit_proposal", json!({"summary": 1}), "invalid type"),
            ("complete_phase", json!({"phase": 0}), "numbered from 1"),
            ("complete_phase", json!({"phase": "1"}), "invalid type"),
            (
                "complete_phase",
                json!({"phase": 1, "documents": ["../x"]}),
                "a path in the work area",
            ),
            (
                "complete_phase",
                json!({"phase": 1, "documents": ["/etc/x"]}),
                "a path in the work area",
            ),
            (
                "finish",
                json!({"documents": vec!["x"; DOCUMENTS_MAX + 1]}),
                "more than 1000",
            ),
            ("finish", json!({"failure": ""}), "`failure` is empty"),
        ] {
            let refused = read(tool, arguments).unwrap_err();
            assert!(refused.contains(reason), "{tool}: {refused}");
        }
    }

    #[test]
    fn agent_2_own_tools_are_known_by_the_names_of_each_program() {
        for name in [
            "mcp__goondan__complete_phase",
            "mcp.goondan.finish",
            "goondan_ask_person",
            "complete_phase (goondan MCP Server)",
        ] {
            assert!(is_own_tool(name) && is_own_name(name), "{name}");
        }
        let titled = "complete_phase (goondan MCP Server): {}";
        assert!(is_own_tool(titled) && !is_own_name(titled));
        for name in [
            "complete_phase",
            "mcp__other__complete_phase",
            "mcp__goondan__complete_phase; rm -rf /",
            "rm -rf /: complete_phase",
            "rm -rf / (goondan MCP Server)",
            "goondan_",
        ] {
            assert!(!is_own_tool(name), "{name}");
        }
    }

    #[test]
    fn agent_2_each_tool_describes_the_arguments_that_it_reads() {
        for tool in Tool::ALL {
            let entry = tool.entry();
            let properties = entry["inputSchema"]["properties"].as_object().unwrap();
            let unknown = read(tool.name(), json!({"no such": 1})).unwrap_err();
            for name in properties.keys() {
                assert!(unknown.contains(&format!("`{name}`")), "{name}: {unknown}");
            }
            let known = unknown.matches('`').count() / 2 - 1;
            assert_eq!(known, properties.len(), "{unknown}");
        }
    }
}
