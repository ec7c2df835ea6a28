//! Programs that download the server that they start, such as `npx` and `uvx`.
//!
//! Without a network they retry for minutes and say nothing. The connection says at once what they
//! need instead.

use std::ffi::OsStr;
use std::path::Path;

use goondan_confinement::find_program;
use goondan_protocol::sandbox::{Level, Network, SandboxPolicy};

/// Program, and its subcommand if it has one, that downloads and starts a package.
struct PackageRunner {
    words: &'static [&'static str],
    registry: Registry,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Registry {
    Npm,
    Python,
}

const RUNNERS: [PackageRunner; 12] = [
    PackageRunner::npm(&["npx"]),
    PackageRunner::npm(&["npm", "exec"]),
    PackageRunner::npm(&["npm", "x"]),
    PackageRunner::npm(&["pnpx"]),
    PackageRunner::npm(&["pnpm", "dlx"]),
    PackageRunner::npm(&["yarn", "dlx"]),
    PackageRunner::npm(&["bunx"]),
    PackageRunner::npm(&["bun", "x"]),
    PackageRunner::python(&["uvx"]),
    PackageRunner::python(&["uv", "tool", "run"]),
    PackageRunner::python(&["uv", "x"]),
    PackageRunner::python(&["pipx", "run"]),
];

/// Options of runners that name the package, or take another value.
const PACKAGE_OPTIONS: [&str; 4] = ["-p", "--package", "--from", "--spec"];
const OTHER_OPTIONS: [&str; 5] = ["-c", "--call", "--python", "--with", "--index-url"];

impl PackageRunner {
    const fn npm(words: &'static [&'static str]) -> Self {
        Self {
            words,
            registry: Registry::Npm,
        }
    }

    const fn python(words: &'static [&'static str]) -> Self {
        Self {
            words,
            registry: Registry::Python,
        }
    }

    /// Arguments after the runner's own words; `None` if a command starts something else.
    fn arguments<'a>(&self, command: &'a [String]) -> Option<&'a [String]> {
        let (program, rest) = command.split_first()?;
        let (name, subcommands) = self.words.split_first()?;
        let is_program = Path::new(program).file_name()? == *name;
        let arguments = rest.get(subcommands.len()..)?;
        let is_subcommand = rest
            .iter()
            .zip(subcommands)
            .all(|(has, wants)| has == wants);
        (is_program && is_subcommand).then_some(arguments)
    }
}

impl Registry {
    /// Hosts that packages come from.
    const fn hosts(self) -> &'static str {
        match self {
            Self::Npm => "registry.npmjs.org",
            Self::Python => "pypi.org, files.pythonhosted.org",
        }
    }
}

/// Reason why a server that must be downloaded first cannot start, with what to do about it; `None`
/// if its programs have a network, or the package is installed in the project or in `path`.
pub(super) fn missing_network(
    command: &[String],
    policy: &SandboxPolicy,
    (project_root, path): (&Path, &OsStr),
) -> Option<String> {
    if policy.require == Level::Off || policy.network != Network::None {
        return None;
    }
    let (runner, arguments) = RUNNERS
        .iter()
        .find_map(|runner| Some((runner, runner.arguments(command)?)))?;
    let package = package_of(arguments)?;
    let name = name_of(package);
    if runner.registry == Registry::Npm && is_installed(name, project_root, path) {
        return None;
    }
    let hosts = runner.registry.hosts();
    // Only separate namespaces can restrict programs to some hosts.
    let network = match policy.require {
        Level::Full => format!("{{allow: [{hosts}]}}"),
        Level::Landlock | Level::Seatbelt | Level::Off => "any".to_owned(),
    };
    let instead = match runner.registry {
        Registry::Npm => format!(", or run `npm install {name}` in the project"),
        Registry::Python => String::new(),
    };
    let words = runner.words.join(" ");
    Some(format!(
        "`{words}` downloads `{name}`, but has no network; add `sandbox: {{network: {network}}}` to the Connection{instead}"
    ))
}

