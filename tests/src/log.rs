//! Log stream of a daemon: read as it arrives, with every line checked (`LOG-1`…`LOG-3`).

use std::io::{BufRead as _, BufReader, Read};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use serde_json::Value;

use crate::PATIENCE;
use crate::misbehaviour::FLOOD_MARK;

/// Lines of the log that are shown when a test fails.
const SHOWN_LINES: usize = 120;

/// Log of a daemon so far.
#[derive(Debug, Default)]
pub struct Log {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    lines: Vec<Value>,
    /// Lines of a flood are counted, not kept.
    flood_lines: usize,
    faults: Vec<String>,
    /// The last line, if it has no newline.
    cut: Option<String>,
    is_over: bool,
    is_paused: bool,
    is_drained: bool,
}

impl Log {
    /// Reads `stream` to its end, in a separate thread.
    pub fn collect(stream: impl Read + Send + 'static) -> (Arc<Self>, JoinHandle<()>) {
        let log = Arc::new(Self::default());
        let reader = log.clone();
        let thread = std::thread::spawn(move || {
            let mut stream = BufReader::with_capacity(1 << 20, stream);
            let mut line = Vec::new();
            while stream.read_until(b'\n', &mut line).unwrap() > 0 {
                reader.take(&line);
                line.clear();
                if !reader.wait_while_paused() {
                    drop(std::io::copy(&mut stream, &mut std::io::sink()));
                }
            }
            reader.state.lock().unwrap().is_over = true;
            reader.changed.notify_all();
        });
        (log, thread)
    }

    fn take(&self, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        let mut state = self.state.lock().unwrap();
        match text.strip_suffix('\n') {
            None => state.cut = Some(text.into_owned()),
            Some(text) => match check_line(text) {
                Ok(line) if message(&line).starts_with(FLOOD_MARK) => state.flood_lines += 1,
                Ok(line) => state.lines.push(line),
                Err(fault) => state.faults.push(fault),
            },
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Waits while paused. Returns true if the following lines must be checked.
    fn wait_while_paused(&self) -> bool {
        let state = self.state.lock().unwrap();
        let is_paused = |state: &mut State| state.is_paused;
        let state = self.changed.wait_while(state, is_paused).unwrap();
        !state.is_drained
    }

    /// Stops checking lines but keeps reading, at almost no cost, for measurements.
    pub fn drain(&self) {
        self.state.lock().unwrap().is_drained = true;
    }

    /// Stops reading after the next line, like a slow reader.
    pub fn pause(&self) {
        self.state.lock().unwrap().is_paused = true;
    }

    pub fn resume(&self) {
        self.state.lock().unwrap().is_paused = false;
        self.changed.notify_all();
    }

    /// All lines so far, except flood lines.
    #[must_use]
    pub fn lines(&self) -> Vec<Value> {
        self.state.lock().unwrap().lines.clone()
    }

    /// The lines with this message.
    #[must_use]
    pub fn saying(&self, text: &str) -> Vec<Value> {
        let mut lines = self.lines();
        lines.retain(|line| message(line) == text);
        lines
    }

    /// The latest matching line.
    #[must_use]
    pub fn latest(&self, fits: impl Fn(&Value) -> bool) -> Option<Value> {
        let state = self.state.lock().unwrap();
        state.lines.iter().rev().find(|line| fits(line)).cloned()
    }

    #[must_use]
    pub fn flood_lines(&self) -> usize {
        self.state.lock().unwrap().flood_lines
    }

    /// Waits for a line, and returns the first match.
    #[track_caller]
    pub fn wait_for(&self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        self.wait_for_after(0, what, fits)
    }

    /// Waits for a line after the first `skip` ones.
    #[track_caller]
    pub fn wait_for_after(&self, skip: usize, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        let mut seen = skip;
        let mut state = self.state.lock().unwrap();
        loop {
            if let Some(line) = state.lines.iter().skip(seen).find(|line| fits(line)) {
                return line.clone();
            }
            seen = seen.max(state.lines.len());
            let left = deadline.saturating_duration_since(Instant::now());
            if state.is_over || left.is_zero() {
                drop(state);
                panic!("the log does not get this line: {what}");
            }
            state = self.changed.wait_timeout(state, left).unwrap().0;
        }
    }

    /// Final checks.
    ///
    /// # Panics
    ///
    /// If a line was invalid, or if the last one was cut although the daemon was not killed.
    pub fn check(&self, was_killed: bool) {
        let state = self.state.lock().unwrap();
        assert!(
            state.faults.is_empty(),
            "faulty log lines: {:#?}",
            state.faults
        );
        assert!(
            was_killed || state.cut.is_none(),
            "the last line is cut: {:?}",
            state.cut
        );
    }

    /// Prints the latest lines, and earlier warnings and errors, to help find the cause of a failed
    /// test.
    pub fn show(&self) {
        let state = self
            .state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let skipped = state.lines.len().saturating_sub(SHOWN_LINES);
        let (earlier, latest) = state.lines.split_at(skipped);
        let told = earlier.iter().rev().filter(|line| line["level"] != "info");
        let told: Vec<_> = told.take(SHOWN_LINES).collect();
        eprintln!("--- the daemon's log, {skipped} earlier lines left out but those that warn:");
        for line in told.into_iter().rev().chain(latest) {
            eprintln!("{line}");
        }
        if !state.faults.is_empty() {
            eprintln!("--- faulty lines: {:#?}", state.faults);
        }
    }
}

#[must_use]
pub fn message(line: &Value) -> &str {
    line["message"].as_str().unwrap_or_default()
}

/// Parses one line and checks its required fields.
///
/// # Errors
///
/// The problem found.
pub fn check_line(text: &str) -> Result<Value, String> {
    let fault = |problem: &str| {
        let shown: String = text.chars().take(300).collect();
        Err(format!("{problem}: {shown}"))
    };
    let line: Value = match serde_json::from_str(text) {
        Ok(line) => line,
        Err(error) => return fault(&error.to_string()),
    };
    if !line.is_object() {
        return fault("it is not an object");
    }
    let mut texts = vec!["timestamp", "level", "message", "process", "traceId"];
    match line["process"].as_str() {
        Some("agent") => texts.extend(["workspaceId", "agentName", "instanceKey"]),
        // A connector process serves either a connection or a model.
        Some("connector") if line["model"].is_string() => texts.push("workspaceId"),
        Some("connector") => texts.extend(["workspaceId", "connection"]),
        Some("task") => texts.extend(["workspaceId", "taskId"]),
        Some("orchestrator") => {}
        Some("replica") => texts.push("node"),
        _ => return fault("it does not say which process wrote it"),
    }
    if let Some(missing) = texts.iter().find(|name| !line[**name].is_string()) {
        return fault(&format!("`{missing}` is missing"));
    }
    if !line["pid"].is_u64() {
        return fault("`pid` is missing");
    }
    let trace = line["traceId"].as_str().unwrap_or_default();
    if trace.len() != 32 || !trace.bytes().all(|b| b.is_ascii_hexdigit()) {
        return fault("`traceId` is not a trace id");
    }
    Ok(line)
}
