//! Which program runs a module file of a project (`ROOT-5` says where such a file may lie).
//!
//! Rules only: a file's ending names its [`ModuleKind`], a kind names the [`Runtime`]s that can run it,
//! and a runtime names its program and arguments. Whoever starts processes, or checks whether they could be
//! started, looks for the program in `PATH` and asks node for its version.

use std::fmt;
use std::path::Path;

/// What a module file is written in, by the ending of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ModuleKind {
    /// `.js`, `.mjs` or `.cjs`.
    JavaScript,
    /// `.ts`, `.mts` or `.cts`.
    TypeScript,
    /// `.py`.
    Python,
    /// Anything else: the file itself is the program.
    Executable,
}

/// What runs module files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Runtime {
    /// Bun.
    Bun,
    /// Deno.
    Deno,
    /// Node.js, which runs TypeScript from [`NodeVersion::TYPESCRIPT`] on.
    Node,
    /// Python 3.
    Python,
}

impl ModuleKind {
    /// The kind of a file.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        let ending = path.extension().and_then(|ending| ending.to_str());
        match ending {
            Some("js" | "mjs" | "cjs") => Self::JavaScript,
            Some("ts" | "mts" | "cts") => Self::TypeScript,
            Some("py") => Self::Python,
            _ => Self::Executable,
        }
    }

    /// The runtimes that can run such a file, the preferred one first. None for an executable.
    #[must_use]
    pub fn runtimes(self) -> &'static [Runtime] {
        match self {
            Self::JavaScript | Self::TypeScript => &[Runtime::Bun, Runtime::Deno, Runtime::Node],
            Self::Python => &[Runtime::Python],
            Self::Executable => &[],
        }
    }

    /// What to install when no runtime is there, as the end of a sentence.
    #[must_use]
    pub fn choices(self) -> &'static str {
        match self {
            Self::JavaScript => "install bun, deno or node",
            Self::TypeScript => "install bun, deno or node 22.6 or newer",
            Self::Python => "install python3",
            Self::Executable => "make the file executable (chmod +x)",
        }
    }
}

impl fmt::Display for ModuleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::JavaScript => "JavaScript",
            Self::TypeScript => "TypeScript",
            Self::Python => "Python",
            Self::Executable => "an executable",
        })
    }
}

impl Runtime {
    /// The program's name in `PATH`.
    #[must_use]
    pub fn program(self) -> &'static str {
        match self {
            Self::Bun => "bun",
            Self::Deno => "deno",
            Self::Node => "node",
            Self::Python => "python3",
        }
    }

    /// Arguments before the text of a host of modules, which the runtime runs without the configuration, caches and
    /// packages that it would look for where it starts and in `HOME`. `node` is node's version; it matters to node alone.
    ///
    /// A host of Python gets the module's path as its one argument.
    #[must_use]
    pub fn host_arguments(self, node: NodeVersion) -> Vec<&'static str> {
        match self {
            Self::Bun => vec!["--no-install", "-e"],
            Self::Deno => vec!["eval", "--no-config", "--no-lock"],
            Self::Node => {
                // One host runs both languages.
                let types = node.arguments(ModuleKind::TypeScript).iter().copied();
                let paths = (node >= NodeVersion::GLOBAL_SEARCH_PATHS)
                    .then_some("--no-global-search-paths");
                types
                    .chain(paths)
                    .chain(["--input-type=module", "-e"])
                    .collect()
            }
            // `-I`: no files of the user's and none of where it starts. `-B`: nothing is written beside a module (`ROOT-2`).
            // `-u`: its output is a protocol, and a line must not wait in a buffer.
            Self::Python => vec!["-I", "-B", "-u", "-c"],
        }
    }

    /// Arguments that stand before the path of a file which is run as a program. `node` is node's
    /// version; it matters to node alone.
    #[must_use]
    pub fn file_arguments(self, kind: ModuleKind, node: NodeVersion) -> &'static [&'static str] {
        match self {
            Self::Bun => &["run"],
            Self::Deno => &["run", "--allow-all", "--quiet"],
            Self::Node => node.arguments(kind),
            // Its output is a protocol: a line must not wait in a buffer.
            Self::Python => &["-u"],
        }
    }
}

/// The version of node, of which depends whether it runs TypeScript.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeVersion {
    /// The first number.
    pub major: u32,
    /// The second number.
    pub minor: u32,
}

impl NodeVersion {
    /// The first version that runs TypeScript, by taking the types out.
    pub const TYPESCRIPT: Self = Self {
        major: 22,
        minor: 6,
    };

    /// The first version that can be kept from the packages in `HOME`.
    pub const GLOBAL_SEARCH_PATHS: Self = Self {
        major: 16,
        minor: 10,
    };

