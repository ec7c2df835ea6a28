//! `aider --no-pretty`: human-readable text, with a line that reports a message's usage.

use goondan_protocol::usage::{MicroUsd, Usage};

use super::Sink;
use super::limit_text::reset_of;
use crate::event::CliEvent;
use crate::failure::is_permanent;
use crate::tool::changed_file;
use crate::usage::{Counter, UsageReport, dollars};

/// Reads the lines of one run.
#[derive(Debug, Default)]
pub(super) struct Aider {
    usage: Usage,
    cost: MicroUsd,
}

impl Aider {
    /// Handles a line, which is also part of the text.
    pub(super) fn line(&mut self, line: &str, sink: &mut Sink<'_>) {
        if let Some(told) = line.strip_prefix("Tokens: ") {
            self.took(told, sink);
        } else if let Some(path) = line.strip_prefix("Applied edit to ") {
            sink.push(CliEvent::FileChanged(changed_file(path, String::new())));
        } else if line.starts_with("litellm.") {
            sink.push(match reset_of(line) {
                Some(reset) => CliEvent::RateLimit(reset),
                None if is_permanent(line) => CliEvent::Permanent(line.to_owned()),
                None => CliEvent::Error(line.to_owned()),
            });
        }
    }

    /// `1.2k sent, 300 cache hit, 55 received. Cost: $0.0012 message, $0.0034 session.`
    fn took(&mut self, told: &str, sink: &mut Sink<'_>) {
        let (tokens, cost) = told.split_once(" Cost: ").unwrap_or((told, ""));
        let mut message = Usage::default();
        for part in tokens.trim_end_matches('.').split(", ") {
            let Some((number, what)) = part.split_once(' ') else {
                continue;
            };
            let Some(number) = number_of(number) else {
                continue;
            };
            match what {
                "sent" => message.input_tokens = number,
                "received" => message.output_tokens = number,
                "cache hit" => message.cache_read_tokens = number,
                "cache write" => message.cache_write_tokens = number,
                _ => {}
            }
        }
        self.usage.add(&message);
        let dollar = cost
            .strip_prefix('$')
            .and_then(|cost| cost.split(' ').next());
        let cost = dollar.and_then(|cost| cost.parse().ok()).and_then(dollars);
        self.cost = self.cost.plus(cost.unwrap_or_default());
        sink.push(CliEvent::Usage(UsageReport {
            counter: Counter::Run,
            usage: self.usage,
            cost: (self.cost.0 > 0).then_some(self.cost),
            session: None,
        }));
    }
}

/// Parses a rounded number as shown to people: `55`, `1.2k`, `12k`, `3.4M`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the number is finite, not negative and below the bound"
)]
fn number_of(text: &str) -> Option<u64> {
    const NUMBER_MAX: f64 = 1e12;
    let text = text.replace(',', "");
    let (digits, factor) = if let Some(digits) = text.strip_suffix('k') {
        (digits, 1e3)
    } else if let Some(digits) = text.strip_suffix('M') {
        (digits, 1e6)
    } else {
        (&*text, 1.0)
    };
    let number = digits.parse::<f64>().ok()? * factor;
    (0.0..=NUMBER_MAX)
        .contains(&number)
        .then(|| number.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_4_numbers_for_people_are_read() {
        let read = ["55", "1.2k", "12k", "3.4M", "1,234", "x", "-1", "1e99"].map(number_of);
        let expected = [
            Some(55),
            Some(1200),
            Some(12_000),
            Some(3_400_000),
            Some(1234),
            None,
            None,
            None,
        ];
        assert_eq!(read, expected);
    }
}
