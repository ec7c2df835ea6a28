//! `sandbox`: confinement of programs, in a Swarm's policy, an Agent and a Connection (`SEC-3`,
//! `BOX-3`).

use std::path::{Component, Path, PathBuf};

use goondan_connectors::{AddressReachability, reach_of};
use goondan_protocol::sandbox::{Level, Network, ReachableHost, SandboxPath, SandboxPolicy};

use super::Context;
use crate::codes;
use crate::fields::{Fields, LocatedValue, WordOr};
use crate::limits::{MAX_SANDBOX_HOSTS, MAX_SANDBOX_PATHS};
use crate::machine::HostMachine;
use crate::report::Problem;
use crate::shape::{Field, FieldDefault, FieldType, Shape};

const FULL: &str = "full";
const LANDLOCK: &str = "landlock";
const SEATBELT: &str = "seatbelt";
const OFF: &str = "off";
const NONE: &str = "none";
const ANY: &str = "any";

/// Prefix of paths in the user's home directory.
const HOME: &str = "~";

/// The field of a Swarm's policy.
pub(crate) const OF_SWARM: Field = Field::optional(
    "sandbox",
    FieldType::Mapping(&SWARM_SANDBOX),
    "Sandbox of programs that run for agents and connections. Agents and Connections can override it.",
);

pub(crate) const OF_AGENT: Field = Field::optional(
    "sandbox",
    FieldType::Mapping(&AGENT_SANDBOX),
    "Sandbox of programs that its tools and modules start. Fields set here override the Swarm's.",
);

pub(crate) const OF_CONNECTION: Field = Field::optional(
    "sandbox",
    FieldType::Mapping(&CONNECTION_SANDBOX),
    "Sandbox of its connector program or MCP server. Fields set here override the Swarm's.",
);

const ABOUT: &str = "Sandbox of programs that run for a model. They may always read the system's \
    programs and the project, and write in the work directory.";

static SWARM_SANDBOX: Shape = Shape::of(
    "SwarmSandbox",
    ABOUT,
    &[REQUIRE.or(FieldDefault::Text(FULL)), READ, WRITE, NETWORK],
);

static AGENT_SANDBOX: Shape = Shape::of(
    "AgentSandbox",
    ABOUT,
    &[
        REQUIRE.or(FieldDefault::Meaning("the value of the Swarm's policy")),
        READ,
        WRITE,
        NETWORK,
    ],
);

static CONNECTION_SANDBOX: Shape = Shape::of(
    "ConnectionSandbox",
    "Sandbox of a connection's program. It may always read the system's programs and the project.",
    &[
        REQUIRE.or(FieldDefault::Meaning("the value of the Swarm's policy")),
        READ,
        WRITE,
        NETWORK,
    ],
);

const NETWORK: Field = Field::optional(
    "network",
    FieldType::WordOr(&[NONE, ANY], &REACHABLE),
    "Network access. `none`: no network. `any`: everything that the machine can reach, including \
     its own services. A list of hosts: only these hosts, through a proxy; requires the level \
     `full`.",
)
.or(FieldDefault::Text(NONE));

static REACHABLE: Shape = Shape::of(
    "ReachableHosts",
    "The allowed hosts.",
    &[Field::required(
        "allow",
        FieldType::List(&FieldType::Text),
        "The hosts: `example.org`, `*.example.org` or an address, followed by `:port` for ports \
         other than 80 and 443. A name that resolves to a private address works only if that \
         address is listed too.",
    )],
);

const REQUIRE: Field = Field::optional(
    "require",
    FieldType::Word(&[FULL, LANDLOCK, SEATBELT, OFF]),
    "Confinement level. A level that the machine does not support is a configuration problem. \
     `full`: separate namespaces in which nothing else is visible. `landlock`: the same file \
     access, for machines without user namespaces. `seatbelt`: a macOS profile, untested. `off`: \
     all rights of the user.",
);

const READ: Field = Field::optional(
    "read",
    PATHS,
    "Additional paths that may be read and executed: absolute, below `~/`, or within the project.",
);

const WRITE: Field = Field::optional(
    "write",
    PATHS,
    "Additional paths that may be changed: absolute, below `~/`, or within the project.",
);

const PATHS: FieldType = FieldType::List(&FieldType::Text);

/// The given fields; `None` for those that are absent.
#[derive(Debug, Clone, std::default::Default)]
pub(crate) struct SandboxSpec {
    pub(crate) require: Option<LocatedValue<Level>>,
    read: Option<Vec<SandboxPath>>,
    write: Option<Vec<SandboxPath>>,
    pub(crate) network: Option<LocatedValue<Network>>,
}

