//! Asks a person on the terminal.

use goondan_protocol::limits::MAX_SECRET_VALUE_BYTES;
use goondan_protocol::secret::SecretValue;

use super::answers::Person;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;
use crate::output::text::printable;

/// The person at the terminal.
#[derive(Debug)]
pub(super) struct TerminalUser(pub(super) Output);

impl TerminalUser {
    /// Reads a line; its end (Ctrl-D) cancels the command.
    fn line(&self, question: &str) -> Result<String, Failure> {
        self.0.prompt(question);
        let mut line = String::new();
        if std::io::stdin().read_line(&mut line)? == 0 {
            return Err(canceled());
        }
        Ok(line.trim().to_owned())
    }
}

fn canceled() -> Failure {
    Failure::new(
        Exit::Cancelled,
        "canceled; nothing was created",
        "start again: `gdn init`; every question has an option: `gdn help init`",
    )
}

impl Person for TerminalUser {
    fn choose(
        &mut self,
        question: &str,
        options: &[String],
        default: usize,
    ) -> Result<usize, Failure> {
        self.0.note(question);
        for (index, option) in options.iter().enumerate() {
            self.0
                .note(format!("  {}  {}", index + 1, printable(option)));
        }
        loop {
            let answer = self.line(&format!("Number [{}]: ", default + 1))?;
            if let Some(index) = chosen(&answer, options, default) {
                return Ok(index);
            }
            self.0.note(format!("Expected 1 to {}.", options.len()));
        }
    }

    fn agrees(&mut self, question: &str) -> Result<bool, Failure> {
        let answer = self.line(&format!("{question} [Y/n] "))?;
        Ok(matches!(answer.to_lowercase().as_str(), "" | "y" | "yes"))
    }

    fn text(&mut self, question: &str) -> Result<String, Failure> {
        self.line(question)
    }

    fn secret(&mut self, question: &str) -> Result<Option<SecretValue>, Failure> {
        let value = rpassword::prompt_password(question)?;
        if value.len() > MAX_SECRET_VALUE_BYTES {
            return Err(Failure::new(
                Exit::Usage,
                format!("the value has more than {MAX_SECRET_VALUE_BYTES} bytes"),
                "start again: `gdn init`; nothing was created",
            ));
        }
        Ok((!value.is_empty()).then(|| SecretValue::new(value)))
    }
}

/// The option of an answer: its number, the first word of one option, or nothing for the default.
fn chosen(answer: &str, options: &[String], default: usize) -> Option<usize> {
    if answer.is_empty() {
        return Some(default);
    }
    if let Ok(number) = answer.parse::<usize>() {
        return number.checked_sub(1).filter(|index| *index < options.len());
    }
    let is_named = |option: &String| option.split_whitespace().next() == Some(answer);
    options.iter().position(is_named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_chosen_by_number_or_name() {
        let options = ["claude       /usr/bin/claude", "codex        not installed"];
        let options = options.map(str::to_owned);
        for (answer, index) in [
            ("", Some(1)),
            ("1", Some(0)),
            ("2", Some(1)),
            ("codex", Some(1)),
            ("0", None),
            ("3", None),
            ("gemini", None),
            ("-1", None),
        ] {
            assert_eq!(chosen(answer, &options, 1), index, "{answer:?}");
        }
    }
}
