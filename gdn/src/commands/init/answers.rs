//! Answers that decide about a new project: from flags, from a person, or from what the machine has.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use goondan_protocol::secret::SecretValue;

use super::InitArgs;
use super::detect::LocalTools;
use super::offers::{
    ANTHROPIC_KEY, CodingProgram, GOOGLE_KEY, NeededSecret, OPENAI_KEY, TELEGRAM_TOKEN,
};
use crate::exit::Exit;
use crate::failure::Failure;

/// Template of a new project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Template {
    /// One agent with tools, on a script.
    Default,
    /// One agent with tools.
    Assistant,
    /// A coding agent for tasks on this repository.
    CodingTask,
    /// A bot on Telegram.
    Telegram,
    /// A service that answers HTTP requests.
    Webhook,
    /// Two agents.
    TwoAgents,
    /// Three agents, and a webhook that selects one.
    MultiAgent,
    /// Tools for other projects, and an agent to try them with.
    Package,
    /// One file, one agent.
    Minimal,
}

impl Template {
    /// Templates that a person can choose, with their descriptions.
    pub(super) const OFFERED: [(Self, &'static str); 5] = [
        (Self::Assistant, "assistant with a shell and files"),
        (
            Self::CodingTask,
            "coding agent for tasks on this repository",
        ),
        (Self::Telegram, "Telegram bot"),
        (Self::Webhook, "webhook service"),
        (Self::TwoAgents, "two agents that work together"),
    ];

    /// Name on the command line, and directory of the template's files.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Assistant => "assistant",
            Self::CodingTask => "coding-task",
            Self::Telegram => "telegram",
            Self::Webhook => "webhook",
            Self::TwoAgents => "two-agents",
            Self::MultiAgent => "multi-agent",
            Self::Package => "package",
            Self::Minimal => "minimal",
        }
    }

    /// True if the user chooses the model.
    pub(super) fn has_model(self) -> bool {
        match self {
            Self::Assistant | Self::Telegram | Self::Webhook | Self::TwoAgents => true,
            Self::Default | Self::CodingTask | Self::MultiAgent | Self::Package | Self::Minimal => {
                false
            }
        }
    }
}

/// Provider of a new project's model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Provider {
    Anthropic,
    OpenAi,
    Google,
    Ollama,
    Scripted,
}

impl Provider {
    pub(super) const ALL: [Self; 5] = [
        Self::Anthropic,
        Self::OpenAi,
        Self::Google,
        Self::Ollama,
        Self::Scripted,
    ];

    /// Name on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAi => "openai",
            Self::Google => "google",
            Self::Ollama => "ollama",
            Self::Scripted => "scripted",
        }
    }

    /// Model unless the user names one. Ollama has only what is installed; the scripted model has none.
    pub(super) fn default_model(self) -> Option<&'static str> {
        match self {
            Self::Anthropic => Some("claude-sonnet-4-5"),
            Self::OpenAi => Some("gpt-5"),
            Self::Google => Some("gemini-2.5-pro"),
            Self::Ollama | Self::Scripted => None,
        }
    }

    /// Key that the provider requires.
    pub(super) fn needed_secret(self) -> Option<&'static NeededSecret> {
        match self {
            Self::Anthropic => Some(&ANTHROPIC_KEY),
            Self::OpenAi => Some(&OPENAI_KEY),
            Self::Google => Some(&GOOGLE_KEY),
            Self::Ollama | Self::Scripted => None,
        }
    }
}

/// A provider, and its model if the user named one: `anthropic`, `ollama/qwen3:8b`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModelChoice {
    pub(super) provider: Provider,
    pub(super) model: Option<String>,
}

impl From<Provider> for ModelChoice {
    fn from(provider: Provider) -> Self {
        Self {
            provider,
            model: provider.default_model().map(str::to_owned),
        }
    }
}

impl FromStr for ModelChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, model) = match text.split_once('/') {
            Some((name, model)) => (name, Some(model)),
            None => (text, None),
        };
        let provider = Provider::ALL.into_iter().find(|it| it.name() == name);
        let provider = provider.ok_or_else(|| {
            let names = Provider::ALL.map(Provider::name).join(", ");
            format!("unknown provider `{name}`; choose one of {names}")
        })?;
        if provider == Provider::Scripted && model.is_some() {
            return Err("the scripted model has no name".to_owned());
        }
        if model.is_some_and(|model| model.is_empty() || model.contains(char::is_control)) {
            return Err("expected the name of a model after `/`".to_owned());
        }
        Ok(match model {
            Some(model) => Self {
                provider,
                model: Some(model.to_owned()),
            },
            None => provider.into(),
        })
    }
}

