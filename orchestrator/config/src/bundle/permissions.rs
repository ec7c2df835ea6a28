//! Permissions of modules from packages: the granted permissions of the package, within those of
//! the agent or connection (`PKG-3`).

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use goondan_packages::PackageName;
use goondan_protocol::base_package::BASE_PACKAGE;
use goondan_protocol::definition::{
    AgentDefinition, ExtensionSource, ModuleSandbox, ToolDefinition, ToolSource,
};
use goondan_protocol::sandbox::{Level, Network, ReachableHost, SandboxPath, SandboxPolicy};
use goondan_protocol::service::service_of;

use super::sandboxes::SandboxCheckContext;
use crate::codes;
use crate::fields::LocatedValue;
use crate::kinds::agent::AgentSpec;
use crate::kinds::connection::ConnectionSpec;
use crate::kinds::sandbox::find;
use crate::kinds::{ResolvedPackage, Resources};
use crate::reference::Reference;
use crate::report::{Problem, ProblemReport, SourceLocation};

/// Confines an agent's modules from packages, and lets its programs read those packages.
pub(super) fn confine(
    agent: &mut AgentDefinition,
    written: &LocatedValue<AgentSpec>,
    resources: &Resources,
    ground: &SandboxCheckContext<'_>,
    report: &mut ProblemReport,
) {
    let of_tools = agent.tools.iter().filter_map(|tool| match &tool.source {
        ToolSource::Module { entry, .. } => package_of(entry, resources),
        ToolSource::Builtin { .. } => None,
    });
    let of_tools: BTreeSet<&PackageName> = of_tools.map(|(name, _)| name).collect();
    let of_extensions = agent.extensions.iter().filter_map(|it| match &it.source {
        ExtensionSource::Module { entry, .. } => package_of(entry, resources),
        ExtensionSource::Builtin { .. } => None,
    });
    let of_extensions: BTreeSet<&PackageName> = of_extensions.map(|(name, _)| name).collect();

    let own = &agent.sandbox;
    let within = |names: &BTreeSet<&PackageName>| joint(names, own, resources, ground);
    let mut sandboxes: Vec<ModuleSandbox> = of_tools
        .iter()
        .map(|name| within(&BTreeSet::from([*name])))
        .collect();
    // Of nested folders, the innermost package applies.
    sandboxes.sort_by_key(|it| Reverse(it.folders.first().map(|it| it.as_os_str().len())));
    let extension_sandbox = (!of_extensions.is_empty()).then(|| Box::new(within(&of_extensions)));

    let used: BTreeSet<&PackageName> = of_tools.union(&of_extensions).copied().collect();
    let mut folders = Vec::new();
    for name in used {
        let Some(installed) = resources.packages.get(name) else {
            continue;
        };
        tell_unreachable(name, installed, agent, written.place, report);
        folders.push(installed.folder.clone());
    }
    let referred = written.value.extensions.iter();
    let referred = referred.filter_map(|it| referred_to(it, resources));
    let skills = referred.filter(|(_, installed)| installed.is_skill);
    agent.skills = skills.map(|(_, it)| it.folder.clone()).collect();
    folders.extend(agent.skills.iter().cloned());
    agent.package_sandboxes = sandboxes;
    agent.extension_sandbox = extension_sandbox;
    let_read(&mut agent.sandbox, folders);
}

/// The package of a module, by its path; `None` for the project's own modules.
fn package_of<'r>(
    module: &Path,
    resources: &'r Resources,
) -> Option<(&'r PackageName, &'r ResolvedPackage)> {
    let holds =
        |(_, installed): &(&PackageName, &ResolvedPackage)| module.starts_with(&installed.folder);
    let found = resources.packages.iter().filter(holds);
    found.max_by_key(|(_, installed)| installed.folder.as_os_str().len())
}

