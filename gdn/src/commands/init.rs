//! `gdn init`: creates a Project Root (`ROOT-3`).
//!
//! * `detect` — programs, keys and models of this machine; `prompt` — asks a person.
//! * `answers` — combines flags, answers and what was detected; `plan` — files of the project. Neither does I/O.

mod answers;
mod detect;
mod offers;
mod plan;
mod prompt;

use clap::Args;
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use goondan_config::{
    Diagnostic, HostMachine as _, Loader, LocalMachine, ProcessEnvironment, ProjectCheck, codes,
};
use goondan_packages::PackageName;
use goondan_protocol::control::SetSecret;
use goondan_protocol::ids::{SecretKey, SecretName};
use goondan_protocol::sandbox::Level;
use goondan_protocol::secret::SecretValue;
use goondan_vault::SecretReader;
use serde_json::json;

use self::answers::{Answers, KeyFlag, KeySource, ModelChoice, Provider, Rest, Template, collect};
use self::detect::LocalTools;
use self::offers::CodingProgram;
use self::plan::ProjectFile;
use self::prompt::TerminalUser;
use super::attach::attach_or_start;
use super::run::{self, RunArgs};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::style;
use crate::output::text::{printable, shell_quoted};
use crate::project::{self, PROJECT_FILE};
use crate::schemas;

/// Create a new project that is ready to run
///
/// On a terminal, asks for everything that no option answers.
#[derive(Debug, Default, Args)]
#[command(after_help = "\
Examples:
  gdn init my-swarm       create a project in ./my-swarm
  gdn init team --template multi-agent
  gdn init                the same in this directory
  gdn init bot --yes      ask nothing: use the keys and models of this machine, and run it
  gdn init bot --template webhook --model ollama/qwen3:8b --key later --no-run
  gdn init --no-git .     without a git repository

