//! Handles the output of the host.

use goondan_log::TEXT_BYTES_MAX;
use goondan_protocol::ids::ExtensionName;
use serde_json::Value;

use super::invocation::InvocationScope;
use super::looked_at::{notes_of, return_of};
use super::wire::{ExtensionHostReply, MiddlewareAgentRequest, MiddlewareResult, RawNotes};
use super::{ExtensionHost, HostEvent, MiddlewareRequest};
use crate::middleware::{InvocationId, MiddlewareEvent, Notes};
use crate::tools::host::process::{HostProcessEvent, log};
use crate::tools::host::wire::{HostLine, LogLevel, read_message};
use crate::tools::host::{MAX_LINE_BYTES, returned};

/// Maximum number of questions of one invocation to other agents.
pub(super) const MAX_ASKS: u32 = 99;

impl ExtensionHost {
    /// Handles an event of the process.
    pub(super) fn take(&mut self, happened: HostProcessEvent) {
        match happened {
            HostProcessEvent::Wrote => {}
            HostProcessEvent::Stdout(chunk) => {
                let Some(process) = &mut self.process else {
                    return;
                };
                for line in process.out_lines.take(&chunk, MAX_LINE_BYTES) {
                    self.hear(&line);
                }
            }
            HostProcessEvent::Stderr(chunk) => {
                let Some(process) = &mut self.process else {
                    return;
                };
                let lines = process.err_lines.take(&chunk, TEXT_BYTES_MAX);
                for line in &lines {
                    let text = line.text();
                    if !text.is_empty() {
                        process.hear_last_words(&text);
                    }
                }
                for line in &lines {
                    self.log_line(LogLevel::Warn, line);
                }
            }
            HostProcessEvent::Ended(how) => {
                let Some(mut process) = self.process.take() else {
                    return;
                };
                let levels = [LogLevel::Info, LogLevel::Warn];
                for (line, level) in process.begun_lines().into_iter().zip(levels) {
                    if let Some(line) = line {
                        self.log_line(level, &line);
                        process.hear_last_words(&line.text());
                    }
                }
                let last_words = process.last_words();
                let mut why = format!("the process of the agent's extensions ended ({how})");
                if let Some(at_work) = self.at_work() {
                    why.push_str(&format!(" while {at_work}"));
                }
                if !last_words.is_empty() {
                    why.push_str("; its last output:\n");
                    why.push_str(&last_words);
                }
                self.lose("E_EXT_CRASHED", why);
            }
        }
    }

    /// Handles one line of the host's standard output: a protocol message, or text for the log.
    fn hear(&mut self, line: &HostLine) {
        match read_message(&line.bytes) {
            Ok(ExtensionHostReply::Started) => self.begin_registration(),
            Ok(ExtensionHostReply::Registered { middlewares, tools }) => {
                if !self.offer(tools) {
                    return;
                }
                self.launching = None;
                self.middlewares = Some(middlewares.clone());
                self.host_events
                    .push_back(HostEvent::Assembled(middlewares));
            }
            Ok(ExtensionHostReply::Tools { tools }) => {
                self.offer(tools);
            }
            Ok(ExtensionHostReply::Result { id, output }) => self.finish_call(id, returned(output)),
            Ok(ExtensionHostReply::Error { id, thrown }) => self.finish_call(id, thrown.into()),
            Ok(ExtensionHostReply::AskOfCall {
                id,
                call,
                place,
                question,
            }) => self.hear_ask_of_call(id, call, place, question),
            Ok(ExtensionHostReply::Unfit {
                extension,
                code,
                message,
            }) => self.hear_unfit(&extension, &code, &message),
            Ok(ExtensionHostReply::Next {
                invocation,
                notes,
                tools,
                args,
            }) => self.hear_next(invocation, notes, tools, args),
            Ok(ExtensionHostReply::Leave {
                invocation,
                notes,
                result,
            }) => self.hear_left(invocation, notes, result),
            Ok(ExtensionHostReply::Throw {
                invocation,
                notes,
                code,
                message,
            }) => self.hear_thrown(invocation, notes, code, message),
            Ok(ExtensionHostReply::Ask {
                id,
                invocation,
                place,
                question,
            }) => self.hear_ask(id, invocation, place, question),
            Ok(ExtensionHostReply::Log {
                level,
                message,
                extension,
            }) => {
                let name = extension.as_deref().unwrap_or("extensions");
                log(&self.span, name, level, &message, None);
            }
            Err(_) => self.log_line(LogLevel::Info, line),
        }
    }

