//! Scenes with the replies of the model. Each shows one or more capabilities.

use goondan_tests::model_server::{Conversation, Decision, Part, Reply};

/// File that the agent writes.
pub(crate) const FILE: &str = "hello.txt";

/// Output of the agent's command.
pub(crate) const OUTPUT: &str = "sum-42";

/// Answers to the model's question.
pub(crate) const READERS: [&str; 2] = ["engineers", "customers"];

/// Variable that the model requests.
pub(crate) const SECRET_NAME: &str = "PRICE_API_KEY";

/// Requested change.
pub(crate) const SHORTER: &str = "Write it shorter.";

/// Scene of a task, and the name of its agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scene {
    Off,
    Landlock,
    Full,
    Phases,
    KillProgram,
    KillDaemon,
    Pause,
    Cancel,
    Limit,
    WrongKey,
    LostSession,
    Allow,
    Deny,
    Proposal,
    Live,
}

impl Scene {
    pub(crate) const ALL: [Self; 15] = [
        Self::Off,
        Self::Landlock,
        Self::Full,
        Self::Phases,
        Self::KillProgram,
        Self::KillDaemon,
        Self::Pause,
        Self::Cancel,
        Self::Limit,
        Self::WrongKey,
        Self::LostSession,
        Self::Allow,
        Self::Deny,
        Self::Proposal,
        Self::Live,
    ];

    /// Name of its agent and its task.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Landlock => "landlock",
            Self::Full => "full",
            Self::Phases => "phases",
            Self::KillProgram => "kill-program",
            Self::KillDaemon => "kill-daemon",
            Self::Pause => "pause",
            Self::Cancel => "cancel",
            Self::Limit => "limit",
            Self::WrongKey => "wrong-key",
            Self::LostSession => "lost-session",
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Proposal => "proposal",
            Self::Live => "live",
        }
    }

    pub(crate) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scene| scene.name() == name)
    }

    pub(crate) fn level(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Landlock => "landlock",
            _ => "full",
        }
    }

    /// True if the program must ask for a permission.
    pub(crate) fn asks_permission(self) -> bool {
        matches!(self, Self::Allow | Self::Deny)
    }

    /// Number of phases of its task.
    pub(crate) fn phases(self) -> u32 {
        match self {
            Self::Phases => 2,
            Self::Limit | Self::LostSession | Self::Proposal => 1,
            _ => 0,
        }
    }

    /// True if the model's last reply waits until the test has done something to the run.
    fn is_held(self) -> bool {
        matches!(
            self,
            Self::KillProgram | Self::KillDaemon | Self::Pause | Self::Cancel | Self::Live
        )
    }

    /// True if the model asks a question first.
    fn has_question(self) -> bool {
        matches!(self, Self::Phases | Self::Limit | Self::LostSession)
    }
}

/// Reply of the model. Without tools, it writes the file as text.
pub(crate) fn decide(has_tools: bool, scene: &str, it: &Conversation) -> Decision {
    let Some(scene) = Scene::of(scene) else {
        return says("There is no such scene.");
    };
    if scene == Scene::WrongKey {
        return Decision {
            reply: Reply::Refuse,
            is_held: false,
        };
    }
    if let Some(side) = side_request(has_tools, it) {
        return side;
    }
    let message = it.user_text();
    let phase = phase_of(&it.prompt());
    if scene.has_question() && phase == 1 && !message.contains("Answer q-") {
        return says(&format!(
            "I need to know something first.\n\n[USER_QUESTION]\ncategory: choice\nquestion: Who reads it?\noptions:\n\
             - {}\n- {}\nrequired: true\n[/USER_QUESTION]\n",
            READERS[0], READERS[1]
        ));
    }
    if scene == Scene::Phases && phase == 2 && !message.contains("Provided d-") {
        return says(&format!(
            "[DEPENDENCY_REQUEST]\ntype: api_key\nname: {SECRET_NAME}\ndescription: The key of the price \
             service.\nrequired: true\n[/DEPENDENCY_REQUEST]\n"
        ));
    }
    let word = if message.contains(SHORTER) {
        "hi"
    } else {
        "hello"
    };
    if has_tools && it.results() == 0 {
        let key = if phase == 2 {
            "; echo key: $PRICE_API_KEY"
        } else {
            ""
        };
        let command = format!("echo {word} > {FILE}; printf 'sum-%d\\n' 42{key}");
        if let Some(reply) = it.shell_call(&command, scene.asks_permission()) {
            return Decision {
                reply,
                is_held: false,
            };
        }
    }
    let mut text = String::new();
    if !has_tools {
        text = format!("{FILE}\n```\n{word}\n```\n\n");
    }
    text += &match phase {
        0 => "The work is done.\n\n=== CUSTOM TASK COMPLETE ===\n".to_owned(),
        phase => format!("=== PHASE {phase} COMPLETE ===\n\nDocuments created:\n- {FILE}\n"),
    };
    Decision {
        reply: Reply::Say(text),
        is_held: scene.is_held(),
    }
}

/// Reply to a request that a program makes beside the conversation: for a title, or a routing.
pub(crate) fn side_request(has_tools: bool, it: &Conversation) -> Option<Decision> {
    if it.is_json_wanted {
        return Some(says(
            r#"{"reasoning": "simple", "next_speaker": "user", "model_choice": "flash", "complexity_score": 10}"#,
        ));
    }
    (has_tools && it.tools.is_empty()).then(|| says("A title"))
}

fn says(text: &str) -> Decision {
    Decision {
        reply: Reply::Say(text.to_owned()),
        is_held: false,
    }
}

fn phase_of(prompt: &str) -> u32 {
    let mut lines = prompt.lines().rev();
    let number = lines.find_map(|line| line.strip_prefix("You are in phase ")?.split(' ').next());
    number.map_or(0, |number| number.parse().unwrap())
}

/// True if a tool reported the output of the agent's command.
pub(crate) fn has_output(it: &Conversation) -> bool {
    it.has(Part::Result, OUTPUT)
}