/// Intersection of the permissions of several packages, for modules that share a process.
fn joint(
    names: &BTreeSet<&PackageName>,
    own: &SandboxPolicy,
    resources: &Resources,
    ground: &SandboxCheckContext<'_>,
) -> ModuleSandbox {
    let mut sandbox = own.clone();
    let mut secrets: Option<BTreeSet<String>> = None;
    let mut folders = Vec::new();
    for installed in names
        .iter()
        .filter_map(|name| resources.packages.get(*name))
    {
        sandbox = narrowed(&sandbox, installed, ground);
        let granted = &installed.permissions.secrets;
        secrets = Some(match secrets {
            None => granted.clone(),
            Some(others) => others.intersection(granted).cloned().collect(),
        });
        folders.push(installed.folder.clone());
    }
    let_read(&mut sandbox, folders.iter().cloned());
    ModuleSandbox {
        packages: names.iter().map(ToString::to_string).collect(),
        folders,
        sandbox,
        secrets: secrets.unwrap_or_default(),
    }
}

/// Permissions of a connection's program whose connector comes from a package.
pub(super) fn of_connector(
    own: &SandboxPolicy,
    installed: &ResolvedPackage,
    ground: &SandboxCheckContext<'_>,
) -> SandboxPolicy {
    let mut sandbox = narrowed(own, installed, ground);
    let_read(&mut sandbox, [installed.folder.clone()]);
    sandbox
}

/// Reduces a policy to the permissions granted to a package.
fn narrowed(
    own: &SandboxPolicy,
    installed: &ResolvedPackage,
    ground: &SandboxCheckContext<'_>,
) -> SandboxPolicy {
    if own.require == Level::Off {
        return own.clone();
    }
    let granted = &installed.permissions;
    let found = |texts: &BTreeSet<String>| -> Vec<SandboxPath> {
        let found = texts.iter();
        // Paths that do not exist on this machine cannot be accessed.
        found
            .filter_map(|text| find(text, ground.project, ground.machine).ok())
            .collect()
    };
    let (read, write) = (found(&granted.read), found(&granted.write));
    let all = |one: &[SandboxPath], other: &[SandboxPath]| [one, other].concat();
    SandboxPolicy {
        require: own.require,
        read: common_paths(&all(&own.read, &own.write), &all(&read, &write), ground),
        write: common_paths(&own.write, &write, ground),
        network: common_network(own, &granted.hosts),
    }
}

/// The intersection of two lists of paths. Resolved paths are compared, so that a link in a granted
/// path grants nothing else.
fn common_paths(
    own: &[SandboxPath],
    granted: &[SandboxPath],
    ground: &SandboxCheckContext<'_>,
) -> Vec<SandboxPath> {
    let real = |path: &SandboxPath| {
        let path = path.as_path();
        let real = ground.machine.real_path(path);
        real.unwrap_or_else(|| path.to_owned())
    };
    let mut common: Vec<SandboxPath> = Vec::new();
    for own in own.iter().map(real) {
        for granted in granted.iter().map(real) {
            let deeper = if own.starts_with(&granted) {
                &own
            } else if granted.starts_with(&own) {
                &granted
            } else {
                continue;
            };
            let deeper = SandboxPath::try_from(deeper.clone()).ok();
            common.extend(deeper.filter(|it| !common.contains(it)));
        }
    }
    common
}

fn common_network(own: &SandboxPolicy, granted: &BTreeSet<String>) -> Network {
    let granted: Vec<ReachableHost> = granted.iter().filter_map(|it| it.parse().ok()).collect();
    let hosts = match &own.network {
        // Only the level `full` supports a list of hosts.
        Network::Any if own.require == Level::Full => granted,
        Network::None | Network::Any => Vec::new(),
        Network::Allow(listed) => {
            let mut common: Vec<ReachableHost> = Vec::new();
            for host in listed {
                let both = granted.iter().filter_map(|it| it.common(host));
                let new: Vec<_> = both.filter(|it| !common.contains(it)).collect();
                common.extend(new);
            }
            common
        }
    };
    if hosts.is_empty() {
        Network::None
    } else {
        Network::Allow(hosts)
    }
}

