//! All output of `gdn`: data on stdout, everything else on stderr.
//!
//! # Invariants
//!
//! * Without a terminal, there is no color and no cursor movement, and an agent's text is passed through byte for
//!   byte.
//! * On a terminal, text from agents, tools and logs is never printed with its control characters, because it could
//!   alter what the user sees. Commands escape such text to fit its place; this module escapes whatever they miss.
//! * With `--json`, stdout contains only JSON, and stderr at most one JSON object: the error.

use std::borrow::Cow;
use std::io::{IsTerminal as _, Write as _};

use anstream::{AutoStream, ColorChoice};
use serde::Serialize;
use serde_json::json;

use crate::failure::Failure;
use crate::schemas;

pub(crate) mod diff;
pub(crate) mod invisible;
pub(crate) mod markdown;
pub(crate) mod page;
pub(crate) mod pager;
pub(crate) mod progress;
pub(crate) mod screen;
pub(crate) mod style;
pub(crate) mod table;
pub(crate) mod text;

use invisible::{harmless, harmless_json};
use style::Palette;
use table::Canvas;

/// Output streams of a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    json: bool,
    /// True to print no notes and no progress.
    quiet: bool,
    /// True to print more, such as ids.
    verbose: bool,
    pub(crate) out: Palette,
    pub(crate) err: Palette,
    out_is_terminal: bool,
    /// Width of the terminal at stdout, if it is one.
    columns: Option<usize>,
    err_is_terminal: bool,
}

impl Output {
    /// Detects the terminal and the environment (`NO_COLOR`, `CLICOLOR`, `TERM`), unless `color` decides.
    pub(crate) fn new(json: bool, color: ColorChoice) -> Self {
        let (stdout, stderr) = (std::io::stdout(), std::io::stderr());
        let is_colored = |choice| !matches!(choice, ColorChoice::Never);
        let (out, err) = match color {
            ColorChoice::Auto => (AutoStream::choice(&stdout), AutoStream::choice(&stderr)),
            ColorChoice::AlwaysAnsi | ColorChoice::Always | ColorChoice::Never => (color, color),
        };
        Self {
            json,
            quiet: false,
            verbose: false,
            out: Palette::new(is_colored(out)),
            err: Palette::new(is_colored(err)),
            out_is_terminal: stdout.is_terminal(),
            columns: terminal_size::terminal_size_of(&stdout).map(|(columns, _)| columns.0.into()),
            err_is_terminal: stderr.is_terminal(),
        }
    }

    /// The same output with or without notes, and with more or fewer details.
    pub(crate) fn with_notes(self, has_notes: bool, verbose: bool) -> Self {
        Self {
            quiet: !has_notes,
            verbose,
            ..self
        }
    }

    /// True if the user wants neither notes nor progress.
    pub(crate) fn is_quiet(self) -> bool {
        self.quiet
    }

    /// True if the user wants more details.
    pub(crate) fn is_verbose(self) -> bool {
        self.verbose
    }

    /// Canvas for tables on stdout.
    pub(crate) fn canvas(self) -> Canvas {
        Canvas {
            palette: self.out,
            columns: self.columns,
        }
    }

    /// True if the user asked for JSON.
    pub(crate) fn is_json(self) -> bool {
        self.json
    }

    /// True if stderr is a terminal that can show a spinner or a prompt.
    pub(crate) fn is_interactive(self) -> bool {
        !self.json && self.err_is_terminal
    }

    /// True if data and progress appear on the same terminal.
    pub(crate) fn is_watched(self) -> bool {
        self.is_interactive() && self.out_is_terminal
    }

    /// Prints the name of the agent before its text.
    pub(crate) fn name(self, agent: &str) {
        self.prompt(&self.err.paint(style::GOOD, &format!("{agent}> ")));
    }

    /// Prints a part of an agent's reply as it arrives, without a newline. Errors are ignored here, because printing
    /// the complete reply fails again.
    pub(crate) fn reply_piece(self, text: &str) {
        drop(self.piece(&self.words(text)));
    }

    /// Prints lines of data, unless `--json`.
    pub(crate) fn data(self, text: impl AsRef<str>) -> Result<(), Failure> {
        if self.json {
            return Ok(());
        }
        self.print(text.as_ref())
    }

    /// Prints an agent's reply, unless `--json`; on a terminal with rendered Markdown.
    pub(crate) fn reply(self, text: &str) -> Result<(), Failure> {
        if self.json {
            return Ok(());
        }
        if self.is_watched() && self.out.is_on() {
            return self.print(&markdown::render(text, self.out));
        }
        self.print(&self.words(text))
    }

