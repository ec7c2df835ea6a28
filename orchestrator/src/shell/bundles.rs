//! Executes operations on agents' own configurations (`BUNDLE-7`).

use std::collections::BTreeMap;
use std::path::Path;

use goondan_bundles::{
    BUNDLE_DIR, Bundle, BundleError, CanaryOutcome, ConfigPreflight, RehearsalConfigs,
    Surroundings, Tree, tree_of, waiting_changesets,
};
use goondan_core::{
    BundleAction, BundleCall, BundleChange, BundleResult, BundleStanding, BundleWork,
};
use goondan_durable::disk::Disk as _;
use goondan_protocol::control::{
    ControlError, ErrorCode, ListWaitingChangesets, WaitingChangeset, WaitingChangesetsPage,
};
use goondan_protocol::definition::{AgentAssignment, AgentDefinition, ToolDefinition, ToolSource};
use goondan_protocol::ids::{AgentName, InstanceRef};
use goondan_protocol::limits::{MAX_CHANGESETS_PAGE, MAX_INSTANCES_PAGE};
use goondan_protocol::rehearsal::Rehearsal;
use goondan_protocol::sandbox::Network;
use goondan_store::file_names::instance_dir_name;
use goondan_store::instance::Metadata;
use goondan_trees::{GuardedDisk, RealFiles};
use serde::Serialize;
use serde_json::Value;

use super::replay::{self, RehearsalInput};
use super::workspace_load::{OverlayProject, Projects};

/// Working directory of modules and rehearsals, in the directory of the bundle. Removed afterwards.
const GROUND: &str = "gate";

/// Loads the whole configuration, as the daemon does.
struct FullPreflight<'a> {
    projects: &'a Projects,
    of: OverlayProject<'a>,
    agent: &'a AgentName,
    at: &'a InstanceRef,
    /// The directory of the conversation.
    dir: &'a Path,
}

impl FullPreflight<'_> {
    /// Starts these tools apart from the conversation's files.
    fn start_apart(&self, agent: AgentDefinition) -> Result<(), String> {
        let started = |ground: &Path| self.projects.start_modules(&self.apart(agent, ground));
        self.on_ground(started).and_then(|started| started)
    }

    /// Assignment of an agent process that works apart from the conversation's files.
    fn apart(&self, agent: AgentDefinition, ground: &Path) -> AgentAssignment {
        AgentAssignment {
            workspace_id: self.at.workspace_id.clone(),
            instance_key: self.at.instance_key.clone(),
            agent,
            work_dir: ground.to_owned(),
            project_root: self.of.project_root.to_owned(),
            egress_socket: None,
            package_sockets: BTreeMap::new(),
            sandbox: None,
            run: None,
            changesets: None,
            task: None,
            node: None,
        }
    }

    /// Runs `work` with an empty directory, which is removed afterwards.
    fn on_ground<T>(&self, work: impl FnOnce(&Path) -> T) -> Result<T, String> {
        let ground = self.dir.join(BUNDLE_DIR).join(GROUND);
        let prepared = || {
            GuardedDisk::default().remove_tree(&ground)?;
            std::fs::create_dir(&ground)
        };
        prepared().map_err(|error| format!("failed to create `{}`: {error}", ground.display()))?;
        let done = work(&ground);
        if let Err(error) = GuardedDisk::default().remove_tree(&ground) {
            let path = ground.display();
            tracing::warn!(%path, %error, "failed to remove leftovers of a trial");
        }
        Ok(done)
    }

    /// Plays recorded turns with what was staged.
    fn rehearse(
        &self,
        staged: RehearsalConfigs<Box<AgentDefinition>>,
        turns: u32,
    ) -> Result<Rehearsal, BundleError> {
        let stage = RehearsalInput {
            disk: self.projects.disk.as_ref(),
            agent_process: self.projects.agent_process(),
            instance: self.dir,
            turns,
        };
        let rehearsed = self.on_ground(|ground| {
            replay::rehearse(&stage, staged, |agent| self.apart(agent, ground))
        });
        rehearsed.map_err(BundleError::Invalid)?
    }
}