/// Source of the project's keys, as a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KeyFlag {
    /// Store the key of the environment, encrypted.
    Store,
    /// Read it from the environment each time.
    Env,
    /// Set it later.
    Later,
}

/// Source of one key.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum KeySource {
    /// Stored as a secret, from this variable.
    StoreVariable(&'static str),
    /// Stored as a secret, as the user typed it.
    StoreTyped(SecretValue),
    /// Read from this variable by the project.
    Environment(&'static str),
    /// Stored as a secret, later.
    Later,
}

impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StoreVariable(name) => write!(f, "StoreVariable({name})"),
            Self::StoreTyped(_) => f.write_str("StoreTyped"),
            Self::Environment(name) => write!(f, "Environment({name})"),
            Self::Later => f.write_str("Later"),
        }
    }
}

/// A key of the project, and its source.
#[derive(Debug)]
pub(super) struct KeyAnswer {
    pub(super) secret: &'static NeededSecret,
    pub(super) source: KeySource,
}

/// All decisions about a new project.
#[derive(Debug)]
pub(super) struct Answers {
    pub(super) template: Template,
    /// Of a template with a model to choose.
    pub(super) model: Option<ModelChoice>,
    /// Of the coding task.
    pub(super) program: Option<CodingProgram>,
    pub(super) keys: Vec<KeyAnswer>,
    /// Telegram chats that may talk to the bot; empty: all.
    pub(super) chats: Vec<i64>,
    /// True if the project is started.
    pub(super) runs: bool,
}

/// Asks a person.
pub(super) trait Person {
    /// Returns the index of the chosen option; `default` is the first one suggested.
    fn choose(
        &mut self,
        question: &str,
        options: &[String],
        default: usize,
    ) -> Result<usize, Failure>;
    fn agrees(&mut self, question: &str) -> Result<bool, Failure>;
    /// A line of text; may be empty.
    fn text(&mut self, question: &str) -> Result<String, Failure>;
    /// A value that is not shown; `None` if empty.
    fn secret(&mut self, question: &str) -> Result<Option<SecretValue>, Failure>;
}

/// Source of the answers that no flag gives.
pub(super) enum Rest<'p> {
    /// A person on a terminal.
    Asked(&'p mut dyn Person),
    /// The best choice for this machine (`--yes`).
    Recommended,
    /// The choice that needs nothing: without a terminal and without `--yes`.
    Fixed,
}

/// Combines the flags with the other answers.
pub(super) fn collect(
    flags: &InitArgs,
    detected: &LocalTools,
    mut rest: Rest<'_>,
) -> Result<Answers, Failure> {
    let template = template(flags, &mut rest)?;
    check_flags(flags, template)?;
    let model = match template.has_model() {
        true => Some(model(flags, template, detected, &mut rest)?),
        false => None,
    };
    let program = match template == Template::CodingTask {
        true => Some(program(flags, detected, &mut rest)?),
        false => None,
    };
    let of_model = model.as_ref().and_then(|it| it.provider.needed_secret());
    let of_program = program.and_then(|program| {
        let has_login = detected.program(program).is_some_and(|it| it.has_login);
        (!has_login).then(|| program.needed_secret())
    });
    let of_bot = (template == Template::Telegram).then_some(&TELEGRAM_TOKEN);
    let needed = [of_model, of_program, of_bot].into_iter().flatten();
    let keys = needed.map(|secret| -> Result<KeyAnswer, Failure> {
        let source = key_source(flags, secret, detected, &mut rest)?;
        Ok(KeyAnswer { secret, source })
    });
    let keys: Vec<KeyAnswer> = keys.collect::<Result<_, _>>()?;
    let chats = match template == Template::Telegram {
        true => chats(flags, &mut rest)?,
        false => Vec::new(),
    };
    let is_complete = keys.iter().all(|key| key.source != KeySource::Later);
    let runs = match (&mut rest, flags.run, flags.no_run) {
        (_, true, _) => true,
        (_, _, true) | (Rest::Fixed, ..) => false,
        _ if !is_complete => false,
        (Rest::Recommended, ..) => true,
        (Rest::Asked(person), ..) => person.agrees("Run it now?")?,
    };
    Ok(Answers {
        template,
        model,
        program,
        keys,
        chats,
        runs,
    })
}

