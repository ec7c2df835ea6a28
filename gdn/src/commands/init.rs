//! `gdn init`: creates a Project Root (`ROOT-3`).

use clap::{Args, ValueEnum};
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use goondan_config::{HostMachine as _, LocalMachine};
use goondan_packages::PackageName;
use goondan_protocol::sandbox::Level;
use serde_json::json;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::text::shell_quoted;
use crate::schemas;

/// Create a new project that is ready to run
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn init my-swarm       create a project in ./my-swarm
  gdn init team --template multi-agent
  gdn init                the same in this directory
  gdn init --no-git .     without a git repository")]
pub(crate) struct InitArgs {
    /// Directory of the project
    #[arg(value_name = "PATH", default_value = ".")]
    path: PathBuf,
    /// Template: default, multi-agent, package or minimal
    #[arg(
        long,
        short = 't',
        value_name = "NAME",
        default_value = "default",
        hide_possible_values = true
    )]
    template: Template,
    /// Do not create a git repository
    #[arg(long, overrides_with = "git")]
    no_git: bool,
    /// Create a git repository, which is the default
    #[arg(long, hide = true)]
    git: bool,
    /// Overwrite existing files
    #[arg(long, short)]
    force: bool,
    /// Name of the package [default: the directory's name]
    #[arg(long, short, value_name = "NAME", alias = "package", value_parser = parse_name)]
    name: Option<String>,
}

/// Checks the name of a package.
fn parse_name(name: &str) -> Result<String, String> {
    match name.parse::<PackageName>() {
        Ok(_) => Ok(name.to_owned()),
        Err(error) => Err(format!("{error}, such as my-swarm or @me/my-swarm")),
    }
}

/// Template of a new project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Template {
    /// One agent with tools.
    Default,
    /// Three agents, and a webhook that selects one.
    MultiAgent,
    /// Tools for other projects, and an agent to try them with.
    Package,
    /// One file, one agent.
    Minimal,
    /// One agent with tools and an Anthropic model, which needs a key.
    Assistant,
}

impl Template {
    /// Name on the command line, and directory of the template's files.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::MultiAgent => "multi-agent",
            Self::Package => "package",
            Self::Minimal => "minimal",
            Self::Assistant => "assistant",
        }
    }
}

/// Placeholder for the package's name in the templates.
const PACKAGE_NAME: &str = "PACKAGE_NAME";

/// Package name if the directory's name does not yield one.
const DEFAULT_PACKAGE: &str = "my-swarm";

/// Maximum length of a package name derived from a directory's name, in bytes.
const PACKAGE_NAME_MAX_BYTES: usize = 64;

/// Placeholder for the goondan version in the templates.
const VERSION: &str = "GOONDAN_VERSION";

/// Placeholder for the confinement level in the templates.
const SANDBOX_LEVEL: &str = "SANDBOX_LEVEL";

/// A file of a template: path in the project, and text.
type File = (&'static str, &'static str);

macro_rules! files {
    ($template:literal: $($path:literal),* $(,)?) => {
        &[$((
            $path,
            include_str!(concat!("../../templates/", $template, "/", $path)),
        )),*]
    };
}

/// Files of a new project, in the order they are written. `goondan.yaml` is last because it makes the directory a
/// project.
fn files(template: Template) -> &'static [File] {
    match template {
        Template::Default => files!("default":
            "prompts/assistant.md",
            "scripts/assistant.yaml",
            "goondan.yaml",
        ),
        Template::MultiAgent => files!("multi-agent":
            "prompts/desk.md",
            "prompts/librarian.md",
            "prompts/operator.md",
            "resources/agents/desk.yaml",
            "resources/agents/librarian.yaml",
            "resources/agents/operator.yaml",
            "scripts/desk.yaml",
            "scripts/librarian.yaml",
            "scripts/operator.yaml",
            "goondan.yaml",
        ),
        Template::Package => files!("package":
            "README.md",
            "prompts/tester.md",
            "resources/tools/look.yaml",
            "resources/tools/shell.yaml",
            "scripts/tester.yaml",
            "goondan.yaml",
        ),
        Template::Minimal => files!("minimal": "goondan.yaml"),
        Template::Assistant => files!("assistant": "prompts/assistant.md", "goondan.yaml"),
    }
}

/// An existing file is kept, because it belongs to the user.
const GITIGNORE: (&str, &str) = (".gitignore", include_str!("../../templates/gitignore"));

/// Reads the provider's key without echo, for the project in the current directory.
const ASK_FOR_KEY: &str = "  gdn secret set anthropic apiKey --for .    asks for your key\n";

