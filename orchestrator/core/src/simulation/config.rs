//! Configurations of the simulated project, and a user's edits.

use std::collections::BTreeMap;

use goondan_config::{ConnectionDefinition, IngressRule, KeyRule, ProjectConfig};
use goondan_protocol::JsonObject;
use goondan_protocol::base_package::BASE_PACKAGE;
use goondan_protocol::budget::{Budget, BudgetPeriod, BudgetScope};
use goondan_protocol::control::{ControlError, ErrorCode};
use goondan_protocol::definition::{
    AgentDefinition, HostedModel, HostedProvider, LoopBreaker, ModelDefinition, ModelParams,
    ModelProvider, ModelTimeouts, OpenAiApi, ToolDefinition, ToolSource,
};
use goondan_protocol::ids::{AgentName, ConnectionName, InstanceKey, ResourceName};
use goondan_protocol::ipc::ChildRole;
use goondan_protocol::process_limits::ProcessLimits;
use goondan_protocol::working_directory::CwdMode;
use serde_json::json;

pub(super) const PROJECT: &str = "/projects/shop";
pub(super) const ENTRY_AGENT: &str = "clerk";
pub(super) const HELPER_AGENT: &str = "helper";
pub(super) const MODEL: &str = "big";
pub(super) const OTHER_MODEL: &str = "small";
/// The connection that every edit keeps.
pub(super) const CONNECTION: &str = "a";
/// The connection that no tool uses and that shows pending approvals.
pub(super) const OTHER_CONNECTION: &str = "b";

/// Content of `goondan.yaml`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Edit {
    /// Two agents and two connections, which differ for each number.
    Valid(u32),
    /// Like `Valid`; each number makes one agent or connection different, the last one the swarm.
    Partial([u32; 5]),
    /// Like `Valid`, without the second agent and the second connection.
    Smaller,
    /// Like `Valid`, with conversations that expire.
    Expiring,
    /// Like `Valid`, with a token limit for all model replies, and half of it for each agent and
    /// each conversation.
    Budgeted(u64),
    /// Like `Valid`, with this variant of one model.
    OtherModel(u32),
    Broken,
}

/// The user who may decide in the chat of [`OTHER_CONNECTION`].
pub(super) const USER: &str = "1";
/// A user who may not decide there.
pub(super) const STRANGER: &str = "2";

/// Maximum length of a model's reply, in tokens.
pub(super) const REPLY_TOKENS_MAX: u32 = u32::MAX;

/// Retention of conversations with [`Edit::Expiring`], including the grace period, in milliseconds.
pub(super) const KEEP_MS: u64 = 3_600_000;

