//! Generates service files from those in the repository's `systemd/` directory and the paths of this machine. No I/O.
//!
//! The repository's files are the only source of their content; this module fills in paths and replaces what differs
//! in a system service.

use std::path::{Path, PathBuf};

const UNIT: &str = include_str!("../../../../systemd/goondan.service");
const AGENT: &str = include_str!("../../../../systemd/ai.goondan.orchestrator.plist");

/// Replacements for the unit of a system service; `USER`, `GROUP` and `%h` are filled in afterwards.
const SYSTEM: [(&str, &str); 9] = [
    (
        "# goondan as a user service: the daemon of one person, with the rights of that person and fewer.\n",
        "# goondan as a system service: the daemon of one user, with the rights of that user and fewer.\n",
    ),
    ("[Service]\n", "[Service]\nUser=USER\n"),
    (
        "ExecStartPre=+/usr/bin/mkdir -p -m 0700 %h/.goondan",
        // Runs as the user, who owns the parent directory and could put a symbolic link there.
        "ExecStartPre=+/usr/bin/setpriv --reuid=USER --regid=GROUP --init-groups /usr/bin/mkdir -p -m 0700 %h/.goondan",
    ),
    (
        "-%h/.config/goondan/environment",
        "-/etc/goondan/environment",
    ),
    (
        "systemctl --user status goondan",
        "systemctl status goondan",
    ),
    (
        "# In a user service, every protection of the file system needs PrivateUsers.\n",
        "",
    ),
    ("PrivateUsers=yes\n", ""),
    (
        "InaccessiblePaths=-%t/bus -%t/systemd/private ",
        "InaccessiblePaths=-/run/user ",
    ),
    ("WantedBy=default.target", "WantedBy=multi-user.target"),
];

/// Prefix of each writable path; the first one is the state root.
const WRITABLE: &str = "ReadWritePaths=-";

/// Placeholder paths in the files.
const UNIT_PLACES: [&str; 2] = ["%h/.cargo/bin", "%h/.goondan"];
const AGENT_PLACES: [&str; 2] = ["$HOME/.cargo/bin", "$HOME/.goondan"];

/// A path that the file cannot represent.
#[derive(Debug, thiserror::Error)]
#[error("the path {path:?} contains characters that a service file cannot contain")]
pub(super) struct BadPath {
    path: String,
}

/// Paths of this machine. All are absolute.
#[derive(Debug, Clone, Copy)]
pub(super) struct UnitPaths<'a> {
    /// Directory of the four programs.
    pub(super) programs: &'a Path,
    pub(super) state_root: &'a Path,
    /// Home directory of the daemon's user.
    pub(super) home: &'a Path,
    /// Directories that the daemon and its agents may write in addition to the state root.
    pub(super) writable: &'a [PathBuf],
}

impl UnitPaths<'_> {
    fn each(&self) -> [&Path; 2] {
        [self.programs, self.state_root]
    }
}

/// Unit of a user service. Paths in the home directory are written with `%h`, as in the source file.
pub(super) fn user_unit(places: &UnitPaths<'_>) -> Result<String, BadPath> {
    let [programs, state_root] = places.each().map(|path| in_unit(path, Some(places.home)));
    let [bin, state] = UNIT_PLACES;
    let unit = filled(UNIT, &[(bin, programs?), (state, state_root?)]);
    widened(&unit, places.writable, Some(places.home))
}

/// Unit of a system service that runs as a user: with absolute paths, because `%h` is root's home there.
pub(super) fn system_unit(
    places: &UnitPaths<'_>,
    user: &str,
    group: &str,
) -> Result<String, BadPath> {
    let mut unit = UNIT.to_owned();
    for (from, to) in SYSTEM {
        let to = to.replace("USER", user).replace("GROUP", group);
        unit = unit.replace(from, &to);
    }
    let [programs, state_root] = places.each().map(|path| in_unit(path, None));
    let [bin, state] = UNIT_PLACES;
    let home = in_unit(places.home, None)?;
    let unit = filled(
        &unit,
        &[(bin, programs?), (state, state_root?), ("%h", home)],
    );
    widened(&unit, places.writable, None)
}

/// Adds a line for each additional writable directory after the state root's.
fn widened(unit: &str, writable: &[PathBuf], home: Option<&Path>) -> Result<String, BadPath> {
    let mut further = String::new();
    for dir in writable {
        further.push_str(&format!("{WRITABLE}{}\n", in_unit(dir, home)?));
    }
    let mut out = String::new();
    let mut is_due = !further.is_empty();
    for line in unit.split_inclusive('\n') {
        out.push_str(line);
        if is_due && line.starts_with(WRITABLE) {
            out.push_str(&further);
            is_due = false;
        }
    }
    Ok(out)
}

