//! Refusal to start servers that must be downloaded first, and cannot be.
//!
//! Without a network, `npx`, `uvx` and similar programs retry for minutes without output. The
//! connection immediately reports what they need instead.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

use goondan_confinement::find_program;
use goondan_protocol::package_runner::{PackageCommand, PackageRegistry};
use goondan_protocol::sandbox::{Level, Network, SandboxPolicy};
use goondan_protocol::shell::shell_quoted;

/// File of a project that can name another registry.
const NPM_SETTINGS: &str = ".npmrc";

/// Place at which a server is started.
#[derive(Clone, Copy)]
pub(super) struct StartContext<'a> {
    pub(super) policy: &'a SandboxPolicy,
    pub(super) project_root: &'a Path,
    /// `PATH` of its programs.
    pub(super) path: &'a OsStr,
    pub(super) env: &'a BTreeMap<String, String>,
}

/// Reason why a server that must be downloaded first cannot start, with the next command; `None` if
/// its registry is reachable, or the package is installed in the project or in `path`.
pub(super) fn refusal(command: &[String], context: StartContext<'_>) -> Option<String> {
    let StartContext {
        policy,
        project_root,
        path,
        env,
    } = context;
    let package = PackageCommand::of(command)?;
    let registry = package.registry();
    let variables: Vec<&str> = env.keys().map(String::as_str).collect();
    let is_another = package.names_other_registry(&variables);
    let lacks = match &policy.network {
        Network::Any => false,
        Network::None => true,
        // It may reach another registry.
        Network::Allow(hosts) => {
            !is_another && !registry.is_within(hosts) && !project_root.join(NPM_SETTINGS).exists()
        }
    };
    let is_npm = registry == PackageRegistry::Npm;
    let name = package.name();
    let is_installed = package.is_installed_in(project_root, Path::exists)
        || is_npm && find_program(name, path).is_some();
    if policy.require == Level::Off || !lacks || is_installed {
        return None;
    }
    let next = match policy.require {
        Level::Full if !is_another => {
            let root = project_root.to_str().and_then(shell_quoted);
            let root = root.unwrap_or_else(|| "DIR".to_owned());
            format!("allow it: `gdn workspace permission allow packages --project {root}`")
        }
        // A person decides about hosts that goondan does not know.
        Level::Full => {
            "add `sandbox: {network: {allow: [HOST]}}` with its registry to the Connection"
                .to_owned()
        }
        // Only separate namespaces can restrict programs to some hosts.
        Level::Landlock | Level::Seatbelt | Level::Off => {
            "add `sandbox: {network: any}` to the Connection".to_owned()
        }
    };
    let instead = match is_npm {
        true => format!(", or run `npm install {name}` in the project"),
        false => String::new(),
    };
    let words = package.runner();
    Some(format!(
        "`{words}` would download `{name}`, which no person has allowed; {next}{instead}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(command: &[&str], policy: &SandboxPolicy, project: &Path) -> Option<String> {
        reason_with(command, policy, (project, Path::new("")), &[])
    }

    fn reason_with(
        command: &[&str],
        policy: &SandboxPolicy,
        (project_root, path): (&Path, &Path),
        variables: &[&str],
    ) -> Option<String> {
        let words: Vec<String> = command.iter().map(ToString::to_string).collect();
        let env = variables
            .iter()
            .map(|name| ((*name).to_owned(), String::new()));
        let env = env.collect();
        let context = StartContext {
            policy,
            project_root,
            path: path.as_os_str(),
            env: &env,
        };
        refusal(&words, context)
    }

    fn reaching(hosts: &[&str]) -> SandboxPolicy {
        let hosts = hosts.iter().map(|host| host.parse().unwrap());
        SandboxPolicy {
            network: Network::Allow(hosts.collect()),
            ..SandboxPolicy::default()
        }
    }

    #[test]
    fn prov_1_a_runner_without_permission_names_the_next_command() {
        let project = tempfile::tempdir().unwrap();
        let usual = SandboxPolicy::default();
        let said = reason(&["npx", "-y", "@a/b@1"], &usual, project.path()).unwrap();
        let expected = format!(
            "`npx` would download `@a/b`, which no person has allowed; allow it: `gdn workspace permission \
             allow packages --project {}`, or run `npm install @a/b` in the project",
            project.path().display()
        );
        assert_eq!(said, expected);
        let said = reason(&["uvx", "c"], &usual, project.path()).unwrap();
        assert!(!said.contains("npm"), "{said}");
        // Hosts of the server's service do not include the registry.
        let listed = reaching(&["api.example.org"]);
        let said = reason(&["npx", "c"], &listed, project.path()).unwrap();
        assert!(
            said.contains("gdn workspace permission allow packages"),
            "{said}"
        );
        let other = reason_with(
            &["npx", "c"],
            &usual,
            (project.path(), Path::new("")),
            &["NPM_CONFIG_REGISTRY"],
        );
        let other = other.unwrap();
        assert!(other.contains("{network: {allow: [HOST]}}"), "{other}");
        assert_eq!(reason(&["node", "npx"], &usual, project.path()), None);
    }

    #[test]
    fn prov_1_a_runner_with_a_registry_or_an_installed_package_starts() {
        let project = tempfile::tempdir().unwrap();
        let usual = SandboxPolicy::default();
        std::fs::create_dir_all(project.path().join("node_modules/@a/b")).unwrap();
        assert_eq!(reason(&["npx", "@a/b@1"], &usual, project.path()), None);
        let below = project.path().join("packages/bot");
        assert_eq!(reason(&["npx", "@a/b"], &usual, &below), None);
        // Programs of packages with other names, and of the machine.
        let bin = project.path().join("node_modules/.bin");
        std::fs::create_dir(&bin).unwrap();
        std::os::unix::fs::symlink("/bin/sh", bin.join("b-server")).unwrap();
        assert_eq!(reason(&["npx", "b-server"], &usual, project.path()), None);
        let elsewhere = tempfile::tempdir().unwrap();
        let with_path = |path: &Path| {
            reason_with(&["npx", "b-server"], &usual, (elsewhere.path(), path), &[]).is_none()
        };
        assert!(with_path(&bin) && !with_path(elsewhere.path()));
        let any = SandboxPolicy {
            network: Network::Any,
            ..SandboxPolicy::default()
        };
        for allowed in [any, reaching(&["registry.npmjs.org"]), SandboxPolicy::off()] {
            assert_eq!(reason(&["npx", "c"], &allowed, project.path()), None);
        }
        let mirror = reaching(&["npm.example.org"]);
        assert!(reason(&["npx", "c"], &mirror, project.path()).is_some());
        let places = (project.path(), Path::new(""));
        let variables = ["npm_config_registry"];
        let by_variable = reason_with(&["npx", "c"], &mirror, places, &variables);
        assert_eq!(by_variable, None);
        std::os::unix::fs::symlink("/dev/null", project.path().join(NPM_SETTINGS)).unwrap();
        assert_eq!(reason(&["npx", "c"], &mirror, project.path()), None);
        let landlock = SandboxPolicy {
            require: Level::Landlock,
            ..SandboxPolicy::default()
        };
        let said = reason(&["uvx", "c"], &landlock, project.path()).unwrap();
        assert!(
            said.ends_with("{network: any}` to the Connection"),
            "{said}"
        );
    }
}
