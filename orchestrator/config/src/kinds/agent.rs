//! `kind: Agent`: a model, a prompt and tools, or a program ([`cli_agent`]).

use goondan_protocol::budget::Budget;
use goondan_protocol::definition::ModelParams;
use goondan_protocol::ids::AgentName;
use goondan_protocol::process_limits::ProcessLimits;
use goondan_protocol::working_directory::CwdMode;

use super::cli_agent::{self, CliAgentSpec};
use super::fallbacks::FallbackSpec;
use super::inheritance::{INHERIT, INHERIT_FIELD, TEMPLATE, TEMPLATE_FIELD, check_inheritance};
use super::notify::NotifySpec;
use super::runtime::{CLI, RUNTIME_KIND};
use super::{
    Context, budgets, fallbacks, id, notify, params, process_limits, read_named_file, sandbox,
};
use crate::approve::APPROVE;
use crate::document::Document;
use crate::fields::{Fields, LocatedValue};
use crate::kind::ResourceKind;
use crate::limits::{DEFAULT_AGENT_MEMORY_MIB, MAX_PROMPT_BYTES};
use crate::reference::Reference;
use crate::report::SourceLocation;
use crate::shape::{Case, Field, FieldConstraint, FieldDefault, FieldType, Shape, ShapeChoice};

/// Tools of the agent start in the Project Root.
const WORKSPACE: &str = "workspace";
/// Tools of the agent start in the conversation's work directory.
const AGENT_HOME: &str = "agentHome";

impl ResourceKind {
    pub(crate) const AGENT: Self = Self::named("Agent");
}

/// Shape of an Agent's `spec`, by runtime.
pub(crate) static SPEC: ShapeChoice = ShapeChoice {
    field: "runtime",
    cases: &[(Case::Holds("kind", &[CLI]), &cli_agent::SPEC)],
    otherwise: &LLM_SPEC,
};

static LLM_SPEC: Shape = Shape::of(
    "AgentSpec",
    "An agent: a model, a prompt and tools.",
    &[
        Field::optional(
            "description",
            FieldType::Text,
            "The agent's purpose, for people and for other agents that need help.",
        ),
        INHERIT_FIELD,
        TEMPLATE_FIELD,
        Field::optional(
            "modelConfig",
            FieldType::Mapping(&MODEL_CONFIG),
            "The model that answers. Required, unless it is inherited.",
        ),
        Field::optional("prompt", FieldType::Mapping(&PROMPT), "The system prompt."),
        Field::optional(
            "tools",
            FieldType::List(&FieldType::Listed(&LISTED_TOOL)),
            "The tools that the agent may call. Names must be unique.",
        ),
        Field::optional(
            "extensions",
            FieldType::List(&FieldType::Listed(&LISTED_EXTENSION)),
            "The extensions around its turns, outermost first. Names must be unique.",
        ),
        Field::optional(
            "runtime",
            FieldType::Mapping(&TURN_LOOP),
            "The runtime of the agent.",
        ),
        Field::optional(
            "requiredTools",
            FieldType::List(&FieldType::Text),
            "Full names of tools that the agent must call before a turn can end.",
        ),
        budgets::OF_AGENT,
        sandbox::OF_AGENT,
        notify::OF_AGENT,
    ],
)
.with(&[FieldConstraint::RequiredWithout(
    "modelConfig",
    &[INHERIT, TEMPLATE],
)]);

static MODEL_CONFIG: Shape = Shape::of(
    "ModelConfig",
    "The model that answers.",
    &[
        Field::required(
            "modelRef",
            FieldType::Reference(ResourceKind::MODEL),
            "The Model.",
        ),
        Field::optional(
            "params",
            FieldType::Mapping(&params::PARAMS),
            "Parameters of each call; they override the Model's. The scripted model has none.",
        ),
        fallbacks::OF_MODEL_CONFIG,
    ],
);

static PROMPT: Shape = Shape::of(
    "Prompt",
    "The system prompt.",
    &[
        Field::optional("system", FieldType::Text, "The system prompt."),
        Field::optional(
            "systemRef",
            FieldType::Path,
            "Path of a file with the system prompt.",
        ),
    ],
)
.with(&[FieldConstraint::NotBoth("system", "systemRef")]);

static LISTED_TOOL: Shape = Shape::of(
    "ListedTool",
    "A tool that the agent may call, and the calls that need a person's approval.",
    &[
        Field::required("ref", FieldType::Reference(ResourceKind::TOOL), "The Tool."),
        APPROVE,
    ],
);

static LISTED_EXTENSION: Shape = Shape::of(
    "ListedExtension",
    "An extension and its settings for this agent.",
    &[
        Field::required(
            "ref",
            FieldType::Reference(ResourceKind::EXTENSION),
            "The Extension.",
        ),
        Field::optional(
            "config",
            FieldType::Entries(&FieldType::Anything),
            "Settings for this agent.",
        ),
    ],
);

static TURN_LOOP: Shape = Shape::of(
    "TurnLoop",
    "The runtime of the agent.",
    &[
        RUNTIME_KIND,
        Field::optional(
            "cwdMode",
            FieldType::Word(&[WORKSPACE, AGENT_HOME]),
            "The directory in which its tools start processes: `agentHome`, the conversation's \
             work directory, or `workspace`, the Project Root.",
        )
        .or(FieldDefault::Text(AGENT_HOME)),
        Field::optional(
            "limits",
            FieldType::Mapping(&process_limits::LIMITS),
            "Limits of each of the agent's processes, including its tools.",
        ),
    ],
);