/// Additional writable directories in a unit, as written by [`widened`].
pub(super) fn writable_of(unit: &str, home: &Path) -> Vec<PathBuf> {
    let lines = unit.lines().filter_map(|line| line.strip_prefix(WRITABLE));
    let path_of = |value: &str| match value.strip_prefix("%h/") {
        Some(rest) => home.join(rest.replace("%%", "%")),
        None => PathBuf::from(value.replace("%%", "%")),
    };
    lines.skip(1).map(path_of).collect()
}

/// Property list of a launchd agent.
pub(super) fn agent(places: &UnitPaths<'_>) -> Result<String, BadPath> {
    let [programs, state_root] = places.each().map(|path| in_shell_in_xml(path, places.home));
    let [bin, state] = AGENT_PLACES;
    Ok(filled(AGENT, &[(bin, programs?), (state, state_root?)]))
}

/// Replaces each placeholder with its path. Inserted paths are not searched again.
fn filled(text: &str, places: &[(&str, String)]) -> String {
    let marks = ["\u{1}", "\u{2}", "\u{3}"];
    let mut out = text.to_owned();
    for ((stands_for, _), mark) in places.iter().zip(marks) {
        out = out.replace(stands_for, mark);
    }
    for ((_, place), mark) in places.iter().zip(marks) {
        out = out.replace(mark, place);
    }
    out
}

pub(super) fn user_of(unit: &str) -> Option<&str> {
    let user = unit.lines().find_map(|line| line.strip_prefix("User="));
    user.map(str::trim).filter(|user| !user.is_empty())
}

/// Formats a path for a unit. Systemd splits and unescapes lines in several ways, so all characters that could be
/// affected are rejected.
fn in_unit(path: &Path, home: Option<&Path>) -> Result<String, BadPath> {
    let (start, rest) = below(path, home, "%h");
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+@,=~%".contains(c);
    match rest.to_str().filter(|rest| rest.chars().all(is_plain)) {
        Some(rest) => Ok(format!("{start}{}", rest.replace('%', "%%"))),
        None => Err(bad(path)),
    }
}

/// Formats a path for a double-quoted shell string inside XML.
fn in_shell_in_xml(path: &Path, home: &Path) -> Result<String, BadPath> {
    let (mut out, rest) = below(path, Some(home), "$HOME");
    let rest = rest
        .to_str()
        .filter(|rest| !rest.contains(char::is_control));
    for c in rest.ok_or_else(|| bad(path))?.chars() {
        match c {
            '\\' | '"' | '$' | '`' => out.extend(['\\', c]),
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            c => out.push(c),
        }
    }
    Ok(out)
}

/// Splits a path into the placeholder for the home directory, with a trailing `/`, and the rest.
fn below<'p>(path: &'p Path, home: Option<&Path>, stands_for: &str) -> (String, &'p Path) {
    match home.and_then(|home| path.strip_prefix(home).ok()) {
        Some(rest) => (format!("{stands_for}/"), rest),
        None => (String::new(), path),
    }
}