    /// A module could not be loaded or registered.
    pub(super) fn hear_unfit(&mut self, extension: &ExtensionName, code: &str, message: &str) {
        let entry = self.modules.iter().find(|module| module.name == *extension);
        let entry = entry.map(|module| module.entry.display().to_string());
        let entry = entry.unwrap_or_default();
        let what = match code {
            "E_EXT_LOAD" => "cannot be loaded",
            _ => "failed in `register`",
        };
        self.lose(
            code,
            format!("extension `{extension}` (`{entry}`) {what}: {message}"),
        );
    }

    /// Logs text that is not a protocol message.
    fn log_line(&self, level: LogLevel, line: &HostLine) {
        let text = line.text();
        if !text.is_empty() {
            log(&self.span, "extensions", level, &text, line.part);
        }
    }

    fn hear_next(
        &mut self,
        id: InvocationId,
        notes: RawNotes,
        tools: Option<Vec<String>>,
        args: Option<Value>,
    ) {
        let Some(invocation) = self.invocations.get_mut(&id) else {
            return;
        };
        invocation.deadline = None;
        let mut hidden = Vec::new();
        if let (InvocationScope::Step { offered, .. }, Some(tools)) = (&invocation.moment, tools) {
            hidden.extend(offered.iter().filter(|name| !tools.contains(name)).cloned());
        }
        let event = match notes_of(notes, &invocation.extension) {
            Ok(notes) => MiddlewareEvent::Next {
                notes,
                hidden,
                args,
            },
            Err(message) => {
                self.invocations.remove(&id);
                threw(message)
            }
        };
        self.host_events.push_back(acted(id, event));
    }

    fn hear_left(&mut self, id: InvocationId, notes: RawNotes, result: Option<MiddlewareResult>) {
        let Some(left) = self.invocations.remove(&id) else {
            return;
        };
        let made_result_of = match (&left.moment, &result) {
            (InvocationScope::Call { call_id, .. }, Some(_)) => Some(call_id.clone()),
            _ => None,
        };
        let event = match notes_of(notes, &left.extension) {
            Ok(notes) => MiddlewareEvent::Left {
                notes,
                returned: return_of(result, left.moment),
            },
            Err(message) => threw(message),
        };
        self.host_events.push_back(HostEvent::MiddlewareActed {
            invocation: id,
            event,
            made_result_of,
        });
    }

    /// A middleware failed.
    fn hear_thrown(
        &mut self,
        id: InvocationId,
        notes: RawNotes,
        code: Option<String>,
        message: String,
    ) {
        let Some(left) = self.invocations.remove(&id) else {
            return;
        };
        let event = match notes_of(notes, &left.extension) {
            Ok(notes) => MiddlewareEvent::Threw {
                notes,
                code,
                message,
            },
            Err(fault) => threw(fault),
        };
        self.host_events.push_back(acted(id, event));
    }

    fn hear_ask(
        &mut self,
        id: u64,
        invocation_id: InvocationId,
        place: u32,
        asked: MiddlewareAgentRequest,
    ) {
        let Some(invocation) = self.invocations.get_mut(&invocation_id) else {
            return;
        };
        let step = match &invocation.moment {
            InvocationScope::Turn { .. } => None,
            InvocationScope::Step { step, .. } => Some(*step),
            InvocationScope::Call { .. } => return,
        };
        invocation.asking += 1;
        invocation.deadline = None;
        let asks_from = invocation.asks_from;
        self.asks.insert(id, invocation_id);
        if place > MAX_ASKS {
            let message = format!("a middleware asks other agents at most {MAX_ASKS} times");
            self.answer(id, Err(("E_TOO_MANY_QUESTIONS".to_owned(), message)));
            return;
        }
        self.host_events
            .push_back(HostEvent::Ask(MiddlewareRequest {
                id,
                step,
                place: asks_from.saturating_add(place),
                asked,
            }));
    }

    /// Names the extensions whose middlewares are running.
    fn at_work(&self) -> Option<String> {
        let working = self
            .invocations
            .values()
            .filter(|invocation| invocation.deadline.is_some());
        let names: Vec<String> = working
            .map(|invocation| format!("extension `{}`", invocation.extension))
            .collect();
        if names.is_empty() && self.launching.is_some() {
            return Some("the extensions registered".to_owned());
        }
        (!names.is_empty()).then(|| format!("{} worked", names.join(", ")))
    }
}

fn acted(invocation: InvocationId, event: MiddlewareEvent) -> HostEvent {
    HostEvent::MiddlewareActed {
        invocation,
        event,
        made_result_of: None,
    }
}

fn threw(message: String) -> MiddlewareEvent {
    MiddlewareEvent::Threw {
        notes: Notes::default(),
        code: None,
        message,
    }
}