Templates: assistant, coding-task, telegram, webhook, two-agents; on a script: default, multi-agent, package, minimal.
Models: anthropic, openai, google, ollama or scripted, and PROVIDER/NAME for another one than the default.")]
pub(crate) struct InitArgs {
    /// Directory of the project
    #[arg(value_name = "PATH", default_value = ".")]
    path: PathBuf,
    /// Template, see below [default: asks; `default` without a terminal, `assistant` with `--yes`]
    #[arg(long, short = 't', value_name = "NAME", hide_possible_values = true)]
    template: Option<Template>,
    /// Model of the agents, as PROVIDER or PROVIDER/NAME
    #[arg(long, value_name = "MODEL")]
    model: Option<ModelChoice>,
    /// Coding agent of the template `coding-task`: claude, codex or gemini
    #[arg(long, value_name = "PROGRAM", hide_possible_values = true)]
    coding_agent: Option<CodingProgram>,
    /// Source of the keys: `store` (of the environment, encrypted), `env` (each time) or `later`
    #[arg(long, value_name = "SOURCE", hide_possible_values = true)]
    key: Option<KeyFlag>,
    /// Chat that may talk to the bot of the template `telegram` (can be repeated)
    #[arg(long, value_name = "ID", allow_negative_numbers = true)]
    telegram_chat: Vec<i64>,
    /// Run the project
    #[arg(long, conflicts_with = "no_run")]
    run: bool,
    /// Do not run the project
    #[arg(long)]
    no_run: bool,
    /// Ask nothing, and use the keys and models of this machine
    #[arg(long, short)]
    yes: bool,
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

/// Package name if the directory's name does not yield one.
const DEFAULT_PACKAGE: &str = "my-swarm";

/// Maximum length of a package name derived from a directory's name, in bytes.
const PACKAGE_NAME_MAX_BYTES: usize = 64;

/// An existing file is kept, because it belongs to the user.
const GITIGNORE: (&str, &str) = (".gitignore", include_str!("../../templates/gitignore"));

/// JSON Schema of both forms of `goondan.yaml`, for editors. The templates name it in their first line.
pub(super) const SCHEMA_FILE: &str = "goondan.schema.json";

#[derive(Debug, thiserror::Error)]
enum InitError {
    #[error("{} already exists", listed(files))]
    Exists { files: Vec<PathBuf> },
    #[error("the path {} is not UTF-8 text", dir.display())]
    NotText { dir: PathBuf },
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

pub(crate) async fn run(args: &InitArgs, context: &Context) -> Result<(), Failure> {
    let output = context.output;
    context.check_format()?;
    let existing = args.path.join(PROJECT_FILE);
    if !args.force && existing.symlink_metadata().is_ok() {
        let files = vec![existing];
        return Err(failure(&InitError::Exists { files }, &args.path));
    }
    let is_terminal = output.is_interactive() && std::io::stdin().is_terminal();
    let (answers, detected) = answers(args, is_terminal, context)?;
    let level = strictest(&context.machine());
    let home = std::env::home_dir();
    let files = |package: &str| plan::files(&answers, &detected, home.as_deref(), package, level);
    let made = create(&args.path, args.name.as_deref(), files, args.force)
        .map_err(|error| failure(&error, &args.path))?;
    let git = if args.no_git {
        Git::NotWanted
    } else {
        init_git(&made.root)
    };
    let stored = store_keys(&answers, &made.root, context).await?;
    let problems = problems(&made.root, context);
    output.object(
        schemas::INIT,
        &json!({
            "projectRoot": made.root,
            "package": made.package,
            "template": answers.template.name(),
            "model": answers.model.as_ref().map(|it| it.provider.name()),
            "files": made.files,
            "kept": made.kept,
            "git": git == Git::Made,
            "secrets": stored,
            "valid": problems.is_empty(),
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
    for secret in &stored {
        output.note(format!(
            "Stored Secret/{secret}, encrypted; this project can use it."
        ));
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
    let is_waiting = answers
        .keys
        .iter()
        .any(|key| key.source == KeySource::Later);
    for problem in &problems {
        // The next commands below set a missing key.
        if !(is_waiting && is_about_key(problem)) {
            let warning = output.err.paint(style::WARN, "warning:");
            output.note(format!(
                "\n{warning} not ready yet:\n{}",
                printable_lines(problem)
            ));
        }
    }
    if answers.runs {
        run::run(&RunArgs::of_project(made.root), context).await?;
    }
    output.note(format!("\nNext:\n{}", next_commands(&args.path, &answers)));
    Ok(())
}

/// Answers from flags, and from the person if there is a terminal.
fn answers(
    args: &InitArgs,
    is_terminal: bool,
    context: &Context,
) -> Result<(Answers, LocalTools), Failure> {
    if !args.yes && !is_terminal {
        // Scripts get the same project on every machine, except for the files of an installed coding agent.
        let detected = LocalTools {
            programs: detect::found_programs(),
            variables: match args.key {
                Some(KeyFlag::Store | KeyFlag::Env) => LocalTools::set_variables(),
                Some(KeyFlag::Later) | None => BTreeSet::new(),
            },
            ollama: match &args.model {
                Some(choice) if choice.provider == Provider::Ollama => LocalTools::ollama(),
                Some(_) | None => None,
            },
        };
        let answers = collect(args, &detected, Rest::Fixed)?;
        return Ok((answers, detected));
    }
    let detected = LocalTools::of_this_machine();
    let mut person = TerminalUser(context.output);
    let rest = match args.yes {
        true => Rest::Recommended,
        false => Rest::Asked(&mut person),
    };
    let answers = collect(args, &detected, rest)?;
    Ok((answers, detected))
}

/// Stores keys as secrets that the project can use. Returns their names.
async fn store_keys(
    answers: &Answers,
    root: &Path,
    context: &Context,
) -> Result<Vec<&'static str>, Failure> {
    let mut stored = Vec::new();
    for key in &answers.keys {
        let value = match &key.source {
            KeySource::StoreTyped(value) => value.clone(),
            KeySource::StoreVariable(variable) => {
                let value = std::env::var(variable).map_err(|error| {
                    let hint = format!("set {variable}, then run `gdn init --force` again");
                    Failure::new(Exit::Usage, format!("cannot read {variable}"), hint)
                        .caused_by(Some(&error))
                })?;
                SecretValue::new(value)
            }
            KeySource::Environment(_) | KeySource::Later => continue,
        };
        let invalid = |what: &str| Failure::new(Exit::Internal, format!("invalid {what}"), "");
        let set = SetSecret {
            name: SecretName::new(key.secret.name).map_err(|_| invalid("secret name"))?,
            key: SecretKey::new(key.secret.key).map_err(|_| invalid("secret key"))?,
            value,
            allow_for: Some(root.to_owned()),
        };
        // The daemon may not run yet.
        let (mut client, _) = attach_or_start(context, false).await?;
        client.change(set).await?;
        stored.push(key.secret.name);
    }
    Ok(stored)
}

/// Problems that keep the project from running, as `gdn validate` finds them.
fn problems(root: &Path, context: &Context) -> Vec<Diagnostic> {
    let vault = context.vault();
    let identity = project::identity(root);
    let secrets = SecretReader::new(&vault, &identity);
    let machine = context.machine();
    let loader = Loader::new(&ProcessEnvironment)
        .with_secrets(&secrets)
        .with_machine(&machine);
    let ProjectCheck { bundle, .. } = loader.check(root);
    match bundle {
        Ok(_) => Vec::new(),
        Err(problems) => problems.as_slice().to_vec(),
    }
}

fn is_about_key(problem: &Diagnostic) -> bool {
    [
        codes::MISSING_SECRET,
        codes::SECRET_NOT_ALLOWED,
        codes::UNREADABLE_SECRET,
    ]
    .contains(&problem.code)
}

fn printable_lines(problem: &Diagnostic) -> String {
    let text = problem.to_string();
    let lines: Vec<String> = text.lines().map(printable).collect();
    lines.join("\n")
}

/// Strictest confinement level that this machine supports.
pub(super) fn strictest(machine: &LocalMachine) -> Level {
    Level::strictest(|level| machine.lacks_sandbox(level).is_none())
}

/// Next commands, each on a line.
fn next_commands(path: &Path, answers: &Answers) -> String {
    let go = if path == Path::new(".") {
        None
    } else {
        shell_quoted(&path.to_string_lossy()).map(|path| format!("cd {path}"))
    };
    let later = answers.keys.iter();
    let later = later.filter(|key| key.source == KeySource::Later);
    let secrets = later.map(|key| {
        let (name, entry) = (key.secret.name, key.secret.key);
        let what = match answers.template {
            Template::Telegram if name == offers::TELEGRAM_TOKEN.name => "token",
            _ => "key",
        };
        format!("gdn secret set {name} {entry} --for .    asks for your {what}")
    });
    let run = (!answers.runs).then(|| "gdn run".to_owned());
    let talk = match answers.template {
        Template::CodingTask => {
            "gdn task new TITLE --description TEXT --start    works in a copy of this repository"
        }
        Template::Telegram => "gdn ps    shows the bot; write to it in Telegram",
        Template::Webhook => "gdn ps    shows the port; the head of goondan.yaml has a request",
        Template::Default
        | Template::Assistant
        | Template::TwoAgents
        | Template::MultiAgent
        | Template::Package
        | Template::Minimal => "gdn chat",
    };
    let commands = go.into_iter().chain(secrets).chain(run);
    let commands = commands.chain([talk.to_owned()]);
    let commands: Vec<String> = commands.map(|command| format!("  {command}")).collect();
    commands.join("\n")
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
        InitError::NotText { .. } => Failure::of(
            Exit::Usage,
            error,
            "choose another directory: `gdn init PATH`",
        ),
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

/// Writes the project's files, which `plan` derives from the package's name. Without `force`, an existing file is an
/// error and nothing is written.
fn create(
    path: &Path,
    name: Option<&str>,
    plan: impl Fn(&str) -> Vec<ProjectFile>,
    force: bool,
) -> Result<InitOutput, InitError> {
    // The names do not depend on the package.
    let names = plan(DEFAULT_PACKAGE);
    let names = names.iter().map(|(name, _)| *name).chain([SCHEMA_FILE]);
    let existing: Vec<PathBuf> = names
        .map(|name| path.join(name))
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
    if root.to_str().is_none() {
        return Err(InitError::NotText { dir: root });
    }
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
    let schema = (SCHEMA_FILE, schema_text());
    for (name, text) in std::iter::once(schema).chain(plan(&made.package)) {
        let file = made.root.join(name);
        if let Some(dir) = file.parent() {
            make_directory(dir)?;
        }
        write(&file, &text, force)?;
        made.files.push(name);
    }
    Ok(made)
}

/// Text of [`SCHEMA_FILE`].
pub(super) fn schema_text() -> String {
    // `to_string` of a JSON value cannot fail, and the schema of all documents exists.
    goondan_config::schema(None).map_or_else(String::new, |schema| format!("{schema}\n"))
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
    use super::*;

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

    /// Files of the template `default`.
    fn default_files(package: &str) -> Vec<ProjectFile> {
        let detected = LocalTools::default();
        let answers = collect(&InitArgs::default(), &detected, Rest::Fixed).unwrap();
        plan::files(&answers, &detected, None, package, Level::Full)
    }

    #[test]
    fn a_refused_init_writes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("scripts/assistant.yaml");
        fs::create_dir_all(script.parent().unwrap()).unwrap();
        write(&script, "mine", false).unwrap();
        let error = create(dir.path(), None, default_files, false).unwrap_err();
        assert!(matches!(error, InitError::Exists { .. }), "{error}");
        assert!(!dir.path().join(PROJECT_FILE).exists());
        assert!(!dir.path().join(".gitignore").exists());
        assert_eq!(fs::read_to_string(&script).unwrap(), "mine");
    }

    #[test]
    fn force_overwrites_all_but_the_gitignore() {
        let dir = tempfile::tempdir().unwrap();
        create(dir.path(), None, default_files, false).unwrap();
        for name in [".gitignore", "goondan.yaml"] {
            write(&dir.path().join(name), "mine", true).unwrap();
        }
        let made = create(dir.path(), None, default_files, true).unwrap();
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

    #[test]
    fn next_commands_set_missing_keys_first() {
        let commands = |flags: &InitArgs| {
            let answers = collect(flags, &LocalTools::default(), Rest::Fixed).unwrap();
            next_commands(Path::new("my bot"), &answers)
        };
        assert_eq!(
            commands(&InitArgs::default()),
            "  cd 'my bot'\n  gdn run\n  gdn chat"
        );
        let flags = InitArgs {
            template: Some(Template::Telegram),
            ..InitArgs::default()
        };
        assert_eq!(
            commands(&flags),
            "  cd 'my bot'\n  gdn secret set telegram botToken --for .    asks for your token\n  gdn run\n  \
             gdn ps    shows the bot; write to it in Telegram"
        );
    }
}
