//! Lets the agent binary play the turns of incidents with a configuration.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use goondan_protocol::definition::AgentAssignment;
use goondan_protocol::ids::{AgentName, InstanceKey, WorkspaceId};
use goondan_protocol::ipc::REPLAY;
use goondan_protocol::message::Message;
use goondan_protocol::replay::{PlayedTurn, ReplayOutput, ReplayScript, ReplayTurn};
use goondan_protocol::usage::{MicroUsd, ReplyCost};
use goondan_protocol::working_directory::{ProcessPurpose, working_directory};

use super::comparison::{Divergence, PlaybackFacts, compare};
use super::configuration::ReplayConfiguration;
use super::file::{Incident, IncidentTurn};
use super::limits::{INCIDENT_BYTES_MAX, REPLAY_TIMEOUT_MS};
use super::redaction::Redaction;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::programs::{AGENT_PROCESS, place_of};

/// Variables that the agent binary gets; it starts no program and uses no network.
const PASSED_ON: [&str; 2] = ["PATH", "HOME"];
/// Workspace of replays: no tool or extension shows it to a model.
const WORKSPACE: &str = "replay";

/// A turn of an incident, played again.
#[derive(Debug)]
pub(super) enum ReplayedTurn {
    Played {
        turn: Box<PlayedTurn>,
        costs: BTreeMap<u32, MicroUsd>,
    },
    /// The configuration does not have its agent.
    NoAgent,
}

impl ReplayedTurn {
    /// The differences from the recorded playback.
    pub(super) fn divergences(&self, incident: &Incident, turn: &IncidentTurn) -> Vec<Divergence> {
        match self {
            Self::Played {
                turn: played,
                costs,
            } => {
                let recorded = PlaybackFacts {
                    played: &turn.played,
                    costs: &turn.costs,
                };
                compare(recorded, PlaybackFacts { played, costs }, turn.first)
            }
            Self::NoAgent => {
                let conversation = incident.conversation(turn);
                let agent = conversation.map_or("", |it| it.agent_name.as_str());
                vec![Divergence::without_agent(agent)]
            }
        }
    }
}

/// Plays the turns of incidents, in their order, with one run of the agent binary. Blocks.
///
/// # Errors
///
/// The agent binary cannot be started, fails, or takes too long.
pub(super) fn replay(
    incidents: &[&Incident],
    configuration: &ReplayConfiguration,
    redaction: &Redaction,
) -> Result<Vec<Vec<ReplayedTurn>>, Failure> {
    let work = tempfile::tempdir()?;
    let work_dir = work.path().canonicalize()?;
    let mut script = ReplayScript {
        assignments: Vec::new(),
        conversations: Vec::new(),
        turns: Vec::new(),
    };
    let mut known: BTreeMap<(AgentName, InstanceKey), usize> = BTreeMap::new();
    let mut is_played: Vec<Vec<bool>> = Vec::new();
    for incident in incidents {
        let conversations = script.conversations.len();
        let messages = incident.conversations.iter().map(|it| it.messages.clone());
        script.conversations.extend(messages);
        let mut of_incident = Vec::new();
        for turn in &incident.turns {
            let conversation = incident.conversation(turn);
            let agent = conversation.and_then(|it| {
                let agent = configuration.agents.get(&it.agent_name)?;
                Some((agent, &it.instance_key))
            });
            let Some((agent, instance_key)) = agent else {
                of_incident.push(false);
                continue;
            };
            let owner = (agent.name.clone(), instance_key.clone());
            let assignment = match known.get(&owner) {
                Some(assignment) => *assignment,
                None => {
                    script.assignments.push(AgentAssignment {
                        workspace_id: workspace()?,
                        instance_key: instance_key.clone(),
                        agent: redaction.masked(agent)?,
                        work_dir: work_dir.clone(),
                        project_root: configuration.root.clone(),
                        egress_socket: None,
                        package_sockets: BTreeMap::new(),
                        sandbox: None,
                        run: None,
                        changesets: None,
                        task: None,
                        node: None,
                    });
                    known.insert(owner, script.assignments.len() - 1);
                    script.assignments.len() - 1
                }
            };
            script.turns.push(ReplayTurn {
                assignment,
                conversation: conversations + turn.conversation,
                turn_id: turn.turn_id.clone(),
                first: turn.first,
                count: turn.count,
                failures: turn.failures.clone(),
            });
            of_incident.push(true);
        }
        is_played.push(of_incident);
    }
    let count = script.turns.len();
    let played = if count == 0 {
        Vec::new()
    } else {
        run(&script)?.turns
    };
    if played.len() != count {
        return Err(unusable("it answered for other turns"));
    }
    let mut played = played.into_iter();
    let replayed = incidents
        .iter()
        .zip(is_played)
        .map(|(incident, is_played)| {
            let turns = incident.turns.iter().zip(is_played);
            let turns = turns.map(|(turn, is_played)| {
                let played = if is_played { played.next() } else { None };
                played.map_or(ReplayedTurn::NoAgent, |played| ReplayedTurn::Played {
                    turn: Box::new(played),
                    costs: costs_of(incident, turn, configuration),
                })
            });
            turns.collect()
        });
    Ok(replayed.collect())
}

