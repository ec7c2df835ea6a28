//! Text that is redrawn in place on a terminal.

use std::io::Write as _;

use super::Output;
use super::invisible::harmless;
use crate::failure::Failure;

/// Height assumed if the terminal does not report it, in lines.
const DEFAULT_LINES: usize = 24;

/// A region of the terminal.
#[derive(Debug)]
pub(crate) struct Screen {
    lines_shown: usize,
}

impl Screen {
    /// Region below the cursor; none without a terminal at stdout, or with `--json`.
    pub(crate) fn of(output: Output) -> Option<Self> {
        (output.out_is_terminal && !output.json).then_some(Self { lines_shown: 0 })
    }

    /// Replaces the previous text with `text`. Excess lines and columns are cut.
    pub(crate) fn show(&mut self, text: &str) -> Result<(), Failure> {
        let lines = match terminal_size::terminal_size_of(std::io::stdout()) {
            Some((_, lines)) => usize::from(lines.0),
            None => DEFAULT_LINES,
        };
        let frame = self.frame(&harmless(text), lines);
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(frame.as_bytes())?;
        stdout.flush()?;
        Ok(())
    }

    fn frame(&mut self, text: &str, lines_max: usize) -> String {
        let count = text.lines().count();
        // The cursor needs its own line.
        let room = lines_max.saturating_sub(1).max(1);
        let mut shown: Vec<String> = text.lines().take(room).map(str::to_owned).collect();
        if count > room {
            shown.pop();
            shown.push(format!("… {} more lines", count - shown.len()));
        }
        // Move up to the start, clear everything below, and disable line wrapping.
        let up = match self.lines_shown {
            0 => String::new(),
            lines => format!("\u{1b}[{lines}A"),
        };
        self.lines_shown = shown.len();
        format!("{up}\r\u{1b}[J\u{1b}[?7l{}\n\u{1b}[?7h", shown.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_clears_the_previous_one_and_fits_the_screen_height() {
        let mut screen = Screen { lines_shown: 0 };
        let frame = screen.frame("a\nb\n", 24);
        assert_eq!(frame, "\r\u{1b}[J\u{1b}[?7la\nb\n\u{1b}[?7h");
        assert!(screen.frame("a\n", 24).starts_with("\u{1b}[2A\r"));
        let cut = screen.frame("a\nb\nc\nd\n", 4);
        assert!(cut.starts_with("\u{1b}[1A\r"), "{cut:?}");
        assert!(cut.contains("a\nb\n… 2 more lines\n"), "{cut:?}");
        assert!(screen.frame("a\n", 4).starts_with("\u{1b}[3A\r"));
    }
}