fn template(flags: &InitArgs, rest: &mut Rest<'_>) -> Result<Template, Failure> {
    match (flags.template, rest) {
        (Some(template), _) => Ok(template),
        (None, Rest::Asked(person)) => {
            let options = Template::OFFERED.map(|(template, what)| {
                let name = template.name();
                format!("{name:<12} {what}")
            });
            let chosen = person.choose("What do you want to build?", &options, 0)?;
            Ok(Template::OFFERED
                .get(chosen)
                .map_or(Template::Assistant, |(template, _)| *template))
        }
        (None, Rest::Recommended) => Ok(Template::Assistant),
        (None, Rest::Fixed) => Ok(Template::Default),
    }
}

/// Refuses flags that the template does not use.
fn check_flags(flags: &InitArgs, template: Template) -> Result<(), Failure> {
    let is_task = template == Template::CodingTask;
    let is_bot = template == Template::Telegram;
    let unused = [
        ("--model", flags.model.is_some() && !template.has_model()),
        ("--coding-agent", flags.coding_agent.is_some() && !is_task),
        (
            "--telegram-chat",
            !flags.telegram_chat.is_empty() && !is_bot,
        ),
        (
            "--key",
            flags.key.is_some() && !(template.has_model() || is_task),
        ),
    ];
    match unused.into_iter().find(|(_, is_unused)| *is_unused) {
        None => Ok(()),
        Some((flag, _)) => Err(Failure::new(
            Exit::Usage,
            format!("the template `{}` does not use `{flag}`", template.name()),
            "choose another template: `gdn help init` lists them",
        )),
    }
}

fn model(
    flags: &InitArgs,
    template: Template,
    detected: &LocalTools,
    rest: &mut Rest<'_>,
) -> Result<ModelChoice, Failure> {
    let choice = match (&flags.model, &mut *rest) {
        (Some(choice), _) => choice.clone(),
        (None, Rest::Fixed) if template == Template::Assistant => Provider::Anthropic.into(),
        (None, Rest::Fixed) => Provider::Scripted.into(),
        (None, Rest::Recommended) => recommended(detected).into(),
        (None, Rest::Asked(person)) => {
            let options = Provider::ALL.map(|provider| described(provider, detected));
            let first = recommended(detected);
            let default = Provider::ALL.into_iter().position(|it| it == first);
            let chosen = person.choose("Which model?", &options, default.unwrap_or(0))?;
            let provider = Provider::ALL.get(chosen).copied();
            provider.unwrap_or(Provider::Scripted).into()
        }
    };
    if choice.provider != Provider::Ollama || choice.model.is_some() {
        return Ok(choice);
    }
    let models = detected.ollama.as_ref().map(|ollama| &ollama.models[..]);
    let model = match (models.unwrap_or_default(), rest) {
        ([], _) => {
            return Err(Failure::new(
                Exit::NotFound,
                "found no model of Ollama on this machine",
                "start Ollama and pull a model, or name one: `--model ollama/NAME`",
            ));
        }
        (several @ [_, _, ..], Rest::Asked(person)) => {
            let chosen = person.choose("Which model of Ollama?", several, 0)?;
            several.get(chosen).cloned()
        }
        ([first, ..], _) => Some(first.clone()),
    };
    Ok(ModelChoice { model, ..choice })
}

/// The best provider for this machine: one with a key, otherwise a local one, otherwise the script.
fn recommended(detected: &LocalTools) -> Provider {
    let has_key = |provider: &Provider| {
        let secret = provider.needed_secret();
        secret.is_some_and(|secret| detected.variable_of(secret).is_some())
    };
    let with_key = Provider::ALL.into_iter().find(has_key);
    let is_local = detected
        .ollama
        .as_ref()
        .is_some_and(|ollama| !ollama.models.is_empty());
    with_key.unwrap_or(match is_local {
        true => Provider::Ollama,
        false => Provider::Scripted,
    })
}