fn workspace() -> Result<WorkspaceId, Failure> {
    WorkspaceId::new(WORKSPACE).map_err(|error| Failure::of(Exit::Internal, &error, "report it"))
}

/// Costs of the recorded replies at the prices of a configuration, by step.
fn costs_of(
    incident: &Incident,
    turn: &IncidentTurn,
    configuration: &ReplayConfiguration,
) -> BTreeMap<u32, MicroUsd> {
    let conversation = incident.conversation(turn);
    let agent = conversation.and_then(|it| configuration.agents.get(&it.agent_name));
    let prices = agent.and_then(|agent| configuration.prices.get(&agent.model.name));
    let Some(prices) = prices else {
        return BTreeMap::new();
    };
    let costs = incident
        .messages(turn)
        .iter()
        .filter_map(|reply: &Message| {
            let step = reply.step_id()?.as_str().rsplit_once('.')?.1.parse().ok()?;
            let usage = ReplyCost::of_metadata(&reply.metadata).usage?;
            let price = prices.at(reply.created_at.parse().ok()?)?;
            Some((step, price.of(&usage)))
        });
    costs.collect()
}

fn unusable(why: &str) -> Failure {
    Failure::new(
        Exit::Internal,
        format!("cannot replay with {AGENT_PROCESS}: {why}"),
        "check the installation: `gdn doctor`",
    )
}

/// Runs the agent binary.
fn run(script: &ReplayScript) -> Result<ReplayOutput, Failure> {
    let program = place_of(AGENT_PROCESS).ok_or_else(|| unusable("it is not installed"))?;
    let script = serde_json::to_vec(script).map_err(io::Error::other)?;
    let mut child = Command::new(program)
        .arg(REPLAY)
        .env_clear()
        .envs(
            PASSED_ON
                .iter()
                .filter_map(|name| Some((name, std::env::var_os(name)?))),
        )
        .current_dir(working_directory(ProcessPurpose::Own))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let said = converse(&mut child, script);
    child.kill().ok();
    child.wait()?;
    let (said, error) = said?;
    let error = String::from_utf8_lossy(&error);
    serde_json::from_slice(&said).map_err(|_| unusable(error.trim()))
}

/// Sends the script and returns what the program writes to stdout and stderr.
fn converse(child: &mut Child, script: Vec<u8>) -> Result<(Vec<u8>, Vec<u8>), Failure> {
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(mut input), Some(output), Some(errors)) = pipes else {
        return Err(unusable("it has no pipes"));
    };
    let (tell, told) = mpsc::channel();
    // The threads end with the process, which is killed if it does not exit.
    thread::Builder::new()
        .name("replay-input".to_owned())
        .spawn(move || input.write_all(&script).ok())?;
    thread::Builder::new()
        .name("replay-output".to_owned())
        .spawn(move || {
            let read = || -> io::Result<(Vec<u8>, Vec<u8>)> {
                let (mut said, mut error) = (Vec::new(), Vec::new());
                let most = u64::try_from(4 * INCIDENT_BYTES_MAX).unwrap_or(u64::MAX);
                output.take(most).read_to_end(&mut said)?;
                errors.take(64 * 1024).read_to_end(&mut error)?;
                Ok((said, error))
            };
            // After the time limit, the receiver is gone.
            drop(tell.send(read()));
        })?;
    match told.recv_timeout(Duration::from_millis(REPLAY_TIMEOUT_MS)) {
        Ok(said) => Ok(said?),
        Err(_) => Err(Failure::new(
            Exit::TimedOut,
            format!("the replay took more than {REPLAY_TIMEOUT_MS} ms"),
            "replay fewer incidents at once",
        )),
    }
}