/// Warns of hosts that were granted to a package but are blocked by its agent's sandbox.
fn tell_unreachable(
    name: &PackageName,
    installed: &ResolvedPackage,
    agent: &AgentDefinition,
    place: SourceLocation,
    report: &mut ProblemReport,
) {
    let own = &agent.sandbox;
    let is_closed = |host: &String| {
        let one = BTreeSet::from([host.clone()]);
        common_network(own, &one) == Network::None
    };
    let hosts = installed.permissions.hosts.iter();
    let closed: Vec<&str> = hosts
        .filter(|it| is_closed(it))
        .map(String::as_str)
        .collect();
    if closed.is_empty() || own.require == Level::Off {
        return;
    }
    let closed = closed.join(", ");
    let message = format!(
        "package `{name}` needs {closed}, which the `sandbox` of Agent `{}` blocks",
        agent.name
    );
    let help = if own.require == Level::Full {
        format!("allow it in the sandbox: `network: {{allow: [{closed}]}}`")
    } else {
        "only the level `full` can allow single hosts: write `require: full`".to_owned()
    };
    report.add(Problem::warning(codes::NO_EFFECT, place, message).help(help));
}

fn let_read(sandbox: &mut SandboxPolicy, folders: impl IntoIterator<Item = PathBuf>) {
    let folders = folders.into_iter();
    for folder in folders.filter_map(|folder| SandboxPath::try_from(folder).ok()) {
        if !sandbox.read.contains(&folder) {
            sandbox.read.push(folder);
        }
    }
}

/// Reports a package's Tool that replaces a built-in tool or uses connections without the
/// permission to do so.
pub(super) fn check_tool(
    tool: &ToolDefinition,
    reference: &Reference,
    resources: &Resources,
    report: &mut ProblemReport,
) {
    let ToolSource::Builtin { package, name } = &tool.source else {
        return;
    };
    let Some((of, installed)) =
        referred_to(reference, resources).filter(|_| package == BASE_PACKAGE)
    else {
        return;
    };
    let mut refuse = |field: &str, what: &str, wanted: &str| {
        let message = format!(
            "Tool `{}` of package `{of}` {what} `{wanted}`, which the package's permissions do not include",
            tool.name
        );
        let help = format!(
            "use `{BASE_PACKAGE}` directly, or ask the package's authors to add `permissions: {{{field}: [{wanted}]}}`"
        );
        report.add(Problem::new(codes::NOT_GRANTED, reference.place, message).help(help));
    };
    let granted = &installed.permissions;
    if !granted.tools.contains(name.as_str()) {
        refuse("tools", "is the built-in tool", name.as_str());
    }
    if let Some(service) = service_of(name.as_str())
        && !granted.connections.contains(service.connector)
    {
        refuse("connections", "uses Connections of", service.connector);
    }
}

/// Reports secrets that a Connection passes to a package's connector without the permission.
pub(super) fn check_secrets(
    connection: &ConnectionSpec,
    (name, installed): (&PackageName, &ResolvedPackage),
    place: SourceLocation,
    report: &mut ProblemReport,
) {
    let granted = &installed.permissions.secrets;
    for secret in connection
        .secrets
        .keys()
        .filter(|it| !granted.contains(*it))
    {
        let message = format!(
            "Connection `{}` passes the secret `{secret}` to package `{name}`, whose permissions do not include it",
            connection.name
        );
        let help = format!(
            "remove it, or ask the package's authors to add `permissions: {{secrets: [{secret}]}}`"
        );
        report.add(Problem::new(codes::NOT_GRANTED, place, message).help(help));
    }
}

/// The package that a reference points to, if any.
pub(super) fn referred_to<'r>(
    reference: &Reference,
    resources: &'r Resources,
) -> Option<(&'r PackageName, &'r ResolvedPackage)> {
    let (name, _) = reference.package.as_ref()?;
    resources.packages.get_key_value(name)
}
