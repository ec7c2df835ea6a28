//! Output formats of the supported programs, parsed into events.

use goondan_protocol::task::{PlanStep, PlanStepState};

use crate::blocks::{ScanItem, Scanner};
use crate::event::{CliEvent, InvalidBlock};
use crate::limits::{JSON_LINE_BYTES_MAX, NOISE_CHARS_MAX, TEXT_LINE_BYTES_MAX};
use crate::lines::{OutputLine, OutputLineSplitter, text_of};
use crate::stderr::Stderr;
use crate::tool::Calls;
use goondan_protocol::task::AgentFormat as Format;

mod acp;
mod acp_tool;
mod acp_usage;
mod aider;
mod claude;
mod codex;
mod gemini;
mod limit_text;
mod opencode;

/// Information about a run that its parser needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Setup {
    /// Prompt of the agent, used to remove its echo from the output.
    pub prompt: String,
    /// True if the run resumes a session. Programs may replay the session first.
    pub is_resumed: bool,
}

/// Parses the standard output of one run of a program.
#[derive(Debug)]
pub struct Parser {
    lines: OutputLineSplitter,
    reader: FormatParser,
    scanner: Scanner,
    shown: Shown,
    stderr: Stderr,
}

/// State that concerns only what is shown to people.
#[derive(Debug, Default)]
struct Shown {
    /// True if the last text did not end with a newline.
    is_in_line: bool,
    calls: Calls,
}

#[derive(Debug)]
enum FormatParser {
    Plain,
    Aider(aider::Aider),
    Gemini(gemini::Gemini),
    Opencode(opencode::Opencode),
    Claude(Box<claude::Claude>),
    Codex(codex::Codex),
    Acp(acp::Acp),
}

/// Collects the events that the parsers find.
#[derive(Debug)]
struct Sink<'a> {
    events: Vec<CliEvent>,
    scanner: &'a mut Scanner,
    shown: &'a mut Shown,
}

impl Sink<'_> {
    fn push(&mut self, mut event: CliEvent) {
        if let CliEvent::Tool(tool) = &mut event {
            self.shown.calls.report(tool);
        }
        self.events.push(event);
    }

    /// A piece of the model's thoughts.
    fn thought(&mut self, text: &str) {
        if !text.is_empty() {
            self.push(CliEvent::Thinking(text.to_owned()));
        }
    }

    /// Parses the agent's plan from the array `steps`; invalid elements are skipped.
    fn plan<'v>(
        &mut self,
        steps: Option<&'v serde_json::Value>,
        step_of: impl Fn(&'v serde_json::Value) -> Option<(&'v str, PlanStepState)>,
    ) {
        let Some(steps) = steps.and_then(serde_json::Value::as_array) else {
            return;
        };
        let steps = steps.iter().filter_map(step_of);
        let steps = steps.map(|(title, state)| PlanStep {
            title: title.to_owned(),
            state,
        });
        self.push(CliEvent::Plan(PlanStep::bounded(steps)));
    }

    /// A piece of the assistant's own text.
    fn own_text(&mut self, text: &str) {
        if !text.is_empty() {
            self.events.push(CliEvent::Text(text.to_owned()));
            self.shown.is_in_line = !text.ends_with('\n');
            let found = self.scanner.push(text.as_bytes());
            self.found(found);
        }
    }

    /// Ends the current text; another may follow.
    fn end_text(&mut self) {
        let found = self.scanner.end();
        self.found(found);
        if std::mem::take(&mut self.shown.is_in_line) {
            self.push(CliEvent::TextEnd);
        }
    }

    fn found(&mut self, found: Vec<ScanItem>) {
        self.events
            .extend(found.into_iter().map(|found| match found {
                ScanItem::Block(block) => CliEvent::Block(block),
                ScanItem::Refused(refusal) => CliEvent::Refused(InvalidBlock {
                    protocol: refusal.protocol.to_owned(),
                    problem: refusal.problem.to_string(),
                }),
                ScanItem::Progress(progress) => CliEvent::Progress(progress),
            }));
    }
}

