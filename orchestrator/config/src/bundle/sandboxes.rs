//! Checks that the machine can confine programs of agents and connections as required (`SEC-3`).

use std::path::Path;

use goondan_protocol::definition::AgentDefinition;
use goondan_protocol::sandbox::{Level, Network, SandboxPolicy};
use goondan_protocol::task::CliAgentDefinition;

use crate::ConnectionDefinition;
use crate::codes;
use crate::fields::LocatedValue;
use crate::kinds::agent::AgentSpec;
use crate::kinds::cli_agent::CliAgentSpec;
use crate::kinds::connection::ConnectionSpec;
use crate::kinds::sandbox::SandboxSpec;
use crate::machine::HostMachine;
use crate::report::{Problem, ProblemReport, SourceLocation};

/// Context of the checks besides the agent or connection.
pub(super) struct SandboxCheckContext<'a> {
    pub(super) machine: &'a dyn HostMachine,
    pub(super) project: &'a Path,
    /// The `sandbox` of the Swarm's policy.
    pub(super) swarm: &'a SandboxSpec,
}

/// Reports problems that keep an agent from starting its tools. This fails closed: programs never
/// start with less confinement than required.
pub(super) fn check_agent(
    definition: &AgentDefinition,
    written: &AgentSpec,
    place: SourceLocation,
    ground: &SandboxCheckContext<'_>,
    report: &mut ProblemReport,
) {
    if definition.programs().is_some() {
        let who = format!("Agent `{}`", definition.name);
        check(
            &who,
            &definition.sandbox,
            &written.sandbox,
            place,
            ground,
            report,
        );
    }
}

/// Reports the same problems for an agent that is a program.
pub(super) fn check_cli_agent(
    definition: &CliAgentDefinition,
    written: &LocatedValue<CliAgentSpec>,
    ground: &SandboxCheckContext<'_>,
    report: &mut ProblemReport,
) {
    let who = format!("Agent `{}`", definition.name);
    let (policy, own) = (&definition.sandbox, &written.value.sandbox);
    check(&who, policy, own, written.place, ground, report);
}

/// Reports the same problems for a connection whose connector or MCP server is a program.
pub(super) fn check_connection(
    definition: &ConnectionDefinition,
    written: &LocatedValue<ConnectionSpec>,
    ground: &SandboxCheckContext<'_>,
    report: &mut ProblemReport,
) {
    let spec = &written.value;
    if definition.programs().is_some() {
        let who = format!("Connection `{}`", definition.name);
        let place = written.place;
        check(
            &who,
            &definition.sandbox,
            &spec.sandbox,
            place,
            ground,
            report,
        );
    }
}

fn check(
    who: &str,
    policy: &SandboxPolicy,
    own: &SandboxSpec,
    place: SourceLocation,
    ground: &SandboxCheckContext<'_>,
    report: &mut ProblemReport,
) {
    let (require, swarm) = (policy.require, ground.swarm);
    if require == Level::Off {
        return;
    }
    let level = own.require.as_ref().or(swarm.require.as_ref());
    let place = level.map_or(place, |level| level.place);
    if let Some(missing) = ground.machine.lacks_sandbox(require) {
        let message = format!(
            "{who} requires a sandbox of level `{require}`, which this machine does not support: \
             its kernel cannot confine {missing}"
        );
        let had = Level::strictest(|level| ground.machine.lacks_sandbox(level).is_none());
        let remedy = match (require, had) {
            (Level::Seatbelt, _) => "`seatbelt` is available on macOS only",
            (_, Level::Seatbelt) => "that level is available on Linux only",
            _ => "run `gdn doctor` to see how to fix the machine",
        };
        let help = format!(
            "{remedy}; or write `sandbox: {{require: {had}}}` there or in the Swarm's `policy`"
        );
        report.add(Problem::new(codes::NO_SANDBOX, place, message).help(help));
    }
    if let (Level::Landlock | Level::Seatbelt, Network::Allow(_)) = (require, &policy.network) {
        let message = format!(
            "{who} allows only some hosts, which the level `{require}` cannot enforce: its \
             sandboxes cannot connect to the proxy"
        );
        let help = "write `require: full` (on Linux), or `network: any`, which allows every host \
            that the machine can reach; the tool `http-fetch` can restrict hosts at every level";
        let network = own.network.as_ref().or(swarm.network.as_ref());
        let place = network.map_or(place, |network| network.place);
        report.add(Problem::new(codes::NO_SANDBOX, place, message).help(help));
    }
    let (state, project) = (
        ground.machine.state_root(),
        ground.machine.real_path(ground.project),
    );
    if let (Some(state), Some(project)) = (state, project)
        && state.starts_with(project)
    {
        let message = format!(
            "{who} may read the project, but the project's directory contains goondan's own files"
        );
        let help = "move the project to a separate directory, or pass another `--state-root`";
        report.add(Problem::new(codes::NO_SANDBOX, place, message).help(help));
    }
}
