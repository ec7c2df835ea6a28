//! Commands that download the program that they start, such as `npx` and `uvx` (pure).

use std::path::Path;

use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::sandbox::{Host, ReachableHost};

/// Port of the registries.
const HTTPS: u16 = 443;

/// Hexadecimal digits that identify a command: 128 bits.
const DIGEST_DIGITS: usize = 32;

/// Longest description of a command for people, in characters.
const SHOWN_CHARS_MAX: usize = 160;

/// Precedes the digest of a command in an entry of a permission.
const DIGEST_MARK: &str = " #";

/// Replaces values that may be secrets.
const HIDDEN: &str = "…";

/// Registry that packages come from, with its usual hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PackageRegistry {
    /// npm.
    Npm,
    /// `PyPI`.
    Python,
}

/// Program, and its subcommand if it has one, that downloads and starts a package.
#[derive(Debug, PartialEq, Eq)]
struct PackageRunner {
    words: &'static [&'static str],
    registry: PackageRegistry,
    /// Start of the package's word, if the runner also starts other things.
    prefix: &'static str,
}

const RUNNERS: [PackageRunner; 13] = [
    PackageRunner::npm(&["npx"]),
    PackageRunner::npm(&["npm", "exec"]),
    PackageRunner::npm(&["npm", "x"]),
    PackageRunner::npm(&["pnpx"]),
    PackageRunner::npm(&["pnpm", "dlx"]),
    PackageRunner::npm(&["yarn", "dlx"]),
    PackageRunner::npm(&["bunx"]),
    PackageRunner::npm(&["bun", "x"]),
    PackageRunner {
        prefix: "npm:",
        ..PackageRunner::npm(&["deno", "run"])
    },
    PackageRunner::python(&["uvx"]),
    PackageRunner::python(&["uv", "tool", "run"]),
    PackageRunner::python(&["uv", "x"]),
    PackageRunner::python(&["pipx", "run"]),
];

/// Options of runners that name a package.
const PACKAGE_OPTIONS: [&str; 5] = ["-p", "--package", "--from", "--spec", "--with"];

/// Other options of runners with a value in the next word.
const OTHER_OPTIONS: [&str; 8] = [
    "-c",
    "--call",
    "--python",
    "--index-url",
    "--default-index",
    "--index",
    "--extra-index-url",
    "--registry",
];

/// Options and environment variables that name another registry, in lower case.
const REGISTRY_OPTIONS: [&str; 4] = ["--registry", "--index-url", "--default-index", "--index"];
const REGISTRY_VARIABLES: [&str; 6] = [
    "npm_config_registry",
    "bun_config_registry",
    "uv_default_index",
    "uv_index",
    "uv_index_url",
    "pip_index_url",
];

impl PackageRegistry {
    const fn host_names(self) -> &'static [&'static str] {
        match self {
            Self::Npm => &["registry.npmjs.org"],
            Self::Python => &["pypi.org", "files.pythonhosted.org"],
        }
    }

    /// Its hosts, as entries of an allow list.
    #[must_use]
    pub fn hosts(self) -> Vec<ReachableHost> {
        let names = self.host_names().iter();
        names.filter_map(|name| name.parse().ok()).collect()
    }

    /// True if an allow list has all its hosts.
    #[must_use]
    pub fn is_within(self, allowed: &[ReachableHost]) -> bool {
        self.host_names().iter().all(|name| {
            let host = name.parse::<Host>();
            host.is_ok_and(|host| allowed.iter().any(|entry| entry.allows(&host, HTTPS)))
        })
    }
}

/// True if this is one of the registries by its usual name. The egress connects to it over TLS only,
/// for this name, so that its address may be that of a mirror in a private network.
#[must_use]
pub fn is_registry(host: &Host, port: u16) -> bool {
    let registries = [PackageRegistry::Npm, PackageRegistry::Python];
    let mut names = registries.iter().flat_map(|it| it.host_names());
    port == HTTPS && matches!(host, Host::Name(name) if names.any(|known| known == name))
}