impl Parser {
    /// Creates a parser for one run.
    #[must_use]
    pub fn new(format: Format, setup: &Setup) -> Self {
        let (reader, max) = match format {
            Format::Plain => (FormatParser::Plain, TEXT_LINE_BYTES_MAX),
            Format::Aider => (
                FormatParser::Aider(aider::Aider::default()),
                TEXT_LINE_BYTES_MAX,
            ),
            Format::GeminiStreamJson => {
                let gemini = gemini::Gemini::default();
                (FormatParser::Gemini(gemini), JSON_LINE_BYTES_MAX)
            }
            Format::OpencodeJson => {
                let opencode = opencode::Opencode::default();
                (FormatParser::Opencode(opencode), JSON_LINE_BYTES_MAX)
            }
            Format::ClaudeStreamJson => (FormatParser::Claude(Box::default()), JSON_LINE_BYTES_MAX),
            Format::CodexJson => (
                FormatParser::Codex(codex::Codex::default()),
                JSON_LINE_BYTES_MAX,
            ),
            Format::Acp => (
                FormatParser::Acp(acp::Acp::new(setup.is_resumed)),
                JSON_LINE_BYTES_MAX,
            ),
        };
        Self {
            lines: OutputLineSplitter::new(max),
            reader,
            scanner: Scanner::new(&setup.prompt),
            shown: Shown::default(),
            stderr: Stderr::new(setup.is_resumed),
        }
    }

    /// Processes the next bytes of the program's standard error.
    pub fn push_stderr(&mut self, bytes: &[u8]) -> Vec<CliEvent> {
        self.stderr.push(bytes)
    }

    /// Marks the prompt as sent: later output answers it. For a resumed `acp` session, earlier
    /// output is ignored.
    pub fn prompted(&mut self) {
        if let FormatParser::Acp(acp) = &mut self.reader {
            acp.prompted();
        }
    }

    /// Number of messages replayed so far while a session is being loaded.
    #[must_use]
    pub fn played_back(&self) -> u64 {
        match &self.reader {
            FormatParser::Acp(acp) => acp.played_back(),
            _ => 0,
        }
    }

    /// Processes the next bytes of the output.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<CliEvent> {
        let Self {
            lines,
            reader,
            scanner,
            shown,
            ..
        } = self;
        let mut sink = Sink {
            events: Vec::new(),
            scanner,
            shown,
        };
        lines.push(bytes, |line| reader.line(&line, &mut sink));
        sink.events
    }

    /// Latest request of goondan that the agent answered with a result, by its id in
    /// [`reply`](crate::reply); none for formats other than `acp`.
    #[must_use]
    pub fn answered(&self) -> Option<i64> {
        match &self.reader {
            FormatParser::Acp(acp) => acp.answered(),
            _ => None,
        }
    }

    pub fn end(&mut self) -> Vec<CliEvent> {
        let Self {
            lines,
            reader,
            scanner,
            shown,
            ..
        } = self;
        let mut sink = Sink {
            events: Vec::new(),
            scanner,
            shown,
        };
        lines.end(|line| reader.line(&line, &mut sink));
        sink.end_text();
        let mut events = sink.events;
        events.extend(self.stderr.end());
        events
    }
}

impl FormatParser {
    fn line(&mut self, line: &OutputLine<'_>, sink: &mut Sink<'_>) {
        let (bytes, skipped) = match line {
            OutputLine::Whole(bytes) => (*bytes, 0),
            OutputLine::Cut(bytes, skipped) => (*bytes, *skipped),
        };
        let text = text_of(bytes);
        let is_text = matches!(self, Self::Plain | Self::Aider(_));
        if let Self::Aider(aider) = self {
            aider.line(&text, sink);
        }
        if is_text {
            sink.own_text(&format!("{text}\n"));
        } else if skipped == 0 {
            self.json_line(&text, sink);
            return;
        }
        if skipped > 0 {
            let read = if is_text { 0 } else { bytes.len() as u64 };
            sink.push(CliEvent::Skipped(skipped + read));
        }
    }

    fn json_line(&mut self, text: &str, sink: &mut Sink<'_>) {
        let text = text.trim();
        if text.is_empty() {
            return;
        }
        let read = serde_json::from_str(text)
            .ok()
            .filter(serde_json::Value::is_object);
        let is_known = read.is_some_and(|message| match self {
            Self::Plain | Self::Aider(_) => false,
            Self::Gemini(gemini) => gemini.message(&message, sink),
            Self::Opencode(opencode) => opencode.message(&message, sink),
            Self::Claude(claude) => claude.message(&message, sink),
            Self::Codex(codex) => codex.message(&message, sink),
            Self::Acp(acp) => acp.message(&message, sink),
        });
        if !is_known {
            let shown = text.chars().take(NOISE_CHARS_MAX).collect();
            sink.push(CliEvent::Noise(shown));
        }
    }
}

/// Reads a text field; empty if it is missing or not a text.
fn text<'v>(object: &'v serde_json::Value, name: &str) -> &'v str {
    object
        .get(name)
        .and_then(serde_json::Value::as_str)
        .unwrap_or_default()
}
