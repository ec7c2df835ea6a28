//! Files of a new project, from the answers. Does no I/O.

use std::path::{Path, PathBuf};

use goondan_protocol::sandbox::Level;
use serde_json::json;

use super::answers::{Answers, KeySource, Provider, Template};
use super::detect::LocalTools;
use super::offers::{CodingProgram, NeededSecret, TELEGRAM_TOKEN};

/// Placeholder for the package's name in the templates.
const PACKAGE_NAME: &str = "PACKAGE_NAME";

/// Placeholder for the goondan version in the templates.
const VERSION: &str = "GOONDAN_VERSION";

/// Placeholder for the confinement level in the templates.
const SANDBOX_LEVEL: &str = "SANDBOX_LEVEL";

/// Placeholder for the model `main`.
const MODEL_SETTINGS: &str = "MODEL_SETTINGS";

/// Placeholder for the setting `chats`.
const TELEGRAM_CHATS: &str = "TELEGRAM_CHATS";

/// Placeholder for the bot's token.
const TELEGRAM_TOKEN_VALUE: &str = "TELEGRAM_TOKEN_VALUE";

/// Placeholder for the preset of the coding agent.
const CODING_PROGRAM: &str = "CODING_PROGRAM";

/// Placeholder for the login or the key of the coding agent.
const CODING_LOGIN: &str = "CODING_LOGIN";

/// Placeholder for the access rights of the coding agent.
const CODING_SANDBOX: &str = "CODING_SANDBOX";

/// Directories whose programs every sandbox can start.
const SYSTEM_DIRECTORIES: [&str; 6] = ["/usr", "/opt", "/bin", "/sbin", "/lib", "/nix/store"];

/// Endpoint of Ollama if it was not found.
const OLLAMA: &str = "127.0.0.1:11434";

/// Directory of the scripts of the scripted model.
const SCRIPTS: &str = "scripts/";

/// A file of a project: its path below the Project Root, and its text.
pub(super) type ProjectFile = (&'static str, String);

macro_rules! files {
    ($template:literal: $($path:literal),* $(,)?) => {
        &[$((
            $path,
            include_str!(concat!("../../../templates/", $template, "/", $path)),
        )),*]
    };
}

/// Files of a template. `goondan.yaml` is last because it makes the directory a project.
pub(super) fn template_files(template: Template) -> &'static [(&'static str, &'static str)] {
    match template {
        Template::Default => files!("default":
            "prompts/assistant.md",
            "scripts/assistant.yaml",
            "goondan.yaml",
        ),
        Template::Assistant => files!("assistant":
            "prompts/assistant.md",
            "scripts/main.yaml",
            "goondan.yaml",
        ),
        Template::CodingTask => files!("coding-task": "goondan.yaml"),
        Template::Telegram => files!("telegram":
            "prompts/assistant.md",
            "scripts/main.yaml",
            "goondan.yaml",
        ),
        Template::Webhook => files!("webhook":
            "prompts/assistant.md",
            "scripts/main.yaml",
            "goondan.yaml",
        ),
        Template::TwoAgents => files!("two-agents":
            "prompts/checker.md",
            "prompts/writer.md",
            "scripts/main.yaml",
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
    }
}

/// Files of the project, in the order they are written.
pub(super) fn files(
    answers: &Answers,
    detected: &LocalTools,
    home: Option<&Path>,
    package: &str,
    level: Level,
) -> Vec<ProjectFile> {
    let is_scripted = answers
        .model
        .as_ref()
        .is_none_or(|model| model.provider == Provider::Scripted);
    let templates = template_files(answers.template).iter();
    let templates = templates.filter(|(path, _)| is_scripted || !path.starts_with(SCRIPTS));
    let filled_in = |text: &str| {
        text.replace(MODEL_SETTINGS, &model(answers, detected))
            .replace(TELEGRAM_CHATS, &chats(&answers.chats))
            .replace(TELEGRAM_TOKEN_VALUE, &bot_token(answers))
            .replace(
                CODING_SANDBOX,
                &coding_sandbox(answers, detected, home, level),
            )
            .replace(CODING_LOGIN, &coding_login(answers))
            .replace(
                CODING_PROGRAM,
                answers.program.map_or("", CodingProgram::name),
            )
            .replace(PACKAGE_NAME, package)
            .replace(VERSION, env!("CARGO_PKG_VERSION"))
            .replace(SANDBOX_LEVEL, &level.to_string())
    };
    templates
        .map(|(path, text)| (*path, filled_in(text)))
        .collect()
}

/// Text as a YAML value; every JSON text is one.
fn quoted(text: &str) -> String {
    json!(text).to_string()
}

/// The model `main`, as lines of `models`.
fn model(answers: &Answers, detected: &LocalTools) -> String {
    let Some(choice) = &answers.model else {
        return String::new();
    };
    let name = quoted(choice.model.as_deref().unwrap_or_default());
    match choice.provider {
        Provider::Scripted => "  # The scripted model plays a script: it needs no network and no key. For a real one: \
             `gdn help init`.\n  main: {provider: scripted, options: {script: scripts/main.yaml}}"
            .to_owned(),
        Provider::Ollama => {
            let address = detected.ollama.as_ref().map(|ollama| ollama.address.as_str());
            let address = address.unwrap_or(OLLAMA);
            format!(
                "  # A model of Ollama, which speaks the protocol of OpenAI.\n  main:\n    provider: openai\n    \
                 endpoint: http://{address}/v1\n    model: {name}"
            )
        }
        Provider::Anthropic | Provider::OpenAi | Provider::Google => {
            let provider = choice.provider.name();
            let key = choice.provider.needed_secret();
            let key = key.map_or_else(String::new, |secret| short_value(secret, answers));
            format!(
                "  main:\n    provider: {provider}\n    model: {name}\n    apiKey: {key}\n    params: {{maxTokens: 4096}}"
            )
        }
    }
}

/// The variable that the project reads a key from; otherwise it is a secret.
fn variable(secret: &NeededSecret, answers: &Answers) -> Option<&'static str> {
    let key = answers.keys.iter().find(|key| key.secret == secret)?;
    match &key.source {
        KeySource::Environment(variable) => Some(variable),
        KeySource::StoreVariable(_) | KeySource::StoreTyped(_) | KeySource::Later => None,
    }
}