/// A provider with the findings about it.
fn described(provider: Provider, detected: &LocalTools) -> String {
    let name = provider.name();
    let found = match (provider, provider.needed_secret()) {
        (Provider::Scripted, _) => "plays a script, without network and key".to_owned(),
        (_, Some(secret)) => match detected.variable_of(secret) {
            Some(variable) => format!("found {variable}"),
            None => "needs a key".to_owned(),
        },
        (_, None) => match &detected.ollama {
            Some(ollama) => format!(
                "found {} at {}",
                crate::output::text::count(ollama.models.len(), "model"),
                ollama.address
            ),
            None => "not running".to_owned(),
        },
    };
    format!("{name:<12} {found}")
}

fn program(
    flags: &InitArgs,
    detected: &LocalTools,
    rest: &mut Rest<'_>,
) -> Result<CodingProgram, Failure> {
    if let Some(program) = flags.coding_agent {
        return Ok(program);
    }
    let first = detected.programs.first().map(|found| found.program);
    let Rest::Asked(person) = rest else {
        return Ok(first.unwrap_or(CodingProgram::Claude));
    };
    let programs = CodingProgram::value_variants();
    let options: Vec<String> = programs
        .iter()
        .map(|program| {
            let found = match detected.program(*program) {
                Some(found) if found.has_login => {
                    format!("{}, with your login", found.path.display())
                }
                Some(found) => found.path.display().to_string(),
                None => "not installed".to_owned(),
            };
            format!("{:<12} {found}", program.name())
        })
        .collect();
    let default = programs.iter().position(|it| Some(*it) == first);
    let chosen = person.choose("Which coding agent?", &options, default.unwrap_or(0))?;
    Ok(programs
        .get(chosen)
        .copied()
        .unwrap_or(CodingProgram::Claude))
}

fn key_source(
    flags: &InitArgs,
    secret: &'static NeededSecret,
    detected: &LocalTools,
    rest: &mut Rest<'_>,
) -> Result<KeySource, Failure> {
    let variable = detected.variable_of(secret);
    let usual = secret.variables.first().copied().unwrap_or_default();
    let name = format!("Secret/{}", secret.name);
    let typed = |person: &mut dyn Person| {
        let question = format!(
            "The {} (not shown; empty: later; stored encrypted as {name}): ",
            secret.title
        );
        let value = person.secret(&question)?;
        Ok(value.map_or(KeySource::Later, KeySource::StoreTyped))
    };
    match (flags.key, variable, rest) {
        (Some(KeyFlag::Later), ..) | (None, _, Rest::Fixed) | (None, None, Rest::Recommended) => {
            Ok(KeySource::Later)
        }
        (Some(KeyFlag::Env), ..) => Ok(KeySource::Environment(variable.unwrap_or(usual))),
        (Some(KeyFlag::Store), Some(variable), _) | (None, Some(variable), Rest::Recommended) => {
            Ok(KeySource::StoreVariable(variable))
        }
        (Some(KeyFlag::Store), None, Rest::Recommended | Rest::Fixed) => Err(Failure::new(
            Exit::Usage,
            format!("cannot store the {}: {usual} is not set", secret.title),
            format!("set {usual}, or set the secret later: `--key later`"),
        )),
        (_, None, Rest::Asked(person)) => typed(&mut **person),
        (None, Some(variable), Rest::Asked(person)) => {
            let options = [
                format!("store it encrypted, as {name}"),
                format!("read {variable} each time the project is loaded"),
                "set it later".to_owned(),
            ];
            let question = format!("{variable} is set. Use it for the {}?", secret.title);
            Ok(match person.choose(&question, &options, 0)? {
                0 => KeySource::StoreVariable(variable),
                1 => KeySource::Environment(variable),
                _ => KeySource::Later,
            })
        }
    }
}

