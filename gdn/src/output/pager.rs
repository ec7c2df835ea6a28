//! Shows long output in a pager.

use std::io::Write as _;
use std::process::{Command, Stdio};

use super::Output;
use crate::failure::Failure;

/// Environment variable for the pager, with precedence over `PAGER`. An empty value disables it.
pub(crate) const PAGER_VAR: &str = "GDN_PAGER";
/// Default pager: it passes colors through and exits if everything fits on the screen.
const DEFAULT_PAGER: &str = "less -FRX";

impl Output {
    /// Prints data, through a pager if stdout is a terminal on which it does not fit.
    pub(crate) fn paged(self, text: &str) -> Result<(), Failure> {
        if self.json {
            return Ok(());
        }
        let rows = terminal_size::terminal_size_of(std::io::stdout()).map(|(_, rows)| rows.0);
        let fits = rows.is_none_or(|rows| text.lines().count() < usize::from(rows));
        if !self.out_is_terminal || fits || !page(&self.shown(text)) {
            return self.data(text);
        }
        Ok(())
    }
}

/// Returns true if a pager showed the text; false if it cannot be started.
fn page(text: &str) -> bool {
    let variable = |name| std::env::var(name).ok();
    let command = variable(PAGER_VAR).or_else(|| variable("PAGER"));
    let command = command.unwrap_or_else(|| DEFAULT_PAGER.to_owned());
    let mut words = command.split_whitespace();
    let Some(program) = words.next() else {
        return false;
    };
    let started = Command::new(program)
        .args(words)
        .stdin(Stdio::piped())
        .spawn();
    let Ok(mut child) = started else {
        return false;
    };
    if let Some(mut stdin) = child.stdin.take() {
        // The user may quit the pager early.
        drop(stdin.write_all(text.as_bytes()));
    }
    child.wait().is_ok()
}