#[derive(Debug, thiserror::Error)]
enum InitError {
    #[error("{} already exists", listed(files))]
    Exists { files: Vec<PathBuf> },
    #[error("cannot create the directory {}", dir.display())]
    MakeDirectory {
        dir: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot write {}", file.display())]
    Write {
        file: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

fn listed(files: &[PathBuf]) -> String {
    let files: Vec<String> = files
        .iter()
        .map(|file| file.display().to_string())
        .collect();
    files.join(", ")
}

pub(crate) fn run(args: &InitArgs, context: &Context) -> Result<(), Failure> {
    let output = context.output;
    let level = strictest(&context.machine());
    let name = args.name.as_deref();
    let made = create(&args.path, args.template, name, level, args.force)
        .map_err(|error| failure(&error, &args.path))?;
    let git = if args.no_git {
        Git::NotWanted
    } else {
        init_git(&made.root)
    };
    output.object(
        schemas::INIT,
        &json!({
            "projectRoot": made.root,
            "package": made.package,
            "template": args.template.name(),
            "files": made.files,
            "kept": made.kept,
            "git": git == Git::Made,
        }),
    )?;
    output.data(format!(
        "Created project {} in {}",
        made.package,
        made.root.display()
    ))?;
    for file in &made.files {
        output.data(format!("  {file}"))?;
    }
    for file in &made.kept {
        output.data(format!("  {file} (exists; unchanged)"))?;
    }
    match git {
        Git::Made => output.data("  .git/")?,
        Git::NotWanted | Git::Inside => {}
        Git::Failed => output.note("No git repository was created: `git init` failed."),
    }
    match level {
        Level::Full => {}
        Level::Landlock => output.note(
            "\nThis machine cannot confine programs at the level `full`, so the project requires `landlock`. `gdn doctor` shows the reason.",
        ),
        Level::Seatbelt => output.note(
            "\nmacOS confines programs with a profile, so the project requires `seatbelt`. This level is untested.",
        ),
        Level::Off => output.note(
            "\nThis machine cannot confine programs, so the project uses no sandbox: programs of its agents have all your rights. `gdn doctor` shows the reason.",
        ),
    }
    output.note(format!(
        "\nNext:\n{}",
        next_commands(&args.path, args.template)
    ));
    Ok(())
}

/// Strictest confinement level that this machine supports.
pub(super) fn strictest(machine: &LocalMachine) -> Level {
    Level::strictest(|level| machine.lacks_sandbox(level).is_none())
}

fn next_commands(path: &Path, template: Template) -> String {
    let go = if path == Path::new(".") {
        None
    } else {
        shell_quoted(&path.to_string_lossy()).map(|path| format!("  cd {path}\n"))
    };
    let key = match template {
        Template::Assistant => ASK_FOR_KEY,
        Template::Default | Template::MultiAgent | Template::Package | Template::Minimal => "",
    };
    go.unwrap_or_default() + key + "  gdn run\n  gdn chat"
}

fn failure(error: &InitError, path: &Path) -> Failure {
    match error {
        InitError::Exists { .. } => {
            let path = shell_quoted(&path.to_string_lossy()).unwrap_or_else(|| "PATH".to_owned());
            Failure::of(
                Exit::Conflict,
                error,
                format!(
                    "choose another directory, or overwrite the files: `gdn init --force {path}`"
                ),
            )
        }
        InitError::MakeDirectory { .. } | InitError::Write { .. } => Failure::of(
            Exit::Internal,
            error,
            "choose a writable directory: `gdn init PATH`",
        ),
    }
}

/// Result of the command.
#[derive(Debug)]
struct InitOutput {
    root: PathBuf,
    package: String,
    files: Vec<&'static str>,
    kept: Vec<&'static str>,
}

/// Writes the project's files. Without `force`, an existing file is an error and nothing is written.
fn create(
    path: &Path,
    template: Template,
    name: Option<&str>,
    level: Level,
    force: bool,
) -> Result<InitOutput, InitError> {
    let files = files(template);
    let existing: Vec<PathBuf> = files
        .iter()
        .map(|(name, _)| path.join(name))
        .filter(|file| file.symlink_metadata().is_ok())
        .collect();
    if !force && !existing.is_empty() {
        return Err(InitError::Exists { files: existing });
    }
    make_directory(path)?;
    let root = path
        .canonicalize()
        .map_err(|source| InitError::MakeDirectory {
            dir: path.to_owned(),
            source,
        })?;
    let package = name.map_or_else(|| package_name(&root), str::to_owned);
    let mut made = InitOutput {
        root,
        package,
        files: Vec::new(),
        kept: Vec::new(),
    };
    let (name, text) = GITIGNORE;
    match write(&made.root.join(name), text, false) {
        Ok(()) => made.files.push(name),
        Err(InitError::Exists { .. }) => made.kept.push(name),
        Err(error) => return Err(error),
    }
    for (name, text) in files {
        let file = made.root.join(name);
        if let Some(dir) = file.parent() {
            make_directory(dir)?;
        }
        let text = text
            .replace(PACKAGE_NAME, &made.package)
            .replace(VERSION, env!("CARGO_PKG_VERSION"))
            .replace(SANDBOX_LEVEL, &level.to_string());
        write(&file, &text, force)?;
        made.files.push(name);
    }
    Ok(made)
}

fn make_directory(dir: &Path) -> Result<(), InitError> {
    fs::create_dir_all(dir).map_err(|source| InitError::MakeDirectory {
        dir: dir.to_owned(),
        source,
    })
}

/// Writes one file. `create_new` prevents overwriting a file created in the meantime.
fn write(file: &Path, text: &str, force: bool) -> Result<(), InitError> {
    let mut options = OpenOptions::new();
    options.write(true);
    if force {
        options.create(true).truncate(true);
    } else {
        options.create_new(true);
    }
    let written = options
        .open(file)
        .and_then(|mut opened| opened.write_all(text.as_bytes()));
    written.map_err(|source| {
        let file = file.to_owned();
        if source.kind() == ErrorKind::AlreadyExists {
            InitError::Exists { files: vec![file] }
        } else {
            InitError::Write { file, source }
        }
    })
}

/// Derives a package name from the directory's name.
fn package_name(root: &Path) -> String {
    let name = root.file_name().unwrap_or_default().to_string_lossy();
    let mut package = String::new();
    for c in name.to_lowercase().chars() {
        if package.len() >= PACKAGE_NAME_MAX_BYTES {
            break;
        }
        if c.is_ascii_alphanumeric() {
            package.push(c);
        } else if !package.is_empty() && !package.ends_with('-') {
            package.push('-');
        }
    }
    let package = package.trim_end_matches('-');
    if package.is_empty() {
        DEFAULT_PACKAGE.to_owned()
    } else {
        package.to_owned()
    }
}

/// Outcome for the git repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Git {
    Made,
    NotWanted,
    /// The project is already inside a repository.
    Inside,
    /// Git is not installed, or failed.
    Failed,
}

fn init_git(root: &Path) -> Git {
    let git = |args: &[&str]| {
        Command::new("git")
            .args(args)
            .current_dir(root)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    if git(&["rev-parse", "--is-inside-work-tree"]) {
        Git::Inside
    } else if git(&["init", "--quiet"]) {
        Git::Made
    } else {
        Git::Failed
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;
    use crate::project::PROJECT_FILE;

    #[test]
    fn any_directory_name_makes_a_package_name() {
        let cases = [
            ("/a/my-swarm", "my-swarm"),
            ("/a/My Swarm (2)", "my-swarm-2"),
            ("/a/-x-", "x"),
            ("/a/가나다", DEFAULT_PACKAGE),
            ("/a/2026", "2026"),
            ("/", DEFAULT_PACKAGE),
        ];
        for (path, package) in cases {
            assert_eq!(package_name(Path::new(path)), package, "{path}");
        }
        let long = format!("/a/{}", "x".repeat(200));
        assert_eq!(package_name(Path::new(&long)).len(), PACKAGE_NAME_MAX_BYTES);
    }

    #[test]
    fn the_files_of_each_template_are_those_in_its_directory() {
        let templates = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates");
        for template in Template::value_variants() {
            let root = templates.join(template.name());
            let mut found = Vec::new();
            let mut directories = vec![root.clone()];
            while let Some(directory) = directories.pop() {
                for entry in fs::read_dir(directory).unwrap() {
                    let path = entry.unwrap().path();
                    if path.is_dir() {
                        directories.push(path);
                    } else {
                        let path = path.strip_prefix(&root).unwrap();
                        found.push(path.to_str().unwrap().to_owned());
                    }
                }
            }
            found.sort();
            let mut listed: Vec<&str> = files(*template).iter().map(|(path, _)| *path).collect();
            assert_eq!(listed.last(), Some(&PROJECT_FILE));
            listed.sort_unstable();
            assert_eq!(found, listed, "{}", template.name());
        }
    }

    #[test]
    fn a_refused_init_writes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("scripts/assistant.yaml");
        fs::create_dir_all(script.parent().unwrap()).unwrap();
        write(&script, "mine", false).unwrap();
        let error = create(dir.path(), Template::Default, None, Level::Full, false).unwrap_err();
        assert!(matches!(error, InitError::Exists { .. }), "{error}");
        assert!(!dir.path().join(PROJECT_FILE).exists());
        assert!(!dir.path().join(".gitignore").exists());
        assert_eq!(fs::read_to_string(&script).unwrap(), "mine");
    }

    #[test]
    fn force_overwrites_all_but_the_gitignore() {
        let dir = tempfile::tempdir().unwrap();
        create(dir.path(), Template::Default, None, Level::Full, false).unwrap();
        for name in [".gitignore", "goondan.yaml"] {
            write(&dir.path().join(name), "mine", true).unwrap();
        }
        let made = create(dir.path(), Template::Default, None, Level::Full, true).unwrap();
        assert_eq!(made.kept, [".gitignore"]);
        assert_eq!(
            fs::read_to_string(dir.path().join(".gitignore")).unwrap(),
            "mine"
        );
        assert_ne!(
            fs::read_to_string(dir.path().join("goondan.yaml")).unwrap(),
            "mine"
        );
    }
}