/// True if a tool is a module that this agent does not have, or has with other exports.
fn is_new_module(tool: &ToolDefinition, before: Option<&AgentDefinition>) -> bool {
    let same = |other: &ToolDefinition| {
        other.source == tool.source && other.exports == tool.exports && other.config == tool.config
    };
    let is_known = before.is_some_and(|agent| agent.tools.iter().any(same));
    matches!(tool.source, ToolSource::Module { .. }) && !is_known
}

impl ConfigPreflight for FullPreflight<'_> {
    type Loaded = Box<AgentDefinition>;

    fn load(&self, files: &Tree) -> Result<Self::Loaded, String> {
        let mut bundle = self.projects.load_overlay(&self.of, files)?;
        let definition = bundle.agents.remove(self.agent);
        let gone = || format!("it has no agent `{}`", self.agent);
        definition.map(Box::new).ok_or_else(gone)
    }

    fn start(&self, before: &Tree, loaded: &Self::Loaded) -> Result<(), String> {
        let is_module = |tool: &ToolDefinition| matches!(tool.source, ToolSource::Module { .. });
        if !loaded.tools.iter().any(is_module) {
            return Ok(());
        }
        let before = self.load(before).ok();
        let mut agent = (**loaded).clone();
        agent
            .tools
            .retain(|tool| is_new_module(tool, before.as_deref()));
        if agent.tools.is_empty() {
            return Ok(());
        }
        // They only start and do no work, so they get no network access.
        agent.sandbox.network = Network::None;
        for modules in &mut agent.package_sandboxes {
            modules.sandbox.network = Network::None;
        }
        agent.extensions.clear();
        agent.extension_sandbox = None;
        self.start_apart(agent)
    }
}

/// Does what the core asks for. Blocks.
pub(super) fn carry_out(projects: &Projects, work: BundleWork) -> BundleResult {
    let mut done = BundleResult {
        instance: work.instance.clone(),
        answer: Ok(Value::Null),
        definition: None,
        standing: None,
        happened: Vec::new(),
    };
    let key = work.instance.instance_key.clone();
    if let Err(error) = perform(projects, work, &mut done) {
        done.answer = Err(error.to_control(&key));
    }
    done
}

fn perform(
    projects: &Projects,
    work: BundleWork,
    done: &mut BundleResult,
) -> Result<(), BundleError> {
    let disk = projects.disk.as_ref();
    let instances = projects.layout.instances(&work.instance.workspace_id);
    let dir = instances.join(instance_dir_name(&work.instance.instance_key));
    let agent = match work.agent {
        Some(agent) => agent,
        None => {
            Metadata::read(disk, &dir)
                .map_err(|_| BundleError::NoInstance)?
                .agent_name
        }
    };
    let gate = FullPreflight {
        projects,
        of: OverlayProject {
            project_root: &work.project_root,
            package: work.package.as_deref(),
            env_files: &work.env_files,
            swarm: work.swarm.as_ref(),
        },
        agent: &agent,
        at: &work.instance,
        dir: &dir,
    };
    let project = work.sources.as_ref();
    let files = projects.files();
    let mut bundle = Bundle::new(Surroundings {
        files: &files,
        instance: &dir,
        agent: &agent,
        project: project.and_then(|sources| tree_of(sources.kept())),
        policy: work.policy,
        gate: &gate,
        at: work.at,
    });
    let result = act(&mut bundle, &gate, work.action, done);
    done.happened = bundle
        .take_happened()
        .into_iter()
        .map(|it| BundleChange {
            what: it.what,
            changeset_id: it.changeset_id,
            revision: it.revision,
            detail: it.detail,
        })
        .collect();
    let standing = bundle.take_standing().map(|it| BundleStanding {
        active: it.active,
        is_pending: it.is_pending,
        is_on_probation: it.is_on_probation,
        problem: it.problem,
    });
    // A failed preparation has already reported its status.
    done.standing = done.standing.take().or(standing);
    result
}

