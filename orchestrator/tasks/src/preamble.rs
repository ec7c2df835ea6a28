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

/// The same for agents that have goondan's tools.
const TOOLS: &str = include_str!("preamble/tools.txt");

const TOOLS_PROPOSAL: &str = include_str!("preamble/tools_proposal.txt");

/// Instructions for completing a phase with the tools.
const TOOLS_PHASES: &str = include_str!("preamble/tools_phases.txt");

/// Instructions for completing a task without phases with the tools.
const TOOLS_WHOLE: &str = include_str!("preamble/tools_whole.txt");

/// Placeholder for the number of phases in a project's own preamble.
const PHASES_PLACE: &str = "{phases}";

/// Protocol instructions for an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Preamble {
    #[default]
    None,
    /// goondan's built-in instructions for text blocks.
    Usual,
    /// goondan's built-in instructions for an agent that has the tools.
    Tools,
    /// A text of the project; `{phases}` is replaced by the number of phases.
    Own(String),
}

impl Preamble {
    /// Text for a task with this number of phases; `proposes` if its result is a proposal.
    pub(crate) fn text(&self, phases: u32, proposes: bool) -> String {
        let phased = |text: &str| text.replace(PHASES_PLACE, &phases.to_string());
        match self {
            Self::None => String::new(),
            Self::Own(text) => phased(text),
            Self::Usual => {
                let ending = phased(if phases > 0 { PHASES } else { WHOLE });
                format!("\n{TALKING}\n{ending}\n")
            }
            Self::Tools => {
                let proposal = if proposes { TOOLS_PROPOSAL } else { "" };
                let ending = phased(if phases > 0 {
                    TOOLS_PHASES
                } else {
                    TOOLS_WHOLE
                });
                format!("\n{TOOLS}{proposal}{ending}\n")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use goondan_cli_agents::blocks::Scanner;

    use super::*;

    #[test]
    fn agent_2_echoed_preamble_yields_no_blocks() {
        for (phases, preamble) in [
            (0, Preamble::Usual),
            (3, Preamble::Usual),
            (0, Preamble::Tools),
            (3, Preamble::Tools),
        ] {
            let text = preamble.text(phases, true);
            let mut scanner = Scanner::new("");
            let mut found = scanner.push(text.as_bytes());
            found.extend(scanner.end());
            assert_eq!(found, [], "{phases}");
            assert!(text.contains("[USER_QUESTION]"));
            assert_eq!(text.contains("=== PHASE"), phases > 0);
            assert_eq!(text.contains("=== CUSTOM TASK COMPLETE ==="), phases == 0);
            assert_eq!(text.contains("has 3 phases"), phases > 0);
        }
        let own = Preamble::Own("There are {phases}.".to_owned());
        assert_eq!(own.text(2, false), "There are 2.");
    }

    #[test]
    fn agent_2_the_preamble_names_each_tool_that_is_of_use() {
        use goondan_cli_agents::tools::Tool;
        for (phases, proposes) in [(0, false), (2, true)] {
            let text = Preamble::Tools.text(phases, proposes);
            for tool in Tool::ALL {
                let is_of_use = match tool {
                    Tool::CompletePhase => phases > 0,
                    Tool::SubmitProposal => proposes,
                    _ => true,
                };
                let named = text.contains(&format!("`{}`", tool.name()));
                assert_eq!(named, is_of_use, "{}: {text}", tool.name());
            }
        }
    }
}
