//! Protocol instructions in a program's first prompt (`AGENT-2`).
//!
//! The examples are indented because a tag counts only at the start of a line: a program that
//! prints its prompt triggers nothing.

/// Instructions for messages to people.
const TALKING: &str = include_str!("preamble/talking.txt");

/// Instructions for completing a phase.
const PHASES: &str = include_str!("preamble/phases.txt");

/// Instructions for completing a task without phases.
const WHOLE: &str = include_str!("preamble/whole.txt");

/// Placeholder for the number of phases in a project's own preamble.
const PHASES_PLACE: &str = "{phases}";

/// Protocol instructions for an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Preamble {
    /// No instructions.
    #[default]
    None,
    /// goondan's built-in instructions.
    Usual,
    /// A text of the project; `{phases}` is replaced by the number of phases.
    Own(String),
}

impl Preamble {
    /// Text for a task with this number of phases.
    pub(crate) fn text(&self, phases: u32) -> String {
        match self {
            Self::None => String::new(),
            Self::Own(text) => text.replace(PHASES_PLACE, &phases.to_string()),
            Self::Usual => {
                let ending = if phases > 0 { PHASES } else { WHOLE };
                let ending = ending.replace(PHASES_PLACE, &phases.to_string());
                format!("\n{TALKING}\n{ending}\n")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use goondan_cli_agents::blocks::Scanner;

    use super::*;

    #[test]
    fn agent_2_a_preamble_that_is_printed_says_nothing() {
        for phases in [0, 3] {
            let text = Preamble::Usual.text(phases);
            let mut scanner = Scanner::new("");
            let mut found = scanner.push(text.as_bytes());
            found.extend(scanner.end());
            assert_eq!(found, [], "{phases}");
            assert!(text.contains("[USER_QUESTION]") && text.contains("[DEPENDENCY_REQUEST]"));
            assert_eq!(text.contains("=== PHASE"), phases > 0);
            assert_eq!(text.contains("=== CUSTOM TASK COMPLETE ==="), phases == 0);
        }
        let own = Preamble::Own("There are {phases}.".to_owned());
        assert_eq!(own.text(2), "There are 2.");
    }
}
