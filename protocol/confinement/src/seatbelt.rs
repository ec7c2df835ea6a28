//! Profile by which macOS confines a program (level `seatbelt`). **Untested on macOS.**
//!
//! A profile is a text in the language of `sandbox-exec`. It denies everything except the
//! operations listed here: on paths of the policy, on files of the system's programs, and on the
//! process and its descendants. A process cannot leave its profile, and neither can its
//! descendants.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use goondan_protocol::sandbox::Network;

use crate::layout::{Access, Layout};

/// Files of the system's programs, besides those of the policy.
const SYSTEM: [&str; 6] = [
    "/Library/Apple",
    "/Library/Developer/CommandLineTools",
    "/System/Library",
    "/System/Volumes/Preboot/Cryptexes",
    "/private/var/db/timezone",
    "/private/var/select",
];

const READ_DEVICES: [&str; 2] = ["/dev/random", "/dev/urandom"];

/// Devices that may be read and written, in addition to the process's open files by descriptor.
const DEVICES: [&str; 2] = ["/dev/null", "/dev/zero"];
const OPEN_FILES: &str = "/dev/fd";

/// Service that resolves user names. It is the only service that is available without a network.
const NAMES_OF_USERS: &str = "com.apple.system.opendirectoryd.libinfo";

/// Services for name servers and certificate validation, available with full network access.
const ABOUT_SERVERS: [&str; 2] = ["com.apple.SystemConfiguration.configd", "com.apple.trustd"];

/// Socket of the name resolver.
const RESOLVER: &str = "/private/var/run/mDNSResponder";

/// Operations permitted on readable paths: read and execute.
const READ: &str = "file-read* file-map-executable process-exec";

/// A path cannot be expressed in a profile.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not allowed in a sandbox profile; rename it, or remove it from the policy")]
pub struct UnfitPath(String);

/// The profile for a layout. `program` is the program that runs in it.
///
/// # Errors
///
/// [`UnfitPath`] if a path is not UTF-8, or contains control characters that the language cannot
/// express.
pub(crate) fn profile(
    layout: &Layout,
    network: &Network,
    program: &Path,
) -> Result<String, UnfitPath> {
    let mut rules = SeatbeltProfile(String::from(
        "(version 1)\n\
         (deny default)\n\
         (allow process-fork)\n\
         (allow process-info* (target same-sandbox))\n\
         (allow signal (target same-sandbox))\n\
         (allow sysctl-read)\n",
    ));
    rules.allow(READ, &literal(program)?);
    for path in SYSTEM {
        rules.allow(READ, &subpath(Path::new(path))?);
    }
    for (path, access) in &layout.mounts {
        rules.allow(READ, &subpath(path)?);
        if *access == Access::Write {
            rules.allow("file-write*", &subpath(path)?);
        }
    }
    rules.allow_above(layout, program)?;
    rules.allow_devices()?;
    rules.allow("mach-lookup", &service(NAMES_OF_USERS));
    rules.allow_network(network)?;
    Ok(rules.0)
}

/// The profile under construction. It denies everything that it does not allow.
struct SeatbeltProfile(String);

impl SeatbeltProfile {
    fn allow(&mut self, operations: &str, filter: &str) {
        // Writing to a string cannot fail.
        writeln!(self.0, "(allow {operations} {filter})").ok();
    }

    /// Allows the lookups that resolve a path: the metadata of its ancestors, and the entries of
    /// the root, which every program needs to start.
    fn allow_above(&mut self, layout: &Layout, program: &Path) -> Result<(), UnfitPath> {
        self.allow("file-read*", &literal(Path::new("/"))?);
        let granted = layout.mounts.keys().map(PathBuf::as_path);
        let links = layout.links.keys().map(PathBuf::as_path);
        let above = granted.chain(links.clone()).chain([program]);
        let above = above.flat_map(|path| path.ancestors().skip(1));
        let told: BTreeSet<&Path> = above.chain(links).collect();
        for path in told.into_iter().filter(|path| path.parent().is_some()) {
            self.allow("file-read-metadata", &literal(path)?);
        }
        Ok(())
    }

