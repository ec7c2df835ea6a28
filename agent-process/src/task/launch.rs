//! Command line and environment of a run. Pure.

use std::collections::BTreeMap;

use goondan_protocol::task::{
    AgentFormat, PROMPT_PLACE, PromptChannel, SESSION_PLACE, TaskAssignment,
};

use crate::tools::tool_supervisor::task::wire::Launch;

/// Reserved prefix of goondan's own variables.
const OWN_PREFIX: &str = "GOONDAN_";

/// Why a run cannot be started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum LaunchFailure {
    #[error("the agent has no command; write one into `runtime.command`")]
    NoCommand,
    /// The session's id would be read as an option of the program.
    #[error("failed to resume the session: its id begins with `-`; start the task again")]
    BadSession,
    /// A variable cannot be set.
    #[error(
        "`{0}` is not a valid variable name: use letters, digits and `_`, starting neither with a \
         digit nor with `{OWN_PREFIX}`"
    )]
    BadVariable(String),
}

/// True if the run resumes the given session: only if the agent defines how.
pub(super) fn is_resumed(assignment: &TaskAssignment) -> bool {
    assignment.session.is_some() && !assignment.agent.resume.is_empty()
}

/// Returns the command that the supervisor starts.
///
/// # Errors
///
/// [`LaunchFailure`] if no program can be started with the assignment.
pub(super) fn launch_of(assignment: &TaskAssignment) -> Result<Launch, LaunchFailure> {
    let agent = &assignment.agent;
    let session = assignment
        .session
        .as_deref()
        .filter(|_| is_resumed(assignment));
    if session.is_some_and(|id| id.starts_with('-')) && agent.format != AgentFormat::Acp {
        return Err(LaunchFailure::BadSession);
    }
    let words = if session.is_some() {
        &agent.resume
    } else {
        &agent.command
    };
    if words.first().is_none_or(String::is_empty) {
        return Err(LaunchFailure::NoCommand);
    }
    let prompt = match agent.prompt {
        PromptChannel::Argument => assignment.prompt.as_str(),
        PromptChannel::Stdin => PROMPT_PLACE,
    };
    let filled = |word: &String| {
        let pieces = word.split(PROMPT_PLACE);
        let pieces = pieces.map(|piece| match session {
            Some(session) => piece.replace(SESSION_PLACE, session),
            None => piece.to_owned(),
        });
        pieces.collect::<Vec<_>>().join(prompt)
    };
    let mut environment = agent.environment.clone();
    environment.extend(assignment.secrets.clone());
    check_names(&environment)?;
    Ok(Launch {
        words: words.iter().map(filled).collect(),
        environment,
        tools: None,
    })
}

fn check_names(environment: &BTreeMap<String, String>) -> Result<(), LaunchFailure> {
    let is_good = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !name.starts_with(OWN_PREFIX)
    };
    match environment.keys().find(|name| !is_good(name)) {
        Some(name) => Err(LaunchFailure::BadVariable(name.clone())),
        None => Ok(()),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use goondan_protocol::process_limits::ProcessLimits;
    use goondan_protocol::sandbox::SandboxPolicy;
    use goondan_protocol::task::{CliAgentDefinition, SecretVariables};

    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    pub(in super::super) fn assignment(
        format: AgentFormat,
        prompt: PromptChannel,
    ) -> TaskAssignment {
        TaskAssignment {
            workspace_id: "w".parse().unwrap(),
            task_id: "t-1".parse().unwrap(),
            run: 1,
            kind: Default::default(),
            agent: CliAgentDefinition {
                name: "coder".parse().unwrap(),
                description: None,
                command: words(&["agent", "--do", "{prompt}"]),
                resume: words(&["agent", "--resume={session}", "{prompt}"]),
                format,
                prompt,
                environment: [("A".to_owned(), "plain".to_owned())].into(),
                tools: Default::default(),
                preamble: None,
                session_model: None,
                session_mode: None,
                secrets: SecretVariables::default(),
                guide: None,
                limits: ProcessLimits::default(),
                disk_bytes: None,
                source: Default::default(),
                repository: Default::default(),
                deliver: Default::default(),
                setup: Vec::new(),
                verify: Vec::new(),
                fallbacks: Vec::new(),
                account: Default::default(),
                sandbox: SandboxPolicy::off(),
            },
            work_area: "/work".into(),
            sandbox: None,
            project_root: "/project".into(),
            egress_socket: None,
            group: None,
            session: None,
            prompt: "Do {session} it".to_owned(),
            secrets: [("A".to_owned(), "secret".to_owned())].into(),
        }
    }

    #[test]
    fn task_8_prompt_and_session_replace_their_placeholders() {
        let mut it = assignment(AgentFormat::CodexJson, PromptChannel::Argument);
        let launched = launch_of(&it).unwrap();
        assert_eq!(launched.words, words(&["agent", "--do", "Do {session} it"]));
        assert_eq!(launched.environment["A"], "secret", "a secret wins");
        it.session = Some("s {prompt}".to_owned());
        let launched = launch_of(&it).unwrap();
        assert_eq!(
            launched.words,
            words(&["agent", "--resume=s {prompt}", "Do {session} it"])
        );
        it.session = Some("-rf".to_owned());
        assert_eq!(launch_of(&it), Err(LaunchFailure::BadSession));
        it.agent.resume.clear();
        assert!(launch_of(&it).unwrap().words[2].contains("it"), "a new one");
        assert!(!is_resumed(&it));
    }

    #[test]
    fn invalid_variable_names_are_rejected_by_name() {
        for name in ["", "1A", "A=B", "GOONDAN_IPC_FD", "LD PRELOAD"] {
            let mut it = assignment(AgentFormat::Plain, PromptChannel::Stdin);
            it.secrets.insert(name.to_owned(), "value".to_owned());
            let refused = launch_of(&it).unwrap_err();
            assert_eq!(refused, LaunchFailure::BadVariable(name.to_owned()));
            assert!(!refused.to_string().contains("value"));
        }
    }

    #[test]
    fn an_empty_command_starts_nothing() {
        let mut it = assignment(AgentFormat::Plain, PromptChannel::Stdin);
        it.agent.command.clear();
        assert_eq!(launch_of(&it), Err(LaunchFailure::NoCommand));
    }
}