impl Edit {
    pub(crate) fn bundle(self) -> Result<ProjectConfig, ControlError> {
        match self {
            Self::Valid(n) => Ok(bundle(n, &[ENTRY_AGENT, HELPER_AGENT], &["a", "b"])),
            Self::Partial([entry, helper, a, b, swarm]) => {
                let mut bundle = bundle(0, &[ENTRY_AGENT, HELPER_AGENT], &["a", "b"]);
                for (name, variant) in [(ENTRY_AGENT, entry), (HELPER_AGENT, helper)] {
                    let name: AgentName = name.parse().unwrap();
                    bundle.agents.insert(name.clone(), agent(name, variant));
                }
                for (name, variant) in [("a", a), ("b", b)] {
                    let name: ConnectionName = name.parse().unwrap();
                    bundle
                        .connections
                        .insert(name.clone(), connection(name, variant));
                }
                bundle.grace_period_ms += u64::from(swarm);
                bundle.digest = format!("{:?}", [entry, helper, a, b, swarm]);
                Ok(bundle)
            }
            Self::Smaller => {
                let mut bundle = bundle(0, &[ENTRY_AGENT], &["a"]);
                bundle.digest = "smaller".to_owned();
                Ok(bundle)
            }
            Self::Expiring => {
                let mut bundle = bundle(0, &[ENTRY_AGENT], &["a"]);
                bundle.digest = "expiring".to_owned();
                bundle.lifecycle.ttl_ms = Some(KEEP_MS / 2);
                bundle.lifecycle.gc_grace_ms = KEEP_MS / 2;
                Ok(bundle)
            }
            Self::Budgeted(tokens) => {
                let mut bundle = bundle(0, &[ENTRY_AGENT, HELPER_AGENT], &["a", "b"]);
                bundle.digest = format!("budgeted {tokens}");
                let budget = |scope, tokens| Budget {
                    scope,
                    agent: None,
                    period: BudgetPeriod::Ever,
                    tokens: Some(tokens),
                    micro_usd: None,
                };
                bundle.budgets = vec![
                    budget(BudgetScope::Workspace, tokens),
                    budget(BudgetScope::Agent, tokens / 2),
                    budget(BudgetScope::Instance, tokens / 2),
                ];
                Ok(bundle)
            }
            Self::OtherModel(variant) => {
                let mut bundle = bundle(0, &[ENTRY_AGENT, HELPER_AGENT], &["a", "b"]);
                bundle.models.extend([model(OTHER_MODEL, variant)]);
                bundle.digest = format!("model {variant}");
                Ok(bundle)
            }
            Self::Broken => {
                let message = "line 3: unknown field `agnet`";
                Err(ControlError::new(ErrorCode::InvalidConfiguration, message))
            }
        }
    }
}

fn bundle(variant: u32, agents: &[&str], connections: &[&str]) -> ProjectConfig {
    let agents: BTreeMap<AgentName, AgentDefinition> = agents
        .iter()
        .map(|name| {
            let name: AgentName = name.parse().unwrap();
            (name.clone(), agent(name, variant))
        })
        .collect();
    let connections = connections.iter().map(|name| {
        let name: ConnectionName = name.parse().unwrap();
        (name.clone(), connection(name, variant))
    });
    ProjectConfig {
        package: None,
        swarm: None,
        idle_swarms: Vec::new(),
        conversation_key: None,
        entry_agent: ENTRY_AGENT.parse().ok(),
        agents,
        cli_agents: BTreeMap::new(),
        notify: BTreeMap::new(),
        connections: connections.collect(),
        local: None,
        models: [MODEL, OTHER_MODEL].map(|name| model(name, variant)).into(),
        oauth_apps: BTreeMap::new(),
        oauth_needs: std::collections::BTreeSet::new(),
        prices: BTreeMap::new(),
        budgets: Vec::new(),
        grace_period_ms: 20_000,
        lifecycle: goondan_config::Lifecycle::default(),
        observation: goondan_protocol::observe::ObservationBounds::default(),
        tasks: goondan_config::TaskPolicy::default(),
        approvals: goondan_config::ApprovalPolicy::default(),
        changesets: None,
        undecided_permissions: Vec::new(),
        appliers: BTreeMap::new(),
        digest: variant.to_string(),
    }
}

/// A built-in tool that uses these connections.
fn tool(name: &str, connections: &[&str]) -> ToolDefinition {
    let connections = connections.iter().map(|name| name.parse().unwrap());
    ToolDefinition {
        name: name.parse().unwrap(),
        source: ToolSource::Builtin {
            package: BASE_PACKAGE.to_owned(),
            name: name.parse().unwrap(),
        },
        exports: Vec::new(),
        config: JsonObject::new(),
        connections: connections.collect(),
        approve: Vec::new(),
        error_message_limit: 1_000,
    }
}