    fn allow_devices(&mut self) -> Result<(), UnfitPath> {
        for device in READ_DEVICES {
            self.allow("file-read*", &literal(Path::new(device))?);
        }
        for device in DEVICES {
            let device = literal(Path::new(device))?;
            self.allow("file-read* file-write-data file-ioctl", &device);
        }
        let open_files = subpath(Path::new(OPEN_FILES))?;
        self.allow("file-read* file-write-data", &open_files);
        Ok(())
    }

    fn allow_network(&mut self, network: &Network) -> Result<(), UnfitPath> {
        match network {
            // An allow list needs an egress, and such a policy is refused earlier.
            Network::None | Network::Allow(_) => self.0.push_str("(deny network*)\n"),
            Network::Any => {
                self.allow("network-outbound", "(remote ip)");
                self.allow("network-inbound network-bind", "(local ip)");
                self.allow("network-outbound", &literal(Path::new(RESOLVER))?);
                for name in ABOUT_SERVERS {
                    self.allow("mach-lookup", &service(name));
                }
            }
        }
        Ok(())
    }
}

/// Filter for the path and everything below it.
fn subpath(path: &Path) -> Result<String, UnfitPath> {
    Ok(format!("(subpath {})", quoted(path)?))
}

/// Filter for the path alone.
fn literal(path: &Path) -> Result<String, UnfitPath> {
    Ok(format!("(literal {})", quoted(path)?))
}

fn service(name: &str) -> String {
    format!("(global-name \"{name}\")")
}