#[derive(Debug)]
pub(crate) struct AgentSpec {
    pub(crate) name: AgentName,
    pub(crate) description: Option<String>,
    pub(crate) model: Option<Reference>,
    pub(crate) system_prompt: Option<String>,
    pub(crate) tools: Vec<Reference>,
    pub(crate) extensions: Vec<Reference>,
    /// Full names of the tools that every turn must call, with their places.
    pub(crate) required_tools: Vec<LocatedValue<String>>,
    pub(crate) budgets: Vec<LocatedValue<Budget>>,
    /// Parameters of each model call.
    pub(crate) params: ModelParams,
    /// Their place, if they are given.
    pub(crate) params_place: Option<SourceLocation>,
    pub(crate) fallbacks: Vec<FallbackSpec>,
    pub(crate) runtime: Runtime,
    pub(crate) sandbox: sandbox::SandboxSpec,
    /// Notifications about the agent's tasks.
    pub(crate) notify: Vec<NotifySpec>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Runtime {
    pub(crate) cwd_mode: CwdMode,
    pub(crate) limits: ProcessLimits,
}

impl Default for Runtime {
    fn default() -> Self {
        Self {
            cwd_mode: CwdMode::default(),
            limits: process_limits::of_memory(DEFAULT_AGENT_MEMORY_MIB),
        }
    }
}

/// An Agent document, by runtime.
pub(crate) enum AgentDocument {
    /// A model, a prompt and tools.
    Llm(Box<AgentSpec>),
    /// A program; `None` if it could not be read.
    Cli(Option<Box<CliAgentSpec>>),
}

pub(crate) fn read(document: &Document<'_>, cx: &mut Context<'_>) -> Option<AgentDocument> {
    let name = id(&document.name, &mut cx.report);
    let spec = document.spec(&mut cx.report)?;
    if spec.is_of(&cli_agent::SPEC) {
        return Some(AgentDocument::Cli(
            cli_agent::read(name, spec, cx).map(Box::new),
        ));
    }
    Some(AgentDocument::Llm(Box::new(read_llm(name, spec, cx)?)))
}

/// Reads the `spec` and the prompt of an Agent with a model.
fn read_llm(
    name: Option<AgentName>,
    mut spec: Fields<'_>,
    cx: &mut Context<'_>,
) -> Option<AgentSpec> {
    check_inheritance(&mut spec, cx);
    let description = spec.text("description", &mut cx.report);
    let description = description.map(|text| text.value.to_owned());
    let mut model = None;
    let mut params = ModelParams::default();
    let mut params_place = None;
    let mut fallbacks = Vec::new();
    if let Some(mut config) = spec.nested("modelConfig", &mut cx.report) {
        model = config.reference("modelRef", &mut cx.report);
        params = params::read(&mut config, cx);
        params_place = config.place_of("params");
        fallbacks = fallbacks::read(&mut config, cx);
        config.close();
    }
    let system_prompt = spec
        .nested("prompt", &mut cx.report)
        .and_then(|prompt| read_prompt(prompt, cx));
    let tools = spec.references("tools", &mut cx.report);
    let extensions = spec.references("extensions", &mut cx.report);
    let runtime = read_runtime(&mut spec, cx);
    let required_tools = spec.texts("requiredTools", &mut cx.report);
    let required_tools = required_tools.into_iter().map(|text| LocatedValue {
        value: text.value.to_owned(),
        place: text.place,
    });
    let required_tools = required_tools.collect();
    let budgets = budgets::read(&mut spec, name.as_ref(), &mut cx.report);
    let sandbox = sandbox::read(&mut spec, cx);
    let notify = notify::read(&mut spec, cx);
    spec.close();
    Some(AgentSpec {
        name: name?,
        description,
        model,
        system_prompt,
        tools,
        extensions,
        required_tools,
        budgets,
        params,
        params_place,
        fallbacks,
        runtime,
        sandbox,
        notify,
    })
}

fn read_prompt(mut prompt: Fields<'_>, cx: &mut Context<'_>) -> Option<String> {
    let inline = prompt.text("system", &mut cx.report);
    let path = prompt.text("systemRef", &mut cx.report);
    prompt.close();
    match (inline, path) {
        (Some(inline), _) => Some(inline.value.to_owned()),
        (None, Some(path)) => read_named_file(&path, MAX_PROMPT_BYTES, cx).map(|(_, text)| text),
        (None, None) => None,
    }
}

fn read_runtime(spec: &mut Fields<'_>, cx: &mut Context<'_>) -> Runtime {
    let Some(mut runtime) = spec.nested("runtime", &mut cx.report) else {
        return Runtime::default();
    };
    runtime.word("kind", &mut cx.report);
    let cwd_mode = runtime.word("cwdMode", &mut cx.report);
    let read = Runtime {
        cwd_mode: match cwd_mode.map(|mode| mode.value) {
            Some(WORKSPACE) => CwdMode::Workspace,
            _ => CwdMode::AgentHome,
        },
        limits: process_limits::read(&mut runtime, DEFAULT_AGENT_MEMORY_MIB, cx),
    };
    runtime.close();
    read
}
