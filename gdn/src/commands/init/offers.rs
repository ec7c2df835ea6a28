//! The coding agents and the secrets that templates can use.

use clap::ValueEnum;

/// A coding agent that is a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CodingProgram {
    /// Claude Code.
    Claude,
    /// Codex.
    Codex,
    /// Gemini CLI.
    Gemini,
}

impl CodingProgram {
    /// Name of the preset, and of the program.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
        }
    }

    /// Login directory below the home directory.
    pub(super) fn login(self) -> &'static str {
        match self {
            Self::Claude => ".claude",
            Self::Codex => ".codex",
            Self::Gemini => ".gemini",
        }
    }

    /// Hosts that it connects to.
    pub(super) fn hosts(self) -> &'static [&'static str] {
        match self {
            Self::Claude => &["api.anthropic.com", "console.anthropic.com"],
            Self::Codex => &["api.openai.com", "auth.openai.com", "chatgpt.com"],
            Self::Gemini => &[
                "cloudcode-pa.googleapis.com",
                "generativelanguage.googleapis.com",
                "oauth2.googleapis.com",
            ],
        }
    }

    /// Key that it requires without a login.
    pub(super) fn needed_secret(self) -> &'static NeededSecret {
        match self {
            Self::Claude => &ANTHROPIC_KEY,
            Self::Codex => &OPENAI_KEY,
            Self::Gemini => &GOOGLE_KEY,
        }
    }
}

/// A secret that a new project uses.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NeededSecret {
    /// Name of the secret in the store.
    pub(super) name: &'static str,
    pub(super) key: &'static str,
    /// Environment variables that may contain it; the first one that is set counts.
    pub(super) variables: &'static [&'static str],
    /// Name for people.
    pub(super) title: &'static str,
}

pub(super) const ANTHROPIC_KEY: NeededSecret = NeededSecret {
    name: "anthropic",
    key: "apiKey",
    variables: &["ANTHROPIC_API_KEY"],
    title: "API key of Anthropic",
};

pub(super) const OPENAI_KEY: NeededSecret = NeededSecret {
    name: "openai",
    key: "apiKey",
    variables: &["OPENAI_API_KEY"],
    title: "API key of OpenAI",
};

pub(super) const GOOGLE_KEY: NeededSecret = NeededSecret {
    name: "google",
    key: "apiKey",
    variables: &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
    title: "API key of Gemini",
};

pub(super) const TELEGRAM_TOKEN: NeededSecret = NeededSecret {
    name: "telegram",
    key: "botToken",
    variables: &["TELEGRAM_BOT_TOKEN", "TELEGRAM_TOKEN"],
    title: "token of the Telegram bot, from @BotFather",
};

/// All secrets that the templates use.
pub(super) const NEEDED_SECRETS: [&NeededSecret; 4] =
    [&ANTHROPIC_KEY, &OPENAI_KEY, &GOOGLE_KEY, &TELEGRAM_TOKEN];