/// A key in the short form.
fn short_value(secret: &NeededSecret, answers: &Answers) -> String {
    match variable(secret, answers) {
        Some(variable) => format!("${variable}"),
        None => format!("{{secret: {}/{}}}", secret.name, secret.key),
    }
}

fn bot_token(answers: &Answers) -> String {
    short_value(&TELEGRAM_TOKEN, answers)
}

/// The setting `chats`, as lines of a Connection's `config`.
fn chats(chats: &[i64]) -> String {
    if chats.is_empty() {
        return "      # Without `chats: [ID]`, anyone who finds the bot can talk to it.\n      pollSeconds: 50".to_owned();
    }
    let ids: Vec<String> = chats.iter().map(ToString::to_string).collect();
    format!(
        "      # Only these chats can talk to the bot.\n      chats: [{}]",
        ids.join(", ")
    )
}

/// Login or key of the coding agent, as a field of `runtime`.
fn coding_login(answers: &Answers) -> String {
    let Some(program) = answers.program else {
        return String::new();
    };
    let secret = program.needed_secret();
    let has_key = answers.keys.iter().any(|key| key.secret == secret);
    if !has_key {
        return format!("login: ~/{}", program.login());
    }
    match variable(secret, answers) {
        Some(variable) => format!("key: {{valueFrom: {{env: {variable}}}}}"),
        None => format!(
            "key: {{valueFrom: {{secretRef: {{ref: Secret/{}, key: {}}}}}}}",
            secret.name, secret.key
        ),
    }
}

/// Access rights of the coding agent, as lines of `sandbox`.
fn coding_sandbox(
    answers: &Answers,
    detected: &LocalTools,
    home: Option<&Path>,
    level: Level,
) -> String {
    let Some(program) = answers.program else {
        return String::new();
    };
    let mut lines = Vec::new();
    let found = detected.program(program).map(|found| &found.path);
    let is_system = |path: &&PathBuf| {
        SYSTEM_DIRECTORIES
            .iter()
            .any(|directory| path.starts_with(directory))
    };
    if let Some(path) = found.filter(|path| !is_system(path) && level != Level::Off) {
        let directory = installed_directory(path);
        let below = home.and_then(|home| directory.strip_prefix(home).ok());
        let text = match below {
            Some(below) => format!("~/{}", below.display()),
            None => directory.display().to_string(),
        };
        lines.push(format!("      read: [{}]", quoted(&text)));
    }
    match level {
        // Other levels cannot restrict the network to hosts.
        Level::Full => lines.push(format!(
            "      network: {{allow: [{}]}}",
            program.hosts().join(", ")
        )),
        Level::Landlock | Level::Seatbelt => lines.push("      network: any".to_owned()),
        Level::Off => lines.push("      # Programs have all your rights.".to_owned()),
    }
    lines.join("\n")
}