fn agent(name: AgentName, variant: u32) -> AgentDefinition {
    let model = if name.as_str() == ENTRY_AGENT {
        MODEL
    } else {
        OTHER_MODEL
    };
    AgentDefinition {
        name,
        description: None,
        system_prompt: Some(format!("variant {variant}")),
        model: ModelDefinition {
            name: model.parse().unwrap(),
            model: model.to_owned(),
            provider: ModelProvider::Connector {
                params: ModelParams::default(),
                fallbacks: Vec::new(),
            },
        },
        tools: vec![
            tool("telegram", &[CONNECTION]),
            tool("agents", &[]),
            tool("self-restart", &[]),
        ],
        extensions: Vec::new(),
        max_steps_per_turn: 32,
        loop_breaker: LoopBreaker::default(),
        cwd_mode: CwdMode::default(),
        limits: ProcessLimits::default(),
        secret_files: Vec::new(),
        sandbox: goondan_protocol::sandbox::SandboxPolicy::off(),
        package_sandboxes: Vec::new(),
        extension_sandbox: None,
        skills: Vec::new(),
        contract: goondan_protocol::base_package::BaseContract::Own,
        swarm: None,
        project_work: None,
    }
}

/// Two models with one key. An edit changes more than the key of one of them.
fn model(name: &str, variant: u32) -> (ResourceName, HostedModel) {
    let version = if name == OTHER_MODEL { variant } else { 0 };
    let name: ResourceName = name.parse().unwrap();
    let model = HostedModel {
        name: name.clone(),
        provider: HostedProvider::OpenAi,
        api: OpenAiApi::default(),
        platform: None,
        model: format!("m{version}"),
        endpoint: None,
        api_key: Some(format!("key {variant}")),
        params: ModelParams {
            max_tokens: Some(REPLY_TOKENS_MAX),
            ..ModelParams::default()
        },
        timeouts: ModelTimeouts::default(),
        prompt_caching: true,
        send_reasoning: None,
        options: JsonObject::new(),
        limits: ProcessLimits::default(),
    };
    (name, model)
}

fn connection(name: ConnectionName, variant: u32) -> ConnectionDefinition {
    let (connector, setting) = if name.as_str() == OTHER_CONNECTION {
        let approvals = json!({"chat": variant, "users": [USER]});
        ("telegram", ("approvals".to_owned(), approvals))
    } else {
        ("webhook", ("port".to_owned(), (8_000 + variant).into()))
    };
    ConnectionDefinition {
        name,
        connector: connector.parse().unwrap(),
        entry: None,
        entry_digest: None,
        config: JsonObject::from_iter([setting]),
        secrets: BTreeMap::new(),
        rules: vec![IngressRule {
            event: None,
            properties: BTreeMap::new(),
            agent: None,
            // Clients use its conversations, too.
            key: KeyRule::FromEvent {
                prefix: Some(String::new()),
            },
            join: None,
        }],
        header: None,
        keeps_payload: true,
        limits: ProcessLimits::default(),
        sandbox: goondan_protocol::sandbox::SandboxPolicy::default(),
        egress: Vec::new(),
    }
}

/// The key of an agent's conversation: unchanged for the entry agent (`INST-3`).
pub(super) fn key_of(agent: &str, conversation: &str) -> InstanceKey {
    let key = if agent == ENTRY_AGENT {
        conversation.to_owned()
    } else {
        format!("{agent}:{conversation}")
    };
    key.parse().unwrap()
}

/// True if an edit changes an agent, a connection, a model or the swarm.
pub(super) fn concerns(
    before: Option<&ProjectConfig>,
    after: Option<&ProjectConfig>,
    role: ChildRole,
    name: &str,
) -> bool {
    let (Some(before), Some(after)) = (before, after) else {
        return false;
    };
    let is_another = match role {
        ChildRole::Agent => {
            let name: AgentName = name.parse().unwrap();
            before.agents.get(&name) != after.agents.get(&name)
        }
        ChildRole::Connector => {
            let name: ConnectionName = name.parse().unwrap();
            before.connections.get(&name) != after.connections.get(&name)
        }
        ChildRole::Task => false,
        ChildRole::Model => {
            let name = name.parse().unwrap();
            before.models.get(&name) != after.models.get(&name)
        }
    };
    let swarm = |bundle: &ProjectConfig| {
        let entry_agent = bundle.entry_agent.clone();
        (entry_agent, bundle.grace_period_ms, bundle.lifecycle)
    };
    is_another || swarm(before) != swarm(after)
}
