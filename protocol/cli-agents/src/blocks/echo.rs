//! Echoes of a prompt: programs print their prompt, which itself explains the blocks (`PROTO-1`).

use crate::limits::ECHO_LINES_MIN;

/// Removes the echo of a prompt from an agent's output, once: a run of the prompt's lines from the
/// first on, ignoring blank lines.
///
/// Lines that may begin an echo are held until it is certain, and released if it is none.
#[derive(Debug)]
pub(super) struct Echo {
    /// The prompt's lines without blank ones; empty once the echo is complete.
    prompt: Vec<String>,
    /// Number of consecutive lines matched.
    met: usize,
    held: Vec<String>,
}

impl Echo {
    pub(super) fn new(prompt: &str) -> Self {
        let lines = prompt
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty());
        Self {
            prompt: lines.map(str::to_owned).collect(),
            met: 0,
            held: Vec::new(),
        }
    }

    /// Processes the next line; returns the lines that are certainly the agent's own.
    pub(super) fn line(&mut self, line: String) -> Vec<String> {
        let shown = line.trim();
        let is_next = self.prompt.get(self.met).is_some_and(|next| next == shown);
        if is_next || (self.met > 0 && shown.is_empty()) {
            self.met += usize::from(is_next);
            self.held.push(line);
            if self.met >= ECHO_LINES_MIN.min(self.prompt.len()) {
                self.held.clear();
            }
            if self.met == self.prompt.len() {
                self.prompt.clear();
                self.met = 0;
            }
            return Vec::new();
        }
        let mut own = self.end();
        if self.prompt.first().is_some_and(|first| first == shown) {
            // An echo may begin here.
            own.extend(self.line(line));
        } else {
            own.push(line);
        }
        own
    }

    /// Ends the text: held lines are the agent's own.
    pub(super) fn end(&mut self) -> Vec<String> {
        self.met = 0;
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(prompt: &str, text: &str) -> String {
        let mut echo = Echo::new(prompt);
        let mut own: Vec<String> = Vec::new();
        for line in text.lines() {
            own.extend(echo.line(line.to_owned()));
        }
        own.extend(echo.end());
        own.join("|")
    }

    #[test]
    fn proto_1_echoed_prompt_is_not_agent_output() {
        let prompt = "Do it.\n\nSay:\n[ERROR]\nwhen lost\n";
        assert_eq!(own(prompt, &format!("user\n{prompt}done")), "user|done");
        assert_eq!(
            own(prompt, "Do it.\nSay:\n[ERROR]\n... cut\nx"),
            "... cut|x"
        );
        assert_eq!(own(prompt, "Do it.\nSay:\nno"), "Do it.|Say:|no");
        assert_eq!(own(prompt, "Do it.\nDo it.\nSay:\n[ERROR]\nq"), "Do it.|q");
        assert_eq!(
            own(prompt, &format!("{prompt}{prompt}")),
            "Do it.||Say:|[ERROR]|when lost"
        );
        assert_eq!(own("One line", "One line\nOne line"), "One line");
        assert_eq!(own("", "x\n\ny"), "x||y");
    }
}