fn chats(flags: &InitArgs, rest: &mut Rest<'_>) -> Result<Vec<i64>, Failure> {
    let Rest::Asked(person) = rest else {
        return Ok(flags.telegram_chat.clone());
    };
    if !flags.telegram_chat.is_empty() {
        return Ok(flags.telegram_chat.clone());
    }
    let question =
        "IDs of the chats that may talk to the bot, separated by commas (empty: everyone): ";
    loop {
        let line = person.text(question)?;
        let ids = line.split(',').map(str::trim).filter(|it| !it.is_empty());
        let ids: Result<Vec<i64>, _> = ids.map(str::parse).collect();
        if let Ok(ids) = ids {
            return Ok(ids);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::path::PathBuf;

    use super::super::detect::{FoundProgram, Ollama};
    use super::*;

    /// A person who answers from a list, and notes the questions.
    #[derive(Default)]
    struct Script {
        answers: VecDeque<&'static str>,
        questions: Vec<String>,
        defaults: Vec<usize>,
    }

    impl Script {
        fn of(answers: &[&'static str]) -> Self {
            Self {
                answers: answers.iter().copied().collect(),
                ..Self::default()
            }
        }

        fn next(&mut self, question: &str) -> &'static str {
            self.questions.push(question.to_owned());
            self.answers.pop_front().unwrap()
        }
    }

    impl Person for Script {
        fn choose(
            &mut self,
            question: &str,
            options: &[String],
            default: usize,
        ) -> Result<usize, Failure> {
            let answer = self.next(question);
            self.defaults.push(default);
            Ok(match answer {
                "" => default,
                answer => options
                    .iter()
                    .position(|it| it.starts_with(answer))
                    .unwrap(),
            })
        }

        fn agrees(&mut self, question: &str) -> Result<bool, Failure> {
            Ok(self.next(question) == "y")
        }

        fn text(&mut self, question: &str) -> Result<String, Failure> {
            Ok(self.next(question).to_owned())
        }

        fn secret(&mut self, question: &str) -> Result<Option<SecretValue>, Failure> {
            let answer = self.next(question).to_owned();
            Ok((!answer.is_empty()).then(|| SecretValue::new(answer)))
        }
    }

    fn found(variables: &[&'static str], models: &[&str]) -> LocalTools {
        LocalTools {
            programs: vec![FoundProgram {
                program: CodingProgram::Codex,
                path: PathBuf::from("/usr/bin/codex"),
                has_login: true,
            }],
            variables: variables.iter().copied().collect(),
            ollama: (!models.is_empty()).then(|| Ollama {
                address: "127.0.0.1:11434".to_owned(),
                models: models.iter().map(|it| (*it).to_owned()).collect(),
            }),
        }
    }

    fn flags() -> InitArgs {
        InitArgs::default()
    }

    #[test]
    fn without_terminal_and_flags_nothing_is_needed_or_started() {
        let detected = found(&["ANTHROPIC_API_KEY"], &["qwen3:8b"]);
        let answers = collect(&flags(), &detected, Rest::Fixed).unwrap();
        assert_eq!(answers.template, Template::Default);
        assert!(answers.model.is_none() && answers.keys.is_empty() && !answers.runs);
    }

    #[test]
    fn yes_takes_what_the_machine_has() {
        for (detected, provider, model, source, runs) in [
            (
                found(&["OPENAI_API_KEY"], &["qwen3:8b"]),
                Provider::OpenAi,
                Some("gpt-5"),
                Some(KeySource::StoreVariable("OPENAI_API_KEY")),
                true,
            ),
            (
                found(&[], &["qwen3:8b", "llama"]),
                Provider::Ollama,
                Some("qwen3:8b"),
                None,
                true,
            ),
            (found(&[], &[]), Provider::Scripted, None, None, true),
        ] {
            let answers = collect(&flags(), &detected, Rest::Recommended).unwrap();
            assert_eq!(answers.template, Template::Assistant);
            let choice = answers.model.unwrap();
            assert_eq!(
                (choice.provider, choice.model.as_deref()),
                (provider, model)
            );
            let sources: Vec<_> = answers.keys.into_iter().map(|it| it.source).collect();
            assert_eq!(sources, Vec::from_iter(source));
            assert_eq!(answers.runs, runs);
        }
    }

    #[test]
    fn a_missing_key_is_set_later_and_nothing_runs() {
        let flags = InitArgs {
            model: Some("google".parse().unwrap()),
            ..flags()
        };
        let answers = collect(&flags, &found(&[], &[]), Rest::Recommended).unwrap();
        assert_eq!(answers.keys[0].source, KeySource::Later);
        assert!(!answers.runs);
    }

    #[test]
    fn a_person_is_asked_and_flags_answer_instead() {
        let detected = found(&["ANTHROPIC_API_KEY"], &["qwen3:8b", "llama"]);
        let mut person = Script::of(&["assistant", "", "store", "y"]);
        let answers = collect(&flags(), &detected, Rest::Asked(&mut person)).unwrap();
        assert_eq!(answers.template, Template::Assistant);
        assert_eq!(answers.model.unwrap().provider, Provider::Anthropic);
        assert!(answers.runs);
        assert_eq!(
            person.questions,
            [
                "What do you want to build?",
                "Which model?",
                "ANTHROPIC_API_KEY is set. Use it for the API key of Anthropic?",
                "Run it now?",
            ]
        );

        let mut person = Script::of(&[
            "telegram",
            "ollama",
            "llama",
            "the-token",
            "x",
            "7, -8",
            "n",
        ]);
        let answers = collect(&flags(), &detected, Rest::Asked(&mut person)).unwrap();
        assert_eq!(answers.model.unwrap().model.as_deref(), Some("llama"));
        assert_eq!(answers.chats, [7, -8]);
        let token = SecretValue::new("the-token".to_owned());
        assert_eq!(answers.keys[0].source, KeySource::StoreTyped(token));
        assert!(!answers.runs);

        // Every question has a flag.
        let flags = InitArgs {
            template: Some(Template::Telegram),
            model: Some("anthropic/claude-x".parse().unwrap()),
            key: Some(KeyFlag::Env),
            telegram_chat: vec![7],
            no_run: true,
            ..flags()
        };
        let mut person = Script::of(&[]);
        let answers = collect(&flags, &detected, Rest::Asked(&mut person)).unwrap();
        assert_eq!(answers.model.unwrap().model.as_deref(), Some("claude-x"));
        let sources: Vec<_> = answers.keys.iter().map(|key| &key.source).collect();
        assert_eq!(
            sources,
            [
                &KeySource::Environment("ANTHROPIC_API_KEY"),
                &KeySource::Environment("TELEGRAM_BOT_TOKEN")
            ]
        );
    }

    #[test]
    fn the_installed_coding_agent_is_suggested_and_its_login_used() {
        let detected = found(&[], &[]);
        let mut person = Script::of(&["coding-task", "", "n"]);
        let answers = collect(&flags(), &detected, Rest::Asked(&mut person)).unwrap();
        assert_eq!(answers.program, Some(CodingProgram::Codex));
        assert!(answers.keys.is_empty());
        assert_eq!(person.defaults, [0, 1]);
        let flags = InitArgs {
            coding_agent: Some(CodingProgram::Claude),
            template: Some(Template::CodingTask),
            ..flags()
        };
        let answers = collect(&flags, &detected, Rest::Fixed).unwrap();
        assert_eq!(answers.program, Some(CodingProgram::Claude));
        assert_eq!(answers.keys[0].secret.name, "anthropic");
    }

    #[test]
    fn flags_that_a_template_does_not_use_are_refused() {
        let with = |change: fn(&mut InitArgs)| {
            let mut flags = flags();
            change(&mut flags);
            let failure = collect(&flags, &found(&[], &[]), Rest::Fixed).unwrap_err();
            assert_eq!(failure.exit, Exit::Usage);
            failure.message
        };
        assert!(with(|it| it.model = "openai".parse().ok()).contains("--model"));
        assert!(with(|it| it.telegram_chat = vec![1]).contains("--telegram-chat"));
        assert!(with(|it| it.key = Some(KeyFlag::Env)).contains("--key"));
        assert!(with(|it| it.coding_agent = Some(CodingProgram::Codex)).contains("--coding-agent"));
        let unset = with(|it| {
            it.template = Some(Template::Assistant);
            it.key = Some(KeyFlag::Store);
        });
        assert!(unset.contains("ANTHROPIC_API_KEY is not set"), "{unset}");
    }

    #[test]
    fn models_are_named_after_their_provider() {
        let parsed: ModelChoice = "ollama/library/qwen3:8b".parse().unwrap();
        assert_eq!(parsed.model.as_deref(), Some("library/qwen3:8b"));
        for wrong in ["", "mistral", "openai/", "scripted/x", "openai/a\nb"] {
            assert!(wrong.parse::<ModelChoice>().is_err(), "{wrong:?}");
        }
        let flags = InitArgs {
            template: Some(Template::Webhook),
            model: Some("ollama".parse().unwrap()),
            ..flags()
        };
        let failure = collect(&flags, &found(&[], &[]), Rest::Fixed).unwrap_err();
        assert_eq!(failure.exit, Exit::NotFound);
    }
}
