//! Everything `gdn` prints goes through here: data on stdout, everything else on stderr.
//!
//! # Invariants
//!
//! * Without a terminal there is no colour and no cursor movement, and an agent's words are passed
//!   on byte for byte.
//! * On a terminal, text that others wrote (agents, tools, logs) never reaches it with its control
//!   characters: it could otherwise rewrite what the person sees. Commands make such text fit where it
//!   stands; whatever they forget is made harmless here.
//! * With `--json`, stdout holds JSON only, and stderr at most one JSON object: the error.

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

/// Where a command prints to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    json: bool,
    /// Colours of stdout.
    pub(crate) out: Palette,
    /// Colours of stderr.
    pub(crate) err: Palette,
    out_is_terminal: bool,
    /// Columns of the terminal that stdout is, if it is one.
    columns: Option<usize>,
    err_is_terminal: bool,
}

impl Output {
    /// Looks at the terminal and the environment (`NO_COLOR`, `CLICOLOR`, `TERM`), unless `color`
    /// decides.
    pub(crate) fn new(json: bool, color: ColorChoice) -> Self {
        let (stdout, stderr) = (std::io::stdout(), std::io::stderr());
        let is_colored = |choice| !matches!(choice, ColorChoice::Never);
        let (out, err) = match color {
            ColorChoice::Auto => (AutoStream::choice(&stdout), AutoStream::choice(&stderr)),
            ColorChoice::AlwaysAnsi | ColorChoice::Always | ColorChoice::Never => (color, color),
        };
        Self {
            json,
            out: Palette::new(is_colored(out)),
            err: Palette::new(is_colored(err)),
            out_is_terminal: stdout.is_terminal(),
            columns: terminal_size::terminal_size_of(&stdout).map(|(columns, _)| columns.0.into()),
            err_is_terminal: stderr.is_terminal(),
        }
    }

    /// What a table on stdout is drawn on.
    pub(crate) fn canvas(self) -> Canvas {
        Canvas {
            palette: self.out,
            columns: self.columns,
        }
    }

    /// Whether the person asked for JSON.
    pub(crate) fn is_json(self) -> bool {
        self.json
    }

    /// Whether stderr is a terminal that may show a spinner or a question.
    pub(crate) fn is_interactive(self) -> bool {
        !self.json && self.err_is_terminal
    }

    /// Whether data and progress are seen together, on a terminal.
    pub(crate) fn is_watched(self) -> bool {
        self.is_interactive() && self.out_is_terminal
    }

    /// Names whoever speaks next, before its words.
    pub(crate) fn name(self, agent: &str) {
        self.prompt(&self.err.paint(style::GOOD, &format!("{agent}> ")));
    }

    /// Prints a part of what an agent says, as it comes, with nothing behind it. If nobody reads it,
    /// the whole answer fails to be printed in its turn.
    pub(crate) fn said(self, text: &str) {
        drop(self.piece(&self.words(text)));
    }

    /// Prints lines of data, without `--json`.
    pub(crate) fn data(self, text: impl AsRef<str>) -> Result<(), Failure> {
        if self.json {
            return Ok(());
        }
        self.print(text.as_ref())
    }

    /// Prints what an agent said, without `--json`; on a terminal with its Markdown shown as it is meant.
    pub(crate) fn reply(self, text: &str) -> Result<(), Failure> {
        if self.json {
            return Ok(());
        }
        if self.is_watched() && self.out.is_on() {
            return self.print(&markdown::render(text, self.out));
        }
        self.print(&self.words(text))
    }

    /// What an agent said; on a terminal without the colours it may have put there.
    fn words(self, text: &str) -> Cow<'_, str> {
        if self.out_is_terminal {
            Cow::Owned(text::printable(text))
        } else {
            Cow::Borrowed(text)
        }
    }

    /// With `--json`, prints one object on one line: `schema` and the fields of `value`, which
    /// serializes as an object.
    pub(crate) fn object(self, schema: &str, value: &impl Serialize) -> Result<(), Failure> {
        if !self.json {
            return Ok(());
        }
        let fields = serde_json::to_string(value).map_err(std::io::Error::other)?;
        // The schema's name comes first, where a reader looks for it.
        let fields = match fields.strip_prefix('{') {
            Some("}") | None => "}".to_owned(),
            Some(fields) => format!(",{fields}"),
        };
        // Whoever reads it in a terminal is safe, and whoever parses it gets the same.
        let fields = harmless_json(&fields);
        self.print(&format!("{{\"schema\":{}{fields}", json!(schema)))
    }

    /// Prints a line as it is, with and without `--json`.
    pub(crate) fn raw(self, line: &str) -> Result<(), Failure> {
        self.print(line)
    }

    /// Prints bytes as they are, for a program; on a terminal as text that does no harm.
    pub(crate) fn bytes(self, bytes: &[u8]) -> Result<(), Failure> {
        if self.out_is_terminal {
            return self.piece(&String::from_utf8_lossy(bytes));
        }
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(bytes)?;
        stdout.flush()?;
        Ok(())
    }

    /// Prints a piece of data as it is, with nothing behind it.
    pub(crate) fn piece(self, text: &str) -> Result<(), Failure> {
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(self.shown(text).as_bytes())?;
        stdout.flush()?;
        Ok(())
    }

    /// Takes back what stands on a terminal from so many rows above the cursor on.
    pub(crate) fn take_back(self, rows: usize) {
        let up = match rows {
            0 => String::new(),
            rows => format!("\u{1b}[{rows}A"),
        };
        let mut stdout = std::io::stdout().lock();
        let written = write!(stdout, "{up}\r\u{1b}[J");
        // If nobody reads it, the whole answer fails to be printed in its turn.
        drop(written.and_then(|()| stdout.flush()));
    }

    /// What goes to stdout of a text.
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

    /// Tells the person something beside the data, on stderr; nothing with `--json`.
    pub(crate) fn note(self, text: impl AsRef<str>) {
        if !self.json {
            self.tell(&format!("{}\n", text.as_ref()));
        }
    }

    /// Writes text to stderr without a newline: a prompt.
    pub(crate) fn prompt(self, text: &str) {
        if !self.json {
            self.tell(text);
        }
    }

    /// Writes to stderr. If nobody reads it, nobody is left to be told.
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

    /// Tells why the command failed and what to do next.
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