/// The directory that contains all files of an installed program.
fn installed_directory(program: &Path) -> &Path {
    let packages = program.ancestors().find(|directory| {
        let name = directory.file_name().unwrap_or_default();
        name == "node_modules" || name == "site-packages"
    });
    packages.or(program.parent()).unwrap_or(program)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::ValueEnum as _;
    use goondan_config::Severity;

    use super::super::InitArgs;
    use super::super::answers::{KeyFlag, Rest, collect};
    use super::super::detect::FoundProgram;
    use super::*;
    use crate::project::PROJECT_FILE;

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
            let listed = template_files(*template).iter();
            let mut listed: Vec<&str> = listed.map(|(path, _)| *path).collect();
            assert_eq!(listed.last(), Some(&PROJECT_FILE));
            listed.sort_unstable();
            assert_eq!(found, listed, "{}", template.name());
        }
    }

    fn planned(flags: &InitArgs, detected: &LocalTools, level: Level) -> Vec<ProjectFile> {
        let answers = collect(flags, detected, Rest::Fixed).unwrap();
        files(
            &answers,
            detected,
            Some(Path::new("/home/ada")),
            "shop",
            level,
        )
    }

    fn project_file(files: &[ProjectFile]) -> &str {
        let (name, text) = files.last().unwrap();
        assert_eq!(*name, PROJECT_FILE);
        text
    }

    /// Every template with every provider, source of keys and level is a valid project.
    #[test]
    fn every_plan_is_a_valid_project_without_placeholders() {
        for template in Template::value_variants() {
            for model in [
                "anthropic",
                "openai",
                "google",
                "ollama/qwen3:8b",
                "scripted",
            ] {
                for level in [Level::Full, Level::Landlock, Level::Off] {
                    let has_key = template.has_model() || *template == Template::CodingTask;
                    let flags = InitArgs {
                        template: Some(*template),
                        model: template.has_model().then(|| model.parse().unwrap()),
                        key: has_key.then_some(KeyFlag::Env),
                        ..InitArgs::default()
                    };
                    let dir = tempfile::tempdir().unwrap();
                    let files = planned(&flags, &LocalTools::default(), level);
                    for (path, text) in &files {
                        let placeholders = [
                            PACKAGE_NAME,
                            VERSION,
                            SANDBOX_LEVEL,
                            MODEL_SETTINGS,
                            TELEGRAM_CHATS,
                            TELEGRAM_TOKEN_VALUE,
                            CODING_PROGRAM,
                            CODING_LOGIN,
                            CODING_SANDBOX,
                        ];
                        for placeholder in placeholders {
                            assert!(!text.contains(placeholder), "{path}: {text}");
                        }
                        let file = dir.path().join(path);
                        fs::create_dir_all(file.parent().unwrap()).unwrap();
                        #[expect(
                            clippy::disallowed_methods,
                            reason = "a test prepares its own temporary directory"
                        )]
                        fs::write(file, text).unwrap();
                    }
                    let check = goondan_config::Loader::new(&Keys).check(dir.path());
                    let text = project_file(&files);
                    assert!(check.bundle.is_ok(), "{:?}\n{text}", check.bundle.err());
                    let mut warnings = check.warnings.iter();
                    let warning = warnings.find(|it| it.severity == Severity::Warning);
                    assert!(warning.is_none(), "{warning:?}\n{text}");
                }
            }
        }
    }

    /// An environment with all keys.
    struct Keys;

    impl goondan_config::Environment for Keys {
        fn get(&self, name: &str) -> Option<String> {
            (name.ends_with("_KEY") || name.ends_with("_TOKEN")).then(|| "1:key".to_owned())
        }
    }

    #[test]
    fn scripts_are_only_for_the_scripted_model() {
        let plan = |model: &str| {
            let flags = InitArgs {
                template: Some(Template::TwoAgents),
                model: Some(model.parse().unwrap()),
                ..InitArgs::default()
            };
            let files = planned(&flags, &LocalTools::default(), Level::Full);
            files.iter().map(|(path, _)| *path).collect::<Vec<_>>()
        };
        assert!(plan("scripted").contains(&"scripts/main.yaml"));
        assert!(!plan("openai").contains(&"scripts/main.yaml"));
    }

    #[test]
    fn coding_agent_reads_its_installation_and_reaches_its_provider() {
        let plan = |path: &str, has_login: bool, level: Level| {
            let detected = LocalTools {
                programs: vec![FoundProgram {
                    program: CodingProgram::Claude,
                    path: PathBuf::from(path),
                    has_login,
                }],
                ..LocalTools::default()
            };
            let flags = InitArgs {
                template: Some(Template::CodingTask),
                ..InitArgs::default()
            };
            project_file(&planned(&flags, &detected, level)).to_owned()
        };
        let own = plan("/home/ada/.local/share/claude/claude", true, Level::Full);
        assert!(own.contains("login: ~/.claude\n"), "{own}");
        assert!(own.contains("read: [\"~/.local/share/claude\"]\n"), "{own}");
        assert!(
            own.contains("network: {allow: [api.anthropic.com, "),
            "{own}"
        );
        let packages = plan("/srv/node_modules/a/cli.js", false, Level::Landlock);
        assert!(packages.contains("read: [\"/srv/node_modules\"]\n"));
        assert!(packages.contains("network: any\n"), "{packages}");
        assert!(packages.contains("ref: Secret/anthropic, key: apiKey"));
        assert!(!plan("/usr/bin/claude", true, Level::Full).contains("read:"));
    }
}
