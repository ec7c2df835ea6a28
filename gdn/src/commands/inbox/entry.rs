//! The text, fields or changed arguments of a decision, line by line and without a terminal.

use std::collections::VecDeque;

use goondan_protocol::approval::ApprovalScope;
use goondan_protocol::control::ApprovalDetail;
use goondan_protocol::question::FormField;
use serde_json::Value;

use super::decisions::{Choice, EnteredText};
use super::details::Subject;
use super::items::{InboxItem, Target};
use crate::commands::{call_arguments, question};
use crate::output::text;

/// A prompt that waits for a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::commands) struct Entry {
    wanted: Wanted,
    entered: EnteredText,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Wanted {
    Text {
        prompt: &'static str,
        is_required: bool,
    },
    /// The next field is the first.
    Fields(Box<FormField>, VecDeque<FormField>),
    /// Changes of the arguments so far.
    Arguments(Box<ApprovalDetail>, Value),
    Scope(Box<ApprovalDetail>),
}

/// State of an entry after a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::commands) enum EntryStep {
    /// Needs another line. The text is the reason why the last line does not fit.
    Ask(Entry, Option<String>),
    Done(EnteredText),
    /// Nothing is decided, for this reason if it is not obvious.
    Canceled(Option<&'static str>),
}

impl Entry {
    fn asking(wanted: Wanted) -> EntryStep {
        let entered = EnteredText::default();
        EntryStep::Ask(Self { wanted, entered }, None)
    }

    /// Starts to ask for the parts that a decision needs; done if it needs none.
    pub(in crate::commands) fn begin(
        item: &InboxItem,
        subject: &Subject,
        choice: Choice,
    ) -> EntryStep {
        let text = |prompt, is_required| {
            Self::asking(Wanted::Text {
                prompt,
                is_required,
            })
        };
        match (&item.target, choice, subject) {
            (Target::Question(_), Choice::Answer, Subject::Form(form)) => {
                let fields = form.fields().iter().cloned().collect();
                Self::next_field(EnteredText::default(), fields)
            }
            (_, Choice::Edit, Subject::Call(detail)) => {
                let input = detail.input.clone();
                Self::asking(Wanted::Arguments(detail.clone(), input))
            }
            (_, Choice::Always, Subject::Call(detail)) => {
                Self::asking(Wanted::Scope(detail.clone()))
            }
            (_, Choice::Answer, _) => text("Answer", true),
            (_, Choice::Rework, _) => text("Requested changes", true),
            (Target::Approval(_) | Target::Proposal(_) | Target::Changeset(..), Choice::No, _) => {
                text("Reason (optional)", false)
            }
            (Target::UnknownCall(..), Choice::Yes, _) => {
                text("Finding, for the audit log (optional)", false)
            }
            _ => EntryStep::Done(EnteredText::default()),
        }
    }

    fn next_field(entered: EnteredText, mut fields: VecDeque<FormField>) -> EntryStep {
        match fields.pop_front() {
            Some(field) => {
                let wanted = Wanted::Fields(Box::new(field), fields);
                EntryStep::Ask(Self { wanted, entered }, None)
            }
            None => EntryStep::Done(entered),
        }
    }

    /// The prompt, without punctuation at its end.
    pub(in crate::commands) fn prompt(&self) -> String {
        match &self.wanted {
            Wanted::Text { prompt, .. } => (*prompt).to_owned(),
            Wanted::Fields(field, _) => {
                let takes = question::takes(&field.takes);
                let default = field.default.as_ref().map(question::value_of);
                let hint = match (&default, field.required) {
                    (Some(default), _) => format!("{takes}; Enter: {default}"),
                    (None, true) => takes,
                    (None, false) => format!("{takes}; Enter: none"),
                };
                format!("{} ({hint})", field.name)
            }
            Wanted::Arguments(..) => "Change (NAME=VALUE; Enter: done)".to_owned(),
            Wanted::Scope(detail) => {
                let key = text::one_line(detail.approval.instance_key.as_str());
                format!("c: in conversation {key}; w: in the whole workspace; Enter: cancel")
            }
        }
    }

    /// Explanation of the prompt.
    pub(in crate::commands) fn note(&self) -> Option<String> {
        let Wanted::Scope(detail) = &self.wanted else {
            return None;
        };
        let info = &detail.approval;
        Some(format!(
            "From now on, {} of {} runs without asking if its arguments are exactly those above.",
            text::one_line(&info.tool_name),
            text::one_line(info.agent_name.as_str()),
        ))
    }

    /// Handles a line without surrounding spaces. An empty line takes the default value of a field, or leaves an
    /// optional field out.
    pub(in crate::commands) fn take(self, line: &str) -> EntryStep {
        let Self {
            wanted,
            mut entered,
        } = self;
        match wanted {
            Wanted::Text { is_required, .. } => {
                if is_required && line.is_empty() {
                    return EntryStep::Canceled(None);
                }
                line.clone_into(&mut entered.text);
                EntryStep::Done(entered)
            }
            Wanted::Fields(field, rest) => {
                let read = match (line.is_empty(), &field.default) {
                    (true, Some(default)) => Ok(Some(default.clone())),
                    (true, None) if field.required => return EntryStep::Canceled(None),
                    (true, None) => Ok(None),
                    (false, _) => field.read(line).map(Some),
                };
                match read {
                    Ok(value) => {
                        let value = value.map(|value| (field.name, value));
                        entered.fields.extend(value);
                        Self::next_field(entered, rest)
                    }
                    Err(problem) => {
                        let problem = format!("`{}` {problem}", field.name);
                        let wanted = Wanted::Fields(field, rest);
                        EntryStep::Ask(Self { wanted, entered }, Some(problem))
                    }
                }
            }
            Wanted::Arguments(detail, input) if line.is_empty() => {
                if input == detail.input {
                    return EntryStep::Canceled(Some("The arguments were not changed."));
                }
                entered.input = Some(input);
                EntryStep::Done(entered)
            }
            Wanted::Arguments(detail, input) => {
                let schema = detail.schema.as_ref();
                let assignment = call_arguments::parse_assignment(line);
                let changed = assignment.and_then(|it| call_arguments::set(&input, schema, &it));
                let checked = changed.and_then(|changed| {
                    call_arguments::check(&changed, schema)?;
                    Ok(changed)
                });
                let (input, problem) = match checked {
                    Ok(changed) => (changed, None),
                    Err(problem) => (input, Some(problem)),
                };
                let wanted = Wanted::Arguments(detail, input);
                EntryStep::Ask(Self { wanted, entered }, problem)
            }
            Wanted::Scope(_) => {
                entered.always = match line.to_lowercase().as_str() {
                    "c" => Some(ApprovalScope::Conversation),
                    "w" => Some(ApprovalScope::Workspace),
                    _ => return EntryStep::Canceled(None),
                };
                EntryStep::Done(entered)
            }
        }
    }
}