impl SandboxSpec {
    /// The policy of an agent or a connection with these fields, in a swarm with those.
    pub(crate) fn within(&self, swarm: &Self) -> SandboxPolicy {
        let require = self.require.as_ref().or(swarm.require.as_ref());
        let paths = |own: &Option<Vec<SandboxPath>>, swarm: &Option<Vec<SandboxPath>>| {
            own.as_ref().or(swarm.as_ref()).cloned().unwrap_or_default()
        };
        SandboxPolicy {
            require: require.map(|level| level.value).unwrap_or_default(),
            read: paths(&self.read, &swarm.read),
            write: paths(&self.write, &swarm.write),
            network: {
                let network = self.network.as_ref().or(swarm.network.as_ref());
                network.map(|it| it.value.clone()).unwrap_or_default()
            },
        }
    }
}

/// Reads the field `sandbox`.
pub(crate) fn read(fields: &mut Fields<'_>, cx: &mut Context<'_>) -> SandboxSpec {
    let place = fields.place_of("sandbox");
    let Some(mut sandbox) = fields.nested("sandbox", &mut cx.report) else {
        return SandboxSpec::default();
    };
    let require = sandbox.word("require", &mut cx.report);
    let written = SandboxSpec {
        require: require.map(|word| LocatedValue {
            value: match word.value {
                OFF => Level::Off,
                LANDLOCK => Level::Landlock,
                SEATBELT => Level::Seatbelt,
                _ => Level::Full,
            },
            place: word.place,
        }),
        read: read_paths("read", &mut sandbox, cx),
        write: read_paths("write", &mut sandbox, cx),
        network: read_network(&mut sandbox, cx),
    };
    sandbox.close();
    let fields = [
        ("read", written.read.is_some()),
        ("write", written.write.is_some()),
        ("network", written.network.is_some()),
    ];
    let is_off = written.require.as_ref().map(|level| level.value) == Some(Level::Off);
    for (name, _) in fields.into_iter().filter(|(_, is_there)| *is_there) {
        if let (true, Some(place)) = (is_off, place) {
            let message =
                format!("`{name}` has no effect at the level `off`, which confines nothing");
            let problem = Problem::warning(codes::NO_EFFECT, place, message);
            cx.report
                .add(problem.help("remove it, or require another level"));
        }
    }
    written
}

fn read_network(sandbox: &mut Fields<'_>, cx: &mut Context<'_>) -> Option<LocatedValue<Network>> {
    let place = sandbox.place_of("network");
    let value = match sandbox.word_or_mapping("network", &mut cx.report)? {
        WordOr::Word(word) if word.value == ANY => Network::Any,
        WordOr::Word(_) => Network::None,
        WordOr::Mapping(mut reachable) => {
            let hosts = read_hosts(&mut reachable, cx);
            reachable.close();
            Network::Allow(hosts?)
        }
    };
    let place = place?;
    Some(LocatedValue { value, place })
}

fn read_hosts(reachable: &mut Fields<'_>, cx: &mut Context<'_>) -> Option<Vec<ReachableHost>> {
    let place = reachable.place_of("allow");
    let texts = reachable.texts("allow", &mut cx.report);
    let place = place?;
    let problem = match texts.len() {
        0 => ("`allow` lists no host".to_owned(), "write `network: none`"),
        1..=MAX_SANDBOX_HOSTS => {
            return Some(texts.iter().filter_map(|it| read_host(it, cx)).collect());
        }
        count => (
            format!("`allow` lists {count} hosts; at most {MAX_SANDBOX_HOSTS} are allowed"),
            "combine hosts into patterns such as `*.example.org`",
        ),
    };
    let (message, help) = problem;
    cx.report
        .add(Problem::new(codes::INVALID_VALUE, place, message).help(help));
    None
}

fn read_host(text: &LocatedValue<&str>, cx: &mut Context<'_>) -> Option<ReachableHost> {
    let why = match text.value.parse::<ReachableHost>() {
        Ok(host) => match host.address().map(reach_of) {
            Some(AddressReachability::Never) => {
                "is an address that programs must not access; remove it".to_owned()
            }
            Some(AddressReachability::Public | AddressReachability::Private) | None => {
                return Some(host);
            }
        },
        Err(invalid) => invalid.to_string(),
    };
    let message = format!("`{}` {why}", text.value);
    cx.report
        .add(Problem::new(codes::INVALID_VALUE, text.place, message));
    None
}

fn read_paths(
    name: &'static str,
    sandbox: &mut Fields<'_>,
    cx: &mut Context<'_>,
) -> Option<Vec<SandboxPath>> {
    let place = sandbox.place_of(name);
    let texts = sandbox.texts(name, &mut cx.report);
    let place = place?;
    if texts.len() > MAX_SANDBOX_PATHS {
        let message = format!(
            "`{name}` lists {} paths; at most {MAX_SANDBOX_PATHS} are allowed",
            texts.len()
        );
        let problem = Problem::new(codes::INVALID_VALUE, place, message);
        cx.report
            .add(problem.help("list the directories that contain them"));
        return None;
    }
    let paths = texts.iter().filter_map(|text| read_path(text, cx));
    Some(paths.collect())
}

