//! Selection of the program that runs a module file of a project (`ROOT-5` defines where such files
//! may be).
//!
//! This module only contains rules: a file extension determines its [`ModuleKind`], a kind the
//! [`Runtime`]s that can run it, and a runtime its program and arguments. Callers search `PATH` for
//! the program and query node for its version.

use std::fmt;
use std::path::Path;

/// Language of a module file, by its file extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ModuleKind {
    /// `.js`, `.mjs` or `.cjs`.
    JavaScript,
    /// `.ts`, `.mts` or `.cts`.
    TypeScript,
    /// `.py`.
    Python,
    /// Any other file: the file itself is the program.
    Executable,
}

/// Runtime for module files.
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

    /// The runtimes that can run such a file, the preferred one first. Empty for an executable.
    #[must_use]
    pub fn runtimes(self) -> &'static [Runtime] {
        match self {
            Self::JavaScript | Self::TypeScript => &[Runtime::Bun, Runtime::Deno, Runtime::Node],
            Self::Python => &[Runtime::Python],
            Self::Executable => &[],
        }
    }

    /// The runtimes to install when none is available, as the end of a sentence.
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

    /// Arguments before the source text of a module host. They keep the runtime from loading
    /// configuration, caches and packages from its working directory and `HOME`. `node` is node's
    /// version and only used for node.
    ///
    /// A Python host receives the module's path as its only argument.
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
            // `-I`: no files of the user or the working directory. `-B`: no files written next to a
            // module (`ROOT-2`). `-u`: unbuffered, because the output is a protocol.
            Self::Python => vec!["-I", "-B", "-u", "-c"],
        }
    }

    /// Arguments before the path of a file that runs as a program. `node` is node's version and
    /// only used for node.
    #[must_use]
    pub fn file_arguments(self, kind: ModuleKind, node: NodeVersion) -> &'static [&'static str] {
        match self {
            Self::Bun => &["run"],
            Self::Deno => &["run", "--allow-all", "--quiet"],
            Self::Node => node.arguments(kind),
            // Unbuffered, because the output is a protocol.
            Self::Python => &["-u"],
        }
    }
}

/// Version of node, which determines whether it runs TypeScript.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeVersion {
    /// The first number.
    pub major: u32,
    /// The second number.
    pub minor: u32,
}

impl NodeVersion {
    /// The first version that runs TypeScript, by stripping the types.
    pub const TYPESCRIPT: Self = Self {
        major: 22,
        minor: 6,
    };

    /// The first version that can ignore the packages in `HOME`.
    pub const GLOBAL_SEARCH_PATHS: Self = Self {
        major: 16,
        minor: 10,
    };

    /// Parses the output of `node --version`: `v22.6.0`.
    #[must_use]
    pub fn parse(printed: &str) -> Option<Self> {
        let mut numbers = printed.trim().strip_prefix('v')?.split('.');
        Some(Self {
            major: numbers.next()?.parse().ok()?,
            minor: numbers.next()?.parse().ok()?,
        })
    }

    /// True if it can run files of a kind.
    #[must_use]
    pub fn runs(self, kind: ModuleKind) -> bool {
        match kind {
            ModuleKind::JavaScript => true,
            ModuleKind::TypeScript => self >= Self::TYPESCRIPT,
            ModuleKind::Python | ModuleKind::Executable => false,
        }
    }

    /// Arguments that it needs to run files of a kind; empty if no arguments would help.
    #[must_use]
    pub fn arguments(self, kind: ModuleKind) -> &'static [&'static str] {
        // Enabled by default from 22.18 and 23.6 on.
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

/// Error: no runtime on this machine runs the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoRuntime {
    /// The language of the module.
    pub kind: ModuleKind,
    /// The problem with node.
    pub node: UnfitNode,
}

/// Reason why node does not run a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnfitNode {
    /// It is not in `PATH`, or was not queried.
    Absent,
    /// It does not report its version.
    Silent,
    /// Its version is too old.
    TooOld(NodeVersion),
}

impl fmt::Display for NoRuntime {
    /// Formats the text after the module's file name. [`ModuleKind::choices`] suggests a fix.
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
    fn file_extension_determines_the_runtime() {
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
        // Old versions refuse to start with an unknown option.
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
        // Old versions refuse to start with an unknown option.
        assert!(old.arguments(ModuleKind::TypeScript).is_empty());
        assert_eq!(NodeVersion::parse("22"), None);
    }
}
