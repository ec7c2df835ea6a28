//! `tool-search`: offers the model only the tools it has searched for.
//!
//! The search itself is a tool ([`crate::tools::tool_search`]) whose results are part of the
//! conversation. The tools they name are offered from the next step on and stored in the state. A
//! turn interrupted by a crash reads them again from the recorded results.
//!
//! In the contract of 0.0.3, all tools are offered until a search finds some, and each search
//! replaces the findings of the previous one.

use std::collections::BTreeSet;

use goondan_protocol::base_package::BaseContract;
use goondan_protocol::message::{Message, MessageSource};
use serde_json::{Value, json};

use super::context::ExtensionContext;
use super::extension::Extension;
use crate::tools::tool_search::names_found;

/// Maximum number of found tools that stay offered. The oldest findings are dropped first.
const FOUND_TOOLS_MAX: usize = 64;

/// Key in the stored state.
const FOUND: &str = "found";

/// Offers some tools always, and others once they are found.
#[derive(Debug)]
pub(super) struct ToolSearch {
    /// Full name of the search tool.
    tool_name: String,
    always: BTreeSet<String>,
    /// True if found tools stay offered in later turns.
    is_kept: bool,
    /// Found tools, the latest last.
    found: Vec<String>,
    contract: BaseContract,
}

impl ToolSearch {
    pub(super) fn new(tool_name: String, always: Vec<String>, is_kept: bool) -> Self {
        Self {
            tool_name,
            is_kept,
            always: always.into_iter().collect(),
            found: Vec::new(),
            contract: BaseContract::Own,
        }
    }

    /// Adds the tools found by searches of the running turn.
    fn look(&mut self, context: &mut ExtensionContext<'_>) {
        let latest = context.conversation.messages().rev().filter_map(Result::ok);
        let of_turn = latest.take_while(|message| context.is_of_turn(message));
        let mut results: Vec<Vec<String>> = of_turn
            .filter_map(|message| found_by(&message, &self.tool_name))
            .collect();
        results.reverse();
        let before = self.found.clone();
        if !self.contract.is_own() && !results.is_empty() {
            self.found.clear();
            results.drain(..results.len().saturating_sub(1));
        }
        for name in results.into_iter().flatten() {
            self.found.retain(|other| *other != name);
            self.found.push(name);
        }
        let surplus = self.found.len().saturating_sub(FOUND_TOOLS_MAX);
        self.found.drain(..surplus);
        if self.is_kept && self.found != before {
            context.set_state(json!({ FOUND: self.found }));
        }
    }
}

impl Extension for ToolSearch {
    fn set_contract(&mut self, contract: BaseContract) {
        self.contract = contract;
    }

    fn begin_turn(&mut self, context: &mut ExtensionContext<'_>) {
        let kept = context.state().filter(|_| self.is_kept);
        let found = kept.and_then(|state| state.get(FOUND));
        let found = found.and_then(Value::as_array).into_iter().flatten();
        self.found = found
            .filter_map(|name| name.as_str().map(str::to_owned))
            .collect();
        self.look(context);
    }

    fn before_step(&mut self, context: &mut ExtensionContext<'_>) {
        self.look(context);
    }

    fn why_not_offered(&self, tool_name: &str) -> Option<String> {
        // In 0.0.3, only the stored findings limited the tools.
        let is_limited = self.contract.is_own() || (self.is_kept && !self.found.is_empty());
        let is_offered = !is_limited
            || tool_name == self.tool_name
            || self.always.contains(tool_name)
            || self.found.iter().any(|name| name == tool_name);
        let why = || {
            format!(
                "`{tool_name}` is not among the tools you are offered; look for it with \
                 `{}` first",
                self.tool_name
            )
        };
        (!is_offered).then(why)
    }
}

/// The tools that a message names; `None` if it is not a search result.
fn found_by(message: &Message, search: &str) -> Option<Vec<String>> {
    let is_search = matches!(&message.source, MessageSource::Tool { tool_name, .. }
        if tool_name.as_str() == search);
    if !is_search {
        return None;
    }
    let results = message.data.content.tool_results().into_iter();
    let mut found = results.filter(|result| !result.is_error).peekable();
    found.peek()?;
    Some(found.flat_map(|result| names_found(&result.text)).collect())
}