fn read_path(text: &LocatedValue<&str>, cx: &mut Context<'_>) -> Option<SandboxPath> {
    match find(text.value, &cx.files.place_of(Path::new("")), cx.machine) {
        Ok(path) => Some(path),
        Err((why, help)) => {
            let message = format!("`{}` {why}", text.value);
            let problem = Problem::new(codes::SANDBOX_PATH, text.place, message);
            cx.report.add(problem.help(help));
            None
        }
    }
}

/// Resolves a path, or returns the reason why it cannot be granted, with a suggestion.
pub(crate) fn find(
    text: &str,
    project: &Path,
    machine: &dyn HostMachine,
) -> Result<SandboxPath, (&'static str, &'static str)> {
    const PLAIN: (&str, &str) = (
        "is not a valid sandbox path",
        "write an absolute path, or one below `~/` or within the project, without `..`",
    );
    let written = Path::new(text);
    if text.is_empty() || written.components().any(|it| it == Component::ParentDir) {
        return Err(PLAIN);
    }
    let full: PathBuf = match written.strip_prefix(HOME) {
        Ok(rest) => {
            let home = machine.home().ok_or((
                "is below the home directory, but the user has none",
                "write an absolute path",
            ))?;
            home.join(rest)
        }
        Err(_) => project.join(written),
    };
    // Removes `.` and double slashes.
    let full: PathBuf = full.components().collect();
    for state in [machine.state_root(), machine.tasks_root()]
        .into_iter()
        .flatten()
    {
        let real = machine.real_path(&full).ok_or((
            "does not exist",
            "create it, correct the path, or remove it",
        ))?;
        if real.starts_with(&state) || state.starts_with(&real) {
            return Err((
                "is or contains goondan's own files, which tools must not access",
                "list only the other directories that tools need",
            ));
        }
    }
    SandboxPath::try_from(full).map_err(|_invalid| PLAIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct FakeMachine;

    impl HostMachine for FakeMachine {
        fn lacks_runtime(&self, _: &Path) -> Option<goondan_protocol::module_file::NoRuntime> {
            None
        }

        fn has_program(&self, _: &str, _: &Path) -> bool {
            true
        }

        fn lacks_sandbox(&self, _: Level) -> Option<String> {
            None
        }

        fn home(&self) -> Option<PathBuf> {
            Some("/home/me".into())
        }

        fn state_root(&self) -> Option<PathBuf> {
            Some("/home/me/.goondan".into())
        }

        fn real_path(&self, path: &Path) -> Option<PathBuf> {
            match path.to_str()? {
                "/srv/link" => Some("/home/me/.goondan/system".into()),
                "/srv/missing" => None,
                _ => Some(path.to_owned()),
            }
        }
    }

    #[test]
    fn box_3_a_path_is_of_the_machine_of_the_user_or_of_the_project() {
        let found = |text| find(text, Path::new("/srv/project"), &FakeMachine).map(PathBuf::from);
        assert_eq!(found("/opt/sdk/").unwrap(), Path::new("/opt/sdk"));
        assert_eq!(found("~/.cargo").unwrap(), Path::new("/home/me/.cargo"));
        assert_eq!(found("./out").unwrap(), Path::new("/srv/project/out"));
        for wrong in ["", "../other", "/srv/../etc", "/srv/missing"] {
            assert!(found(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sec_3_no_path_opens_goondans_own_files() {
        for own in [
            "/",
            "~",
            "/home",
            "~/.goondan",
            "~/.goondan/run",
            "/srv/link",
        ] {
            let (why, _) = find(own, Path::new("/srv/project"), &FakeMachine).unwrap_err();
            assert!(why.contains("goondan's own files"), "{own}: {why}");
        }
    }

    #[test]
    fn box_3_agent_sandbox_settings_override_those_of_the_swarm() {
        let path = |text: &str| SandboxPath::try_from(PathBuf::from(text)).unwrap();
        let swarm = SandboxSpec {
            read: Some(vec![path("/opt/a")]),
            write: Some(vec![path("/srv/a")]),
            ..SandboxSpec::default()
        };
        let agent = SandboxSpec {
            read: Some(Vec::new()),
            ..SandboxSpec::default()
        };
        let policy = agent.within(&swarm);
        assert_eq!(policy.require, Level::Full);
        assert_eq!(policy.read, []);
        assert_eq!(policy.write, [path("/srv/a")]);
    }
}