    /// Text of an agent; on a terminal with its control characters escaped.
    fn words(self, text: &str) -> Cow<'_, str> {
        if self.out_is_terminal {
            Cow::Owned(text::printable(text))
        } else {
            Cow::Borrowed(text)
        }
    }

    /// With `--json`, prints one object on one line: `schema` and the fields of `value`, which must serialize as an
    /// object.
    pub(crate) fn object(self, schema: &str, value: &impl Serialize) -> Result<(), Failure> {
        if !self.json {
            return Ok(());
        }
        let fields = serde_json::to_string(value).map_err(std::io::Error::other)?;
        // The schema's name comes first, where readers expect it.
        let fields = match fields.strip_prefix('{') {
            Some("}") | None => "}".to_owned(),
            Some(fields) => format!(",{fields}"),
        };
        // Escaped for terminals; parsers get the same values.
        let fields = harmless_json(&fields);
        self.print(&format!("{{\"schema\":{}{fields}", json!(schema)))
    }

    /// Prints a line unchanged, with and without `--json`.
    pub(crate) fn raw(self, line: &str) -> Result<(), Failure> {
        self.print(line)
    }

    /// Prints raw bytes for programs; on a terminal as escaped text.
    pub(crate) fn bytes(self, bytes: &[u8]) -> Result<(), Failure> {
        if self.out_is_terminal {
            return self.piece(&String::from_utf8_lossy(bytes));
        }
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(bytes)?;
        stdout.flush()?;
        Ok(())
    }

    /// Prints a piece of data without a newline.
    pub(crate) fn piece(self, text: &str) -> Result<(), Failure> {
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(self.shown(text).as_bytes())?;
        stdout.flush()?;
        Ok(())
    }

    /// Erases the terminal from `rows` above the cursor.
    pub(crate) fn take_back(self, rows: usize) {
        let up = match rows {
            0 => String::new(),
            rows => format!("\u{1b}[{rows}A"),
        };
        let mut stdout = std::io::stdout().lock();
        let written = write!(stdout, "{up}\r\u{1b}[J");
        // Errors are ignored here, because printing the complete reply fails again.
        drop(written.and_then(|()| stdout.flush()));
    }

    /// Text as written to stdout.
    fn shown(self, text: &str) -> Cow<'_, str> {
        if self.out_is_terminal {
            harmless(text)
        } else {
            Cow::Borrowed(text)
        }
    }

    fn print(self, text: &str) -> Result<(), Failure> {
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(self.shown(text).as_bytes())?;
        if !text.ends_with('\n') {
            stdout.write_all(b"\n")?;
        }
        stdout.flush()?;
        Ok(())
    }

    /// Prints a note for the user to stderr; nothing with `--json` and `--quiet`.
    pub(crate) fn note(self, text: impl AsRef<str>) {
        if !self.json && !self.quiet {
            self.tell(&format!("{}\n", text.as_ref()));
        }
    }

    /// Prints a note whose words are wrapped on a terminal. Not for commands, which people copy.
    pub(crate) fn wrapped_note(self, text: &str) {
        let columns = self.columns.unwrap_or(usize::MAX);
        self.note(text::folded(text, columns).join("\n"));
    }

    /// Prints a prompt to stderr, without a newline.
    pub(crate) fn prompt(self, text: &str) {
        if !self.json {
            self.tell(text);
        }
    }

    /// Replaces the last line of the terminal, which is not finished, by the end of this text that fits.
    pub(crate) fn replace_line(self, text: &str) {
        if self.json || !self.err_is_terminal {
            return;
        }
        let text = text::one_line(text);
        // The cursor needs its own column.
        let room = self
            .columns
            .map_or(usize::MAX, |columns| columns.saturating_sub(1));
        let end = text::taken_while(text.chars().rev(), room);
        let end: String = end.chars().rev().collect();
        let mut stderr = std::io::stderr().lock();
        let line = format!("\r\u{1b}[K{end}");
        drop(
            stderr
                .write_all(line.as_bytes())
                .and_then(|()| stderr.flush()),
        );
    }

    /// Writes to stderr. Errors are ignored, because there is no other place to report them.
    fn tell(self, text: &str) {
        let text = if self.err_is_terminal {
            harmless(text)
        } else {
            Cow::Borrowed(text)
        };
        let mut stderr = std::io::stderr().lock();
        drop(
            stderr
                .write_all(text.as_bytes())
                .and_then(|()| stderr.flush()),
        );
    }

    /// Prints why the command failed and what to do next.
    pub(crate) fn failure(self, failure: &Failure) {
        if failure.silent {
            return;
        }
        if self.json {
            let object = json!({
                "schema": schemas::ERROR,
                "code": failure.exit.name(),
                "exitCode": failure.exit.code(),
                "message": failure.message,
                "causes": failure.causes,
                "hint": failure.hint,
                "retryable": failure.is_retryable(),
            });
            return self.tell(&format!("{}\n", harmless_json(&object.to_string())));
        }
        let mut lines = format!(
            "{} {}\n",
            self.err.paint(style::ERROR, "error:"),
            text::printable(&failure.message)
        );
        for cause in &failure.causes {
            lines.push_str(&format!("  caused by: {}\n", text::printable(cause)));
        }
        if !failure.hint.is_empty() {
            let hint = text::printable(&failure.hint);
            lines.push_str(&format!(
                "{} {hint}\n",
                self.err.paint(style::HINT, "hint:")
            ));
        }
        self.tell(&lines);
    }
}