fn act(
    bundle: &mut Bundle<'_, FullPreflight<'_>>,
    gate: &FullPreflight<'_>,
    action: BundleAction,
    done: &mut BundleResult,
) -> Result<(), BundleError> {
    match action {
        BundleAction::Arm { is_author } => {
            if is_author {
                bundle.prepare()?;
            }
            let armed = bundle.arm().inspect_err(|error| {
                done.standing = Some(BundleStanding {
                    problem: Some(error.in_words()),
                    ..BundleStanding::default()
                });
            })?;
            done.definition = armed
                .loaded
                .map(|definition| with_notice(definition, armed.notice));
        }
        BundleAction::Note(outcome) => bundle.note(&match outcome {
            goondan_core::ConfigOutcome::Completed => CanaryOutcome::Completed,
            goondan_core::ConfigOutcome::Failed(why) => CanaryOutcome::Failed(why),
            goondan_core::ConfigOutcome::Neutral => CanaryOutcome::Neutral,
        })?,
        BundleAction::Ask { ask, call } => done.answer = answer(&bundle.ask(&ask, &call)?),
        BundleAction::Serve(call) => {
            done.answer = match call {
                BundleCall::Show => answer(&bundle.status()?),
                BundleCall::Log => answer(&bundle.logs()?),
                BundleCall::Changeset(id) => answer(&bundle.show(&id)?),
                BundleCall::Rehearse(subject, turns) => {
                    replay::check_turns(turns)?;
                    answer(&gate.rehearse(bundle.stage(&subject)?, turns)?)
                }
                BundleCall::Approve(id, reason) => answer(&bundle.approve(&id, &reason)?),
                BundleCall::Reject(id, reason) => answer(&bundle.reject(&id, &reason)?),
                BundleCall::Revert(to, reason) => answer(&bundle.revert(to.as_ref(), &reason)?),
                BundleCall::Pin(pinned) => answer(&bundle.pin(pinned)?),
            };
        }
    }
    Ok(())
}

/// Returns a page of the changesets of these conversations that wait for a person.
pub(super) fn waiting(
    instances: &Path,
    mut known: Vec<Metadata>,
    list: &ListWaitingChangesets,
) -> WaitingChangesetsPage {
    if let Some(after) = &list.after {
        known.retain(|metadata| metadata.instance_key > *after);
    }
    known.sort_by(|one, other| one.instance_key.cmp(&other.instance_key));
    let limit = list.limit.unwrap_or(MAX_CHANGESETS_PAGE);
    let limit = limit.clamp(1, MAX_CHANGESETS_PAGE);
    let mut page = WaitingChangesetsPage::default();
    let mut bundles = 0;
    let mut left = known.into_iter().peekable();
    while let Some(metadata) = left.next() {
        let (key, agent_name) = (metadata.instance_key, metadata.agent_name);
        let dir = instances.join(instance_dir_name(&key));
        match waiting_changesets(&RealFiles, &dir) {
            Ok(None) => continue,
            Ok(Some(found)) => {
                let changesets = found.into_iter().map(|changeset| WaitingChangeset {
                    instance_key: key.clone(),
                    agent_name: agent_name.clone(),
                    changeset,
                });
                page.changesets.extend(changesets);
            }
            Err(error) => {
                tracing::warn!(
                    instance_key = %key,
                    error = &error as &dyn std::error::Error,
                    "failed to read changesets of a conversation"
                );
                page.unreadable.push(key.clone());
            }
        }
        bundles += 1;
        if page.changesets.len() >= limit || bundles >= MAX_INSTANCES_PAGE {
            page.next = left.peek().is_some().then_some(key);
            break;
        }
    }
    page
}

/// Adds a notice to the agent's system prompt.
fn with_notice(
    mut definition: Box<AgentDefinition>,
    notice: Option<String>,
) -> Box<AgentDefinition> {
    if let Some(notice) = notice {
        let prompt = definition.system_prompt.take().unwrap_or_default();
        let prompt = format!("{prompt}\n\nAbout your configuration: {notice}");
        definition.system_prompt = Some(prompt.trim_start().to_owned());
    }
    definition
}

fn answer(result: &impl Serialize) -> Result<Value, ControlError> {
    serde_json::to_value(result)
        .map_err(|error| ControlError::new(ErrorCode::Internal, error.to_string()))
}
