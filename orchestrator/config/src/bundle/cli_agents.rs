//! The agents that are programs, and work for tasks (`TASK-8`).

use std::collections::BTreeMap;

use goondan_protocol::ids::AgentName;
use goondan_protocol::sandbox::SandboxPath;
use goondan_protocol::task::CliAgentDefinition;

use super::members::Membership;
use super::sandboxes::{self, Ground};
use crate::codes;
use crate::fields::Located;
use crate::kinds::Resources;
use crate::kinds::cli_agent::CliAgentSpec;
use crate::report::{Problem, Report};

/// Those that take part.
pub(super) fn resolve(
    membership: &Membership,
    resources: &Resources,
    ground: &Ground<'_>,
    report: &mut Report,
) -> BTreeMap<AgentName, CliAgentDefinition> {
    let mut agents = BTreeMap::new();
    for written in &resources.cli_agents {
        let definition = definition_of(&written.value, membership);
        if membership.members.contains(definition.name.as_str()) {
            sandboxes::check_cli_agent(&definition, written, ground, report);
            check_guide(&definition, written, report);
            agents.insert(definition.name.clone(), definition);
        }
    }
    agents
}

fn definition_of(written: &CliAgentSpec, membership: &Membership) -> CliAgentDefinition {
    CliAgentDefinition {
        name: written.name.clone(),
        description: written.description.clone(),
        command: written.command.clone(),
        resume: written.resume.clone(),
        format: written.format,
        prompt: written.prompt,
        environment: written.environment.clone(),
        guide: written.guide.as_ref().map(|guide| guide.value.clone()),
        limits: written.limits,
        disk_bytes: written.disk_bytes,
        sandbox: written.sandbox.within(&membership.policy.sandbox),
    }
}

/// What may be written may be written with all below it, so the guide must not lie there.
fn check_guide(
    definition: &CliAgentDefinition,
    written: &Located<CliAgentSpec>,
    report: &mut Report,
) {
    let Some(guide) = &written.value.guide else {
        return;
    };
    let mut writable = definition.sandbox.write.iter().map(SandboxPath::as_path);
    if let Some(path) = writable.find(|path| guide.value.starts_with(path)) {
        let message = format!(
            "Agent `{}` may write below `{}`, where its `guide` is, which must stay as it is",
            definition.name,
            path.display()
        );
        let problem = Problem::new(codes::SANDBOX_PATH, guide.place, message);
        report.add(problem.help("move the guide, or grant less in `sandbox.write`"));
    }
}