impl PackageRunner {
    const fn npm(words: &'static [&'static str]) -> Self {
        Self {
            words,
            registry: PackageRegistry::Npm,
            prefix: "",
        }
    }

    const fn python(words: &'static [&'static str]) -> Self {
        Self {
            words,
            registry: PackageRegistry::Python,
            prefix: "",
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

/// A command that downloads the package that it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackageCommand<'a> {
    runner: &'static PackageRunner,
    command: &'a [String],
    arguments: &'a [String],
    package: &'a str,
}

/// One word of a runner's arguments, up to the package's own ones.
enum RunnerWord<'a> {
    /// An option without a value.
    Option(&'a str),
    /// An option that names a package.
    Package(&'a str, &'a str),
    /// An option with another value, which may be a secret.
    Hidden(&'a str),
    /// The package that is started.
    Main(&'a str),
}

/// The words of a runner. The package's own arguments are left out.
fn runner_words(arguments: &[String]) -> Vec<RunnerWord<'_>> {
    let mut words = Vec::new();
    let mut arguments = arguments.iter().map(String::as_str);
    while let Some(argument) = arguments.next() {
        let (option, value) = match argument.split_once('=') {
            Some((option, value)) if option.starts_with('-') => (option, Some(value)),
            Some(_) | None => (argument, None),
        };
        if PACKAGE_OPTIONS.contains(&option) {
            let value = value.or_else(|| arguments.next()).unwrap_or_default();
            words.push(RunnerWord::Package(option, value));
        } else if OTHER_OPTIONS.contains(&option) {
            if value.is_none() {
                arguments.next();
            }
            words.push(RunnerWord::Hidden(option));
        } else if value.is_some() {
            words.push(RunnerWord::Hidden(option));
        } else if argument.starts_with('-') {
            words.push(RunnerWord::Option(argument));
        } else {
            words.push(RunnerWord::Main(argument));
            break;
        }
    }
    words
}

impl<'a> PackageCommand<'a> {
    /// Recognizes a command by its program and its subcommand; `None` if it starts something else.
    #[must_use]
    pub fn of(command: &'a [String]) -> Option<Self> {
        let found = RUNNERS
            .iter()
            .find_map(|runner| Some((runner, runner.arguments(command)?)));
        let (runner, arguments) = found?;
        let words = runner_words(arguments);
        let named = words.iter().find_map(|word| match word {
            RunnerWord::Package("--with", _) | RunnerWord::Option(_) | RunnerWord::Hidden(_) => {
                None
            }
            RunnerWord::Package(_, package) | RunnerWord::Main(package) => Some(*package),
        });
        let package = named.and_then(|package| package.strip_prefix(runner.prefix))?;
        Some(Self {
            runner,
            command,
            arguments,
            package,
        })
    }

    /// The runner's words, such as `pnpm dlx`.
    #[must_use]
    pub fn runner(&self) -> String {
        self.runner.words.join(" ")
    }

    /// The package's name, without its version: `@scope/name@1.2` is `@scope/name`.
    #[must_use]
    pub fn name(&self) -> &'a str {
        let version = self
            .package
            .char_indices()
            .find(|(at, sign)| *at > 0 && matches!(sign, '@' | '=' | '>' | '<' | '[' | '~'));
        version
            .and_then(|(at, _)| self.package.get(..at))
            .unwrap_or(self.package)
    }

    /// The registry that the package comes from, unless another one is configured.
    #[must_use]
    pub fn registry(&self) -> PackageRegistry {
        self.runner.registry
    }

    /// True if the command or its environment names another registry than the usual one.
    #[must_use]
    pub fn names_other_registry(&self, variables: &[&str]) -> bool {
        let words = runner_words(self.arguments);
        let by_option = words.iter().any(|word| match word {
            RunnerWord::Hidden(option) => REGISTRY_OPTIONS.contains(option),
            RunnerWord::Option(_) | RunnerWord::Package(..) | RunnerWord::Main(_) => false,
        });
        by_option
            || variables
                .iter()
                .any(|name| REGISTRY_VARIABLES.contains(&&*name.to_ascii_lowercase()))
    }

    /// True if npm's programs find the package in the project or a directory above it, without the
    /// registry.
    #[must_use]
    pub fn is_installed_in(&self, project_root: &Path, exists: impl Fn(&Path) -> bool) -> bool {
        let name = self.name();
        self.registry() == PackageRegistry::Npm
            && project_root.ancestors().any(|directory| {
                let modules = directory.join("node_modules");
                exists(&modules.join(name)) || exists(&modules.join(".bin").join(name))
            })
    }

    /// Identifies the whole command, as hexadecimal digits.
    #[must_use]
    pub fn digest(&self) -> String {
        let digits = hex::encode(Sha256::digest(json!(self.command).to_string()));
        digits.chars().take(DIGEST_DIGITS).collect()
    }

    /// The command for people, without the package's own arguments and without values of options,
    /// which may be secrets.
    #[must_use]
    pub fn shown(&self) -> String {
        let program = self.command.iter().take(1).map(String::as_str);
        let subcommands = self.runner.words.iter().skip(1).copied();
        let mut shown = program.chain(subcommands).collect::<Vec<_>>().join(" ");
        for word in runner_words(self.arguments) {
            shown.push(' ');
            match word {
                RunnerWord::Option(word) | RunnerWord::Main(word) => shown.push_str(word),
                RunnerWord::Package(option, package) => {
                    shown.push_str(&format!("{option} {package}"));
                }
                RunnerWord::Hidden(option) => shown.push_str(&format!("{option} {HIDDEN}")),
            }
        }
        match shown.char_indices().nth(SHOWN_CHARS_MAX) {
            Some((end, _)) => format!("{}{HIDDEN}", shown.get(..end).unwrap_or_default()),
            None => shown,
        }
    }

    /// Entry of a permission that allows this command of a connection, and no other one.
    #[must_use]
    pub fn cover(&self, connection: &str) -> String {
        format!(
            "{connection}: {}{DIGEST_MARK}{}",
            self.shown(),
            self.digest()
        )
    }
}

/// The part of a permission's entry that people can read.
#[must_use]
pub fn cover_text(entry: &str) -> &str {
    entry
        .rsplit_once(DIGEST_MARK)
        .map_or(entry, |(text, _)| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &[&str]) -> Vec<String> {
        command.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn prov_1_commands_that_download_a_package_are_recognized() {
        for (command, runner, name) in [
            (&["npx", "-y", "@a/b@1.2", "docs"][..], "npx", "@a/b"),
            (&["/usr/bin/npx", "--package=c", "d"], "npx", "c"),
            (&["npm", "exec", "-p", "c", "--", "d"], "npm exec", "c"),
            (&["pnpm", "dlx", "e"], "pnpm dlx", "e"),
            (&["bunx", "--bun", "e"], "bunx", "e"),
            (&["deno", "run", "-A", "npm:@a/b"], "deno run", "@a/b"),
            (&["uvx", "--python", "3.12", "f==2"], "uvx", "f"),
            (&["uvx", "--with", "x", "f"], "uvx", "f"),
            (
                &["uv", "tool", "run", "--from", "g[x]", "h"],
                "uv tool run",
                "g",
            ),
            (&["pipx", "run", "i"], "pipx run", "i"),
        ] {
            let command = words(command);
            let found = PackageCommand::of(&command).unwrap();
            assert_eq!((found.runner().as_str(), found.name()), (runner, name));
        }
        for other in [
            &["node", "npx"][..],
            &["npm", "run", "x"],
            &["npx"],
            &["uv", "run", "x"],
            &["deno", "run", "server.ts"],
        ] {
            assert_eq!(PackageCommand::of(&words(other)), None, "{other:?}");
        }
    }

    #[test]
    fn sec_3_a_permission_covers_one_command_and_shows_no_values() {
        let command = words(&[
            "npx",
            "-y",
            "--registry",
            "https://u:pw@h",
            "a",
            "--key",
            "k",
        ]);
        let found = PackageCommand::of(&command).unwrap();
        assert_eq!(found.shown(), "npx -y --registry … a");
        let entry = found.cover("files");
        assert_eq!(cover_text(&entry), "files: npx -y --registry … a");
        let others = [
            &[
                "npx",
                "-y",
                "--registry",
                "https://u:pw@h",
                "a",
                "--key",
                "l",
            ][..],
            &[
                "npx",
                "-y",
                "--registry",
                "https://u:pw@i",
                "a",
                "--key",
                "k",
            ],
            &["npx", "-y", "--registry", "https://u:pw@h", "a", "--keyk"],
        ];
        for other in others {
            let other = words(other);
            let other = PackageCommand::of(&other).unwrap();
            assert_ne!(other.cover("files"), entry);
        }
        assert_ne!(found.cover("docs"), entry);
        let elsewhere = words(&["./bin/pnpm", "dlx", "a"]);
        let elsewhere = PackageCommand::of(&elsewhere).unwrap();
        assert_eq!(elsewhere.shown(), "./bin/pnpm dlx a");
        let long = words(&["npx", &"é".repeat(SHOWN_CHARS_MAX)]);
        let shown = PackageCommand::of(&long).unwrap().shown();
        assert_eq!(shown.chars().count(), SHOWN_CHARS_MAX + 1);
    }

    #[test]
    fn prov_1_registries_in_allow_lists_and_settings_are_recognized() {
        let list = |hosts: &[&str]| -> Vec<ReachableHost> {
            hosts.iter().map(|host| host.parse().unwrap()).collect()
        };
        for registry in [PackageRegistry::Npm, PackageRegistry::Python] {
            assert!(registry.is_within(&registry.hosts()), "{registry:?}");
            assert!(!registry.is_within(&list(&["pypi.org", "example.org"])));
        }
        assert!(PackageRegistry::Npm.is_within(&list(&["*.npmjs.org"])));
        let registry = |host: &str, port| is_registry(&host.parse().unwrap(), port);
        assert!(registry("pypi.org", 443) && registry("registry.npmjs.org", 443));
        assert!(!registry("pypi.org", 80) && !registry("npmjs.org", 443));
        assert!(!registry("10.0.0.1", 443));
        let usual = words(&["npx", "a", "--registry", "x"]);
        let usual = PackageCommand::of(&usual).unwrap();
        assert!(!usual.names_other_registry(&["LOG_LEVEL"]));
        assert!(usual.names_other_registry(&["NPM_CONFIG_REGISTRY"]));
        let other = words(&["uvx", "--index-url=https://h", "a"]);
        let other = PackageCommand::of(&other).unwrap();
        assert!(other.names_other_registry(&[]));
    }

    #[test]
    fn prov_1_a_package_in_the_project_or_above_is_installed() {
        let command = words(&["npx", "@a/b@1"]);
        let found = PackageCommand::of(&command).unwrap();
        let at = |path: &'static str| move |asked: &Path| asked == Path::new(path);
        let project = Path::new("/srv/bot/packages/x");
        assert!(found.is_installed_in(project, at("/srv/bot/node_modules/@a/b")));
        assert!(found.is_installed_in(project, at("/srv/bot/packages/x/node_modules/.bin/@a/b")));
        assert!(!found.is_installed_in(project, at("/srv/other/node_modules/@a/b")));
        let python = words(&["uvx", "b"]);
        let python = PackageCommand::of(&python).unwrap();
        assert!(!python.is_installed_in(project, |_| true));
    }
}