    /// Reads what `node --version` prints: `v22.6.0`.
    #[must_use]
    pub fn parse(printed: &str) -> Option<Self> {
        let mut numbers = printed.trim().strip_prefix('v')?.split('.');
        Some(Self {
            major: numbers.next()?.parse().ok()?,
            minor: numbers.next()?.parse().ok()?,
        })
    }

    /// Whether it can run files of a kind.
    #[must_use]
    pub fn runs(self, kind: ModuleKind) -> bool {
        match kind {
            ModuleKind::JavaScript => true,
            ModuleKind::TypeScript => self >= Self::TYPESCRIPT,
            ModuleKind::Python | ModuleKind::Executable => false,
        }
    }

    /// Arguments without which it does not run files of a kind; none where none would help.
    #[must_use]
    pub fn arguments(self, kind: ModuleKind) -> &'static [&'static str] {
        // Without being told so from 22.18 and 23.6 on.
        let by_itself = match self.major {
            22 => self.minor >= 18,
            23 => self.minor >= 6,
            major => major > 23,
        };
        if kind == ModuleKind::TypeScript && self.runs(kind) && !by_itself {
            &["--experimental-strip-types"]
        } else {
            &[]
        }
    }
}

/// Why nothing on a machine runs a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoRuntime {
    /// What the module is written in.
    pub kind: ModuleKind,
    /// What there is of node.
    pub node: UnfitNode,
}

/// Why node does not run a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnfitNode {
    /// It is not in `PATH`, or would not be asked.
    Absent,
    /// It does not say its version.
    Silent,
    /// It is older than what it would have to be.
    TooOld(NodeVersion),
}

impl fmt::Display for NoRuntime {
    /// What follows the name of the module's file. [`ModuleKind::choices`] says what to do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind;
        match (kind, self.node) {
            (ModuleKind::Executable, _) => write!(f, "cannot be executed"),
            (_, UnfitNode::Absent) => {
                write!(f, "is {kind}, and nothing that runs it is in PATH")
            }
            (_, UnfitNode::Silent) => {
                write!(
                    f,
                    "is {kind}, and the node in PATH does not say its version"
                )
            }
            (_, UnfitNode::TooOld(NodeVersion { major, minor })) => write!(
                f,
                "is {kind}, which the node {major}.{minor} in PATH is too old for"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_files_ending_says_what_runs_it() {
        let kind = |path: &str| ModuleKind::of(Path::new(path));
        assert_eq!(kind("tools/a.mjs"), ModuleKind::JavaScript);
        assert_eq!(kind("tools/a.ts"), ModuleKind::TypeScript);
        assert_eq!(kind("tools/a.test.py"), ModuleKind::Python);
        assert_eq!(kind("tools/py"), ModuleKind::Executable);
        assert_eq!(kind("tools/a.rb"), ModuleKind::Executable);
        assert_eq!(
            ModuleKind::TypeScript.runtimes().first(),
            Some(&Runtime::Bun)
        );
    }

    #[test]
    fn sec_3_node_is_kept_from_packages_in_the_home_directory() {
        let arguments =
            |printed| Runtime::Node.host_arguments(NodeVersion::parse(printed).unwrap());
        let script = ["--input-type=module", "-e"];
        // It refuses to start with an option it does not know.
        assert_eq!(arguments("v16.9.0"), script);
        assert_eq!(
            arguments("v20.0.0"),
            [&["--no-global-search-paths"], &script[..]].concat()
        );
        assert_eq!(arguments("v22.6.0").len(), 4);
    }

    #[test]
    fn node_runs_typescript_from_22_6_on() {
        let runs = |printed: &str| {
            let version = NodeVersion::parse(printed).unwrap();
            let kind = ModuleKind::TypeScript;
            let flag = version.arguments(kind).len();
            version.runs(kind).then_some(flag)
        };
        assert_eq!(runs("v20.20.2\n"), None);
        assert_eq!(runs("v22.5.1"), None);
        assert_eq!(runs("v22.6.0"), Some(1));
        assert_eq!(runs("v22.18.0"), Some(0));
        assert_eq!(runs("v23.5.0"), Some(1));
        assert_eq!(runs("v23.6.0"), Some(0));
        assert_eq!(runs("v24.0.0"), Some(0));
        let old = NodeVersion::parse("v18.0.0").unwrap();
        assert!(old.runs(ModuleKind::JavaScript));
        assert!(old.arguments(ModuleKind::JavaScript).is_empty());
        // It refuses to start with an option it does not know.
        assert!(old.arguments(ModuleKind::TypeScript).is_empty());
        assert_eq!(NodeVersion::parse("22"), None);
    }
}
