//! A fake command-line agent for each format (`tests/examples/fake_cli_agent.rs`), and the project
//! in which it works on tasks.
//!
//! Its state is in its work area, as with real agents: [`DIARY`] has a line for each thing that it
//! received or did. A file `hold-<point>` there makes it stop at this [point](Point) until the file
//! is removed.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Home;
use crate::binaries::example;

pub const EXAMPLE: &str = "goondan-fake-cli-agent";

/// Its name in the project.
pub const PROGRAM: &str = "fake-agent";

/// File of the work area that logs what it received and did.
pub const DIARY: &str = "diary.txt";

/// File that it keeps locked while it runs.
pub const LOCK: &str = "running.lock";

/// Variable that it requests from a person.
pub const KEY: &str = "SHOP_KEY";

/// Question that it asks, and its possible answers.
pub const QUESTION: &str = "Who reads it?";

pub const READERS: [&str; 2] = ["engineers", "customers"];

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$of])* $variant,)*
        }

        impl $name {
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            #[must_use]
            pub fn of(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|it| it.as_str() == name)
            }
        }
    };
}

words! {
    /// Output format, as in `spec.runtime.format`.
    Format {
        Plain = "plain",
        /// Like `claude`.
        Claude = "claude-stream-json",
        /// Like `codex exec --json`.
        Codex = "codex-json",
        Acp = "acp",
    }
}

words! {
    Manner {
        /// It asks, works in two phases, is reviewed and completes.
        Honest = "honest",
        /// It reports completion, but does not exit.
        Hang = "hang",
        /// It exits without a result and leaves a child behind; its second run is honest.
        Leave = "leave",
        /// It writes output in a wrong format and exits; its second run is honest.
        Garbage = "garbage",
        /// It floods its output; its second run is honest.
        Flood = "flood",
        /// It works until it is killed; its second run is honest.
        Work = "work",
        /// It waits for a command that takes an hour, and for nothing else.
        Command = "command",
        /// It never shows a sign of life; its second run is honest.
        Stall = "stall",
        /// As honest, but it has lost each session that it must resume.
        Forget = "forget",
        /// It reports an error with a recovery hint; its second run is honest.
        Recover = "recover",
        /// It reaches its usage limit, which is reset in an hour; its second run is honest.
        Limit = "limit",
        /// As honest, and each message is also a call of goondan's tools.
        Tools = "tools",
    }
}

words! {
    /// Point at which it can be held.
    Point {
        /// It has read its prompt and written nothing.
        Started = "started",
        /// It has written a protocol block, but no result.
        Told = "told",
        /// It has written its result, but has not exited.
        Ended = "ended",
    }
}

impl Format {
    /// True if it can request a permission.
    #[must_use]
    pub fn asks_permission(self) -> bool {
        matches!(self, Self::Claude | Self::Acp)
    }
}

#[must_use]
pub fn agent_name(format: Format, manner: Manner) -> String {
    format!("{}-{}", format.as_str(), manner.as_str())
}

fn agent(format: Format, manner: Manner) -> String {
    let words = format!("./{PROGRAM}, {}, {}", format.as_str(), manner.as_str());
    let resume = match format {
        Format::Plain => String::new(),
        Format::Acp => format!("    resume: [{words}]\n"),
        Format::Claude | Format::Codex => format!("    resume: [{words}, \"{{session}}\"]\n"),
    };
    format!(
        "---\napiVersion: goondan.ai/v1\nkind: Agent\nmetadata: {{name: {}}}\nspec:\n  runtime:\n    kind: cli\n    \
         command: [{words}]\n{resume}    format: {}\n",
        agent_name(format, manner),
        format.as_str(),
    )
}

/// A home whose project has an agent for each format and each of these manners.
///
/// # Panics
///
/// If the agent's program cannot be copied into the project.
#[must_use]
pub fn home(manners: &[Manner]) -> Home {
    let mut yaml = "apiVersion: goondan.ai/v1\nkind: Package\nmetadata: {name: \"@goondan/fakes\"}\nspec: {version: \
                    0.1.0}\n---\napiVersion: goondan.ai/v1\nkind: Agent\nmetadata: {name: desk}\nspec:\n  modelConfig: \
                    {modelRef: Model/desk-model}\n---\napiVersion: goondan.ai/v1\nkind: Model\nmetadata: {name: \
                    desk-model}\nspec:\n  provider: scripted\n  options: {rules: [{say: hello}]}\n---\n\
                    apiVersion: goondan.ai/v1\nkind: Swarm\nmetadata: {name: all}\nspec: {entryAgent: Agent/desk}\n"
        .to_owned();
    for format in Format::ALL {
        for manner in manners {
            yaml += &agent(*format, *manner);
        }
    }
    let home = Home::new(&yaml);
    let program = home.project().join(PROGRAM);
    let original = example(EXAMPLE);
    // The project may be on a different file system.
    if fs::hard_link(&original, &program).is_err() {
        fs::copy(&original, &program).unwrap();
    }
    home
}

#[must_use]
pub fn work_area(home: &Home, task: &str) -> PathBuf {
    home.workspace_dir().join("tasks").join(task)
}

#[must_use]
pub fn diary(area: &Path) -> Vec<String> {
    let text = fs::read_to_string(area.join(DIARY)).unwrap_or_default();
    text.lines().map(ToOwned::to_owned).collect()
}
