//! Long texts, page by page, on a terminal.

use std::io::Write as _;
use std::process::{Command, Stdio};

use super::Output;
use crate::failure::Failure;

/// The environment variable that names the program, before `PAGER`. Empty turns it off.
pub(crate) const PAGER_VAR: &str = "GDN_PAGER";
/// What is used where no variable says otherwise: it lets colours through, and ends by itself if all fits.
const DEFAULT_PAGER: &str = "less -FRX";

impl Output {
    /// Prints data, page by page if stdout is a terminal that it does not fit on.
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

/// Whether a pager showed it. One that cannot be started shows nothing.
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
        // Whoever has seen enough closes it before the end.
        drop(stdin.write_all(text.as_bytes()));
    }
    child.wait().is_ok()
}