/// The path as a string literal of the language, with all special characters escaped.
fn quoted(path: &Path) -> Result<String, UnfitPath> {
    let unfit = || UnfitPath(path.display().to_string().escape_debug().to_string());
    let mut text = String::from("\"");
    for c in path.to_str().ok_or_else(unfit)?.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            c if c.is_control() => return Err(unfit()),
            c => text.push(c),
        }
    }
    text.push('"');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: &str = "/opt/goondan/goondan-agent-process";

    fn layout(paths: &[(&str, Access)]) -> Layout {
        let mounts = paths.iter().map(|(path, access)| ((*path).into(), *access));
        Layout {
            mounts: mounts.collect(),
            links: [("/tmp".into(), "private/tmp".into())].into(),
        }
    }

    fn of(paths: &[(&str, Access)], network: &Network) -> String {
        profile(&layout(paths), network, Path::new(PROGRAM)).unwrap()
    }

    /// The operations that a profile allows with a filter.
    fn allowed<'p>(profile: &'p str, filter: &str) -> Vec<&'p str> {
        let end = format!(" {filter})");
        let rules = profile.lines().filter_map(|line| {
            let operations = line.strip_prefix("(allow ")?.strip_suffix(&end)?;
            Some(operations.split(' '))
        });
        rules.flatten().collect()
    }

    #[test]
    fn sec_3_seatbelt_profile_denies_by_default() {
        let profile = of(&[], &Network::None);
        assert!(profile.starts_with("(version 1)\n(deny default)\n"));
        assert!(profile.ends_with("(deny network*)\n"));
        for line in profile.lines().skip(2) {
            let is_narrow = line.contains('"') || line.contains("same-sandbox");
            let is_of_itself = ["process-fork", "sysctl-read", "network*"]
                .iter()
                .any(|word| line.ends_with(&format!(" {word})")));
            assert!(is_narrow || is_of_itself, "{line}");
        }
        assert!(!profile.contains("file-write*"), "{profile}");
        assert_eq!(profile.matches("mach-lookup").count(), 1);
        assert_eq!(profile.matches("signal").count(), 1);
        for wide in [
            "(subpath \"/\")",
            "/System/Volumes/Data",
            "/Users",
            "mach-register",
        ] {
            assert!(!profile.contains(wide), "{wide}: {profile}");
        }
    }

    #[test]
    fn sec_3_profile_allows_work_directory_writes_and_project_reads() {
        let (work, project) = ("/Users/me/.goondan/work", "/Users/me/project");
        let paths = [
            (work, Access::Write),
            (project, Access::Read),
            ("/usr", Access::Read),
        ];
        let profile = of(&paths, &Network::None);
        let read = ["file-read*", "file-map-executable", "process-exec"];
        for path in [project, "/usr", "/System/Library"] {
            assert_eq!(allowed(&profile, &format!("(subpath \"{path}\")")), read);
        }
        let of_work = allowed(&profile, &format!("(subpath \"{work}\")"));
        assert_eq!(of_work, [&read[..], &["file-write*"]].concat());
        assert_eq!(allowed(&profile, &format!("(literal \"{PROGRAM}\")")), read);
        for above in ["/Users", "/Users/me", "/Users/me/.goondan", "/opt", "/tmp"] {
            let of_above = allowed(&profile, &format!("(literal \"{above}\")"));
            assert_eq!(of_above, ["file-read-metadata"], "{above}");
        }
    }

    #[test]
    fn sec_3_no_path_leads_out_of_its_rule() {
        let tricky = "/a\") (allow default) (literal \"\\b\n(allow network*)";
        let profile = of(&[(tricky, Access::Write)], &Network::None);
        let quoted = "\"/a\\\") (allow default) (literal \\\"\\\\b\\n(allow network*)\"";
        let rule = format!("(allow file-write* (subpath {quoted}))");
        assert!(profile.lines().any(|line| line == rule), "{profile}");
        assert!(
            !profile
                .lines()
                .any(|line| line.starts_with("(allow network"))
        );
        // Brackets outside of string literals are balanced.
        let mut depth = 0;
        let (mut is_text, mut is_escaped) = (false, false);
        for c in profile.chars() {
            match c {
                _ if is_escaped => is_escaped = false,
                '\\' => is_escaped = is_text,
                '"' => is_text = !is_text,
                '(' if !is_text => depth += 1,
                ')' if !is_text => depth -= 1,
                '\n' => assert!(!is_text && depth == 0, "{profile}"),
                _ => {}
            }
        }
        assert_eq!((is_text, depth), (false, 0));
    }

    #[test]
    fn sec_3_a_path_that_no_profile_can_name_is_refused() {
        use std::os::unix::ffi::OsStrExt as _;
        let no_text = Path::new(std::ffi::OsStr::from_bytes(b"/a\xff"));
        for path in [Path::new("/a\u{1b}[2J"), Path::new("/a\u{7f}"), no_text] {
            let mut layout = layout(&[]);
            layout.mounts.insert(path.into(), Access::Read);
            let refused = profile(&layout, &Network::None, Path::new(PROGRAM)).unwrap_err();
            let text = refused.to_string();
            assert!(text.contains("is not allowed"), "{text}");
            assert!(!text.contains('\u{1b}'), "{text:?}");
        }
    }

    #[test]
    fn sec_3_network_profile_allows_no_file_socket_but_the_resolver() {
        let profile = of(&[], &Network::Any);
        assert!(!profile.contains("(deny network*)"));
        assert_eq!(allowed(&profile, "(remote ip)"), ["network-outbound"]);
        let network = profile.lines().filter(|line| line.contains("network-"));
        for line in network {
            let is_known = ["(remote ip)", "(local ip)", RESOLVER]
                .iter()
                .any(|filter| line.contains(filter));
            assert!(is_known, "{line}");
        }
        // An allow list, which only the egress can enforce, is not enforced in part.
        let listed = Network::Allow(vec!["a.org".parse().unwrap()]);
        assert_eq!(of(&[], &listed), of(&[], &Network::None));
    }
}