/// True if npm's programs find the package, or a program of this name, without the registry: in the
/// project or a directory above it, or among the programs of the machine.
fn is_installed(name: &str, project_root: &Path, path: &OsStr) -> bool {
    let is_in = |directory: &Path| {
        let modules = directory.join("node_modules");
        modules.join(name).is_dir() || modules.join(".bin").join(name).exists()
    };
    project_root.ancestors().any(is_in) || find_program(name, path).is_some()
}

/// The package among a runner's arguments; `None` if there is none.
fn package_of(arguments: &[String]) -> Option<&str> {
    let mut arguments = arguments.iter().map(String::as_str);
    while let Some(argument) = arguments.next() {
        if PACKAGE_OPTIONS.contains(&argument) {
            return arguments.next();
        }
        let value = argument.split_once('=');
        if let Some((option, package)) = value
            && PACKAGE_OPTIONS.contains(&option)
        {
            return Some(package);
        }
        if OTHER_OPTIONS.contains(&argument) {
            arguments.next();
        } else if !argument.starts_with('-') {
            return Some(argument);
        }
    }
    None
}

/// A package's name, without its version: `@scope/name@1.2` is `@scope/name`.
fn name_of(package: &str) -> &str {
    let version = package
        .char_indices()
        .find(|(at, sign)| *at > 0 && matches!(sign, '@' | '=' | '>' | '<' | '[' | '~'));
    version
        .and_then(|(at, _)| package.get(..at))
        .unwrap_or(package)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(command: &[&str], policy: &SandboxPolicy, project: &Path) -> Option<String> {
        let words: Vec<String> = command.iter().map(ToString::to_string).collect();
        missing_network(&words, policy, (project, OsStr::new("")))
    }

    #[test]
    fn prov_1_a_runner_without_a_network_says_what_it_needs() {
        let project = tempfile::tempdir().unwrap();
        let usual = SandboxPolicy::default();
        for (command, words, name) in [
            (&["npx", "-y", "@a/b@1.2", "docs"][..], "npx", "@a/b"),
            (&["/usr/bin/npx", "--package=c", "d"], "npx", "c"),
            (&["npm", "exec", "-p", "c", "--", "d"], "npm exec", "c"),
            (&["pnpm", "dlx", "e"], "pnpm dlx", "e"),
            (&["bunx", "--bun", "e"], "bunx", "e"),
            (&["uvx", "--python", "3.12", "f==2"], "uvx", "f"),
            (
                &["uv", "tool", "run", "--from", "g[x]", "h"],
                "uv tool run",
                "g",
            ),
            (&["pipx", "run", "i"], "pipx run", "i"),
        ] {
            let said = reason(command, &usual, project.path()).unwrap();
            let begin = format!("`{words}` downloads `{name}`, but has no network; add `sandbox: ");
            assert!(said.starts_with(&begin), "{said}");
        }
        for other in [
            &["node", "npx"][..],
            &["npm", "run", "x"],
            &["npx"],
            &["uv", "run", "x"],
        ] {
            assert_eq!(reason(other, &usual, project.path()), None, "{other:?}");
        }
        let said = reason(&["npx", "a"], &usual, project.path()).unwrap();
        assert!(said.contains("{allow: [registry.npmjs.org]}"), "{said}");
        assert!(said.contains("`npm install a` in the project"), "{said}");
    }

    #[test]
    fn prov_1_a_runner_with_a_network_or_an_installed_package_starts() {
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
        let words = ["npx".to_owned(), "b-server".to_owned()];
        let with_path = |path: &Path| {
            missing_network(&words, &usual, (elsewhere.path(), path.as_os_str())).is_none()
        };
        assert!(with_path(&bin) && !with_path(elsewhere.path()));
        let any = SandboxPolicy {
            network: Network::Any,
            ..SandboxPolicy::default()
        };
        assert_eq!(reason(&["npx", "c"], &any, project.path()), None);
        let off = SandboxPolicy::off();
        assert_eq!(reason(&["npx", "c"], &off, project.path()), None);
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
