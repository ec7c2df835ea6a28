//! Thinking parameters of Anthropic's models.
//!
//! The loader of `goondan.yaml` and the connector of a model both use this module, so a thinking
//! budget that leaves no tokens for a reply is rejected before any request.

/// Valid values of reasoning effort.
pub const EFFORTS: &[&str] = &["none", "minimal", "low", "medium", "high", "xhigh", "max"];

/// Smallest accepted thinking budget, in tokens.
const BUDGET_LOW_TOKENS: u32 = 1_024;
const BUDGET_MEDIUM_TOKENS: u32 = 8_000;
const BUDGET_HIGH_TOKENS: u32 = 24_000;

/// Thinking parameters of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThinkingParams {
    /// None: the model's default.
    Unsaid,
    /// Thinking is disabled, although it is the model's default.
    Disabled,
    /// This effort, without thinking.
    Effort(&'static str),
    /// Adaptive thinking with this effort.
    Adaptive(&'static str),
    /// Thinking with this token budget, which counts toward the reply's tokens.
    Budget(u32),
}

impl ThinkingParams {
    /// Translates one of [`EFFORTS`] for this model.
    #[must_use]
    pub fn of_anthropic(model: &str, effort: Option<&str>) -> Self {
        let Some(effort) = effort else {
            return Self::Unsaid;
        };
        let model = Model::of(model);
        if effort == "none" {
            let thinks = model.version >= (5, 0) && model.family != Family::Other;
            return if thinks { Self::Disabled } else { Self::Unsaid };
        }
        let word = match effort {
            "minimal" | "low" => "low",
            "medium" => "medium",
            "xhigh" if model.knows_xhigh() => "xhigh",
            "max" if model.is_adaptive() => "max",
            _ => "high",
        };
        if model.is_adaptive() {
            Self::Adaptive(word)
        } else if model.family == Family::Opus && model.version >= (4, 5) {
            Self::Effort(word)
        } else {
            Self::Budget(match word {
                "low" => BUDGET_LOW_TOKENS,
                "medium" => BUDGET_MEDIUM_TOKENS,
                _ => BUDGET_HIGH_TOKENS,
            })
        }
    }

    /// Tokens of the reply that thinking may use, if limited.
    #[must_use]
    pub fn budget_tokens(self) -> Option<u32> {
        match self {
            Self::Budget(tokens) => Some(tokens),
            Self::Unsaid | Self::Disabled | Self::Effort(_) | Self::Adaptive(_) => None,
        }
    }

    /// True if the model thinks; it then accepts no temperature.
    #[must_use]
    pub fn is_on(self) -> bool {
        matches!(self, Self::Adaptive(_) | Self::Budget(_))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Opus,
    Sonnet,
    Haiku,
    /// Fable and Mythos, which support every feature of the other families.
    New,
    Other,
}

/// A model parsed from its name, `claude-<family>-<major>-<minor>…`.
#[derive(Debug, Clone, Copy)]
struct Model {
    family: Family,
    version: (u32, u32),
}

impl Model {
    fn of(name: &str) -> Self {
        let name = name.rsplit('/').next().unwrap_or(name);
        let words: Vec<&str> = name.split(['-', '.', '@']).collect();
        let found = words.iter().enumerate().find_map(|(place, word)| {
            let family = match *word {
                "opus" => Family::Opus,
                "sonnet" => Family::Sonnet,
                "haiku" => Family::Haiku,
                "fable" | "mythos" => Family::New,
                _ => return None,
            };
            Some((place, family))
        });
        let Some((place, family)) = found else {
            let (family, version) = (Family::Other, (0, 0));
            return Self { family, version };
        };
        // A longer number is a date.
        let number = |place: usize| {
            let word = words.get(place).filter(|word| word.len() <= 2)?;
            word.parse::<u32>().ok()
        };
        let version = match number(place + 1) {
            Some(major) => (major, number(place + 2).unwrap_or(0)),
            None => (0, 0),
        };
        Self { family, version }
    }

    fn is_adaptive(self) -> bool {
        match self.family {
            Family::Opus | Family::Sonnet => self.version >= (4, 6),
            Family::Haiku => self.version >= (5, 0),
            Family::New => true,
            Family::Other => false,
        }
    }

    fn knows_xhigh(self) -> bool {
        match self.family {
            Family::Opus => self.version >= (4, 7),
            Family::Sonnet | Family::Haiku => self.version >= (5, 0),
            Family::New => true,
            Family::Other => false,
        }
    }
}

/// Default maximum length of a reply, in tokens, because Anthropic requires a number.
#[must_use]
pub fn anthropic_reply_tokens(model: &str) -> u32 {
    let named = |words: &[&str]| words.iter().any(|word| model.contains(word));
    let found = Model::of(model);
    if named(&["claude-3-opus", "claude-3-haiku", "claude-3-sonnet"]) {
        4_096
    } else if named(&["claude-3-5"]) {
        8_192
    } else if found.family == Family::Opus && found.version < (4, 5) {
        32_000
    } else {
        64_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meaning_of_thinking_effort_depends_on_the_model() {
        for (model, effort, expected) in [
            ("claude-sonnet-4-5", "low", ThinkingParams::Budget(1_024)),
            (
                "claude-sonnet-4-5-20250929",
                "max",
                ThinkingParams::Budget(24_000),
            ),
            (
                "claude-3-7-sonnet-20250219",
                "medium",
                ThinkingParams::Budget(8_000),
            ),
            ("claude-opus-4-5", "max", ThinkingParams::Effort("high")),
            ("claude-opus-4-6", "max", ThinkingParams::Adaptive("max")),
            ("claude-opus-4-6", "xhigh", ThinkingParams::Adaptive("high")),
            (
                "claude-sonnet-5",
                "xhigh",
                ThinkingParams::Adaptive("xhigh"),
            ),
            (
                "anthropic/claude-sonnet-4.6",
                "minimal",
                ThinkingParams::Adaptive("low"),
            ),
            ("claude-haiku-4-5", "high", ThinkingParams::Budget(24_000)),
            ("big-1", "high", ThinkingParams::Budget(24_000)),
            ("claude-sonnet-4-5", "none", ThinkingParams::Unsaid),
            ("claude-sonnet-5", "none", ThinkingParams::Disabled),
        ] {
            let found = ThinkingParams::of_anthropic(model, Some(effort));
            assert_eq!(found, expected, "{model} {effort}");
        }
        assert_eq!(
            ThinkingParams::of_anthropic("claude-sonnet-5", None),
            ThinkingParams::Unsaid
        );
        assert_eq!(anthropic_reply_tokens("claude-3-haiku-20240307"), 4_096);
        assert_eq!(anthropic_reply_tokens("claude-opus-4-1"), 32_000);
        assert_eq!(anthropic_reply_tokens("claude-opus-4-8"), 64_000);
    }
}
