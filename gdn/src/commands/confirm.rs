//! Confirmation prompts before irreversible actions.

use std::io::IsTerminal as _;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

/// Returns if the user confirms `question`. `command` skips the prompt and is printed as the hint.
pub(super) fn confirm(context: &Context, question: &str, command: &str) -> Result<(), Failure> {
    let command = context.command(command);
    let output = context.output;
    if !output.is_interactive() || !std::io::stdin().is_terminal() {
        return Err(Failure::new(
            Exit::Usage,
            format!("confirmation required: {question}"),
            format!("pass `--yes`: `{command}`"),
        ));
    }
    if asked(context, question)? {
        Ok(())
    } else {
        Err(Failure::new(
            Exit::Cancelled,
            "canceled; nothing was done",
            format!("to skip the confirmation: `{command}`"),
        ))
    }
}

/// Reads the user's answer to a question. Requires a terminal.
pub(super) fn asked(context: &Context, question: &str) -> Result<bool, Failure> {
    context.output.prompt(&format!("{question} [y/N] "));
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(is_yes(&answer))
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_is_yes() {
        assert!(is_yes("y\n") && is_yes("YES\n"));
        for no in ["", "\n", "n", "yeah?", "yes no"] {
            assert!(!is_yes(no), "{no:?}");
        }
    }
}
