//! Selects the agent for a new task (`TASK-8`).

use std::path::PathBuf;

use goondan_config::ProjectConfig;
use goondan_protocol::control::{ControlError, ErrorCode};
use goondan_protocol::ids::{AgentName, WorkspaceId};
use goondan_protocol::limits::MAX_FALLBACK_AGENTS;
use goondan_protocol::task::{CliAgentDefinition, TaskChecks, TaskSource};
use goondan_tasks::fact::{FallbackAgent, Runtime};
use goondan_tasks::plain_area::PlainWorker;

use crate::fleet::{Fleet, bundle_of};

/// The agent for a task.
pub(super) struct Worker {
    pub(super) name: AgentName,
    pub(super) runtime: Runtime,
    pub(super) tells_result: bool,
    pub(super) source: TaskSource,
    /// The commands beside its program, if it is one and its task works on a copy of the project.
    checks: TaskChecks,
    pub(super) guide: Option<PathBuf>,
}

impl Worker {
    fn program(agent: &CliAgentDefinition) -> Self {
        Self {
            name: agent.name.clone(),
            runtime: Runtime::Cli,
            tells_result: agent.format.tells_result(),
            source: agent.source.clone(),
            checks: agent.checks(),
            guide: agent.guide.clone(),
        }
    }

    fn converses(name: &AgentName) -> Self {
        Self {
            name: name.clone(),
            runtime: Runtime::Llm,
            // The outcome of its turn is known.
            tells_result: true,
            source: TaskSource::None,
            checks: TaskChecks::default(),
            guide: None,
        }
    }

    /// Commands that run besides the agent's program for a task with this source.
    pub(super) fn checks(&self, source: &TaskSource) -> TaskChecks {
        match source {
            TaskSource::None => TaskChecks::default(),
            TaskSource::Project | TaskSource::Repository(_) => self.checks,
        }
    }

    /// The named agent; by default the only program, or the only agent if there are no programs.
    fn find(bundle: &ProjectConfig, named: Option<&AgentName>) -> Option<Self> {
        let mut programs = bundle.cli_agents();
        let mut others = bundle.agents.keys();
        match (named, programs.len(), others.len()) {
            (Some(name), _, _) => match bundle.cli_agent(name) {
                Some(agent) => Some(Self::program(agent)),
                None => bundle
                    .agents
                    .get_key_value(name)
                    .map(|(name, _)| Self::converses(name)),
            },
            (None, 1, _) => programs.next().map(Self::program),
            (None, 0, 1) => others.next().map(Self::converses),
            (None, _, _) => None,
        }
    }
}

impl From<Worker> for PlainWorker {
    fn from(worker: Worker) -> Self {
        Self {
            agent: worker.name,
            runtime: worker.runtime,
            tells_result: worker.tells_result,
        }
    }
}

/// The agents that continue a new task after its first agent: the named ones, or those of the
/// first agent's configuration.
pub(super) fn fallbacks_for(
    fleet: &Fleet,
    id: &WorkspaceId,
    first: &Worker,
    named: Option<Vec<AgentName>>,
) -> Result<Vec<FallbackAgent>, ControlError> {
    let bundle = bundle_of(fleet.workspace(id)?)?;
    let own = bundle.cli_agent(&first.name);
    let names = named.unwrap_or_else(|| own.map(|own| own.fallbacks.clone()).unwrap_or_default());
    let refusal = |text: String, hint: &str| {
        Err(ControlError::new(ErrorCode::TaskRefused, text).suggest(hint))
    };
    if own.is_none() && !names.is_empty() {
        let text = format!("agent `{}` is not a program", first.name);
        return refusal(text, "only programs can continue a task; omit `--fallback`");
    }
    if names.len() > MAX_FALLBACK_AGENTS {
        let text = format!("more than {MAX_FALLBACK_AGENTS} agents to continue the task");
        return refusal(text, "name fewer agents with `--fallback`");
    }
    let mut agents: Vec<FallbackAgent> = Vec::new();
    for name in names {
        if name == first.name || agents.iter().any(|known| known.agent == name) {
            let text = format!("agent `{name}` is named twice");
            return refusal(text, "name each agent of the task once");
        }
        let Some(agent) = bundle.cli_agent(&name) else {
            let text = format!("agent `{name}` does not exist, or is not a program");
            let programs = bundle.cli_agents().map(|agent| agent.name.as_str());
            let programs: Vec<&str> = programs.collect();
            let hint = format!("choose from: {}", programs.join(", "));
            return Err(ControlError::new(ErrorCode::AgentNotFound, text).suggest(hint));
        };
        agents.push(FallbackAgent {
            agent: name,
            tells_result: agent.format.tells_result(),
        });
    }
    Ok(agents)
}

/// The agent for a new task.
pub(super) fn worker_for(
    fleet: &Fleet,
    id: &WorkspaceId,
    named: Option<&AgentName>,
) -> Result<Worker, ControlError> {
    let bundle = bundle_of(fleet.workspace(id)?)?;
    Worker::find(bundle, named).ok_or_else(|| {
        let programs = bundle.cli_agents().map(|agent| &agent.name);
        let names = programs.chain(bundle.agents.keys());
        let names: Vec<&str> = names.map(AgentName::as_str).collect();
        let text = match named {
            Some(name) => format!("agent `{name}` does not exist"),
            None => "the project has several agents, and the task has none".to_owned(),
        };
        let hint = format!("choose one with `--agent`: {}", names.join(", "));
        ControlError::new(ErrorCode::AgentNotFound, text).suggest(hint)
    })
}