fn bad(path: &Path) -> BadPath {
    BadPath {
        path: path.to_string_lossy().into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places<'a>(programs: &'a str, state_root: &'a str) -> UnitPaths<'a> {
        UnitPaths {
            programs: Path::new(programs),
            state_root: Path::new(state_root),
            home: Path::new("/home/ada"),
            writable: &[],
        }
    }

    const USUAL: (&str, &str) = ("/home/ada/.cargo/bin", "/home/ada/.goondan");

    #[test]
    fn rel_1_the_usual_places_give_the_files_as_they_are() {
        let usual = places(USUAL.0, USUAL.1);
        assert_eq!(user_unit(&usual).unwrap(), UNIT);
        assert_eq!(agent(&usual).unwrap(), AGENT);
    }

    #[test]
    fn rel_1_other_places_are_put_in_everywhere() {
        let other = places("/opt/goondan", "/srv/100%/state");
        let unit = user_unit(&other).unwrap();
        for line in [
            "ExecStartPre=+/usr/bin/mkdir -p -m 0700 /srv/100%%/state",
            "ExecStart=/opt/goondan/goondan-orchestrator --state-root /srv/100%%/state",
            "Environment=PATH=/opt/goondan:%h/.local/bin:/usr/local/bin:/usr/bin:/bin",
            "ReadWritePaths=-/srv/100%%/state",
        ] {
            assert!(unit.lines().any(|it| it == line), "no {line:?} in {unit}");
        }
        let nested = user_unit(&places("/home/ada/.goondan/bin", "/srv/%h")).unwrap();
        let line = "ExecStart=%h/.goondan/bin/goondan-orchestrator --state-root /srv/%%h";
        assert!(nested.lines().any(|it| it == line), "{nested}");
        let hostile = places("/o/$(x)", "/s/\"<&`\\");
        let agent = agent(&hostile).unwrap();
        let command = r#"exec "/o/\$(x)/goondan-orchestrator" --state-root "/s/\"&lt;&amp;\`\\" --log-dir "/s/\"&lt;&amp;\`\\/logs""#;
        assert!(agent.contains(command), "{agent}");
        for path in ["/a b", "/a\"", "/a;", "/a$b", "/a\n", "/a:b", "/a\\"] {
            assert!(user_unit(&places(path, USUAL.1)).is_err(), "{path}");
        }
    }

    #[test]
    fn rel_1_a_system_unit_runs_as_its_user_and_knows_no_other_home() {
        for (from, _) in SYSTEM {
            assert!(UNIT.contains(from), "{from:?} is not in the unit");
        }
        let unit = system_unit(&places(USUAL.0, USUAL.1), "ada", "staff").unwrap();
        for line in [
            "User=ada",
            "ExecStartPre=+/usr/bin/setpriv --reuid=ada --regid=staff --init-groups /usr/bin/mkdir -p -m 0700 /home/ada/.goondan",
            "ExecStart=/home/ada/.cargo/bin/goondan-orchestrator --state-root /home/ada/.goondan",
            "EnvironmentFile=-/etc/goondan/environment",
            "ReadWritePaths=-/home/ada/.goondan",
            "InaccessiblePaths=-/run/user -/run/systemd/private -/run/dbus/system_bus_socket",
            "WantedBy=multi-user.target",
        ] {
            assert!(unit.lines().any(|it| it == line), "no {line:?} in {unit}");
        }
        assert_eq!((user_of(&unit), user_of(UNIT)), (Some("ada"), None));
        for gone in ["%h", "%t", "--user", "PrivateUsers", "USER", "GROUP"] {
            assert!(!unit.contains(gone), "{gone} in {unit}");
        }
    }

    #[test]
    fn rel_1_writable_directories_are_added_to_unit_and_read_back() {
        let dirs = [
            PathBuf::from("/home/ada/100%"),
            PathBuf::from("/srv/%h/bot"),
        ];
        let wide = UnitPaths {
            writable: &dirs,
            ..places(USUAL.0, USUAL.1)
        };
        let lines =
            "ReadWritePaths=-%h/.goondan\nReadWritePaths=-%h/100%%\nReadWritePaths=-/srv/%%h/bot\n";
        let unit = user_unit(&wide).unwrap();
        assert!(unit.contains(lines), "{unit}");
        let system = system_unit(&wide, "ada", "staff").unwrap();
        let home = Path::new("/home/ada");
        assert_eq!(writable_of(&unit, home), dirs);
        assert_eq!(writable_of(&system, home), dirs);
        assert_eq!(writable_of(UNIT, home), Vec::<PathBuf>::new());
    }

    #[test]
    fn rel_1_no_unit_directive_breaks_agent_requirements() {
        let units = [
            UNIT.to_owned(),
            system_unit(&places(USUAL.0, USUAL.1), "ada", "staff").unwrap(),
        ];
        let directives = |unit: &str| {
            let lines = unit.lines().filter(|line| !line.starts_with('#'));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        for unit in units.iter().map(|unit| directives(unit)) {
            for (directive, why) in [
                ("RestrictSUIDSGID", "no `openat2`"),
                ("MemoryDenyWriteExecute", "no JIT of bun and node"),
                ("ProtectKernelTunables", "no /proc of confined programs"),
                ("ProtectKernelLogs", "no /proc of confined programs"),
                ("ProtectHostname", "no /proc of confined programs"),
                ("ProtectProc", "no /proc of confined programs"),
                ("ProcSubset", "no /proc of confined programs"),
                ("ProtectControlGroups", "no control groups for limits"),
            ] {
                let is_set = unit.iter().any(|line| line.starts_with(directive));
                assert!(!is_set, "{directive}: {why}");
            }
            assert!(unit.iter().any(|line| line == "ProtectHome=read-only"));
        }
    }
}
