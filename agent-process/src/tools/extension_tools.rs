//! Tools that modules of extensions register with `api.tools.register` (`COMPAT-3`). They run in
//! the extension host, which the process loop owns; calls reach it through a channel.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use futures_util::future::BoxFuture;
use goondan_protocol::definition::CatalogEntry;
use goondan_protocol::ids::{ExtensionName, ToolName};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::fault::ToolFault;
use super::invocation::ToolInvocation;
use super::schema::ArgumentSchema;
use crate::tool_call::{CallRejection, ToolOutcome};

/// Maximum number of tools that an agent's extensions register.
const MAX_REGISTERED_TOOLS: usize = 256;

/// A tool registered by a module.
#[derive(Debug, Deserialize)]
pub(crate) struct RegisteredTool {
    pub(crate) extension: ExtensionName,
    /// Full name under which the model calls it.
    name: String,
    #[serde(default)]
    description: String,
    /// JSON Schema of its arguments.
    parameters: Value,
}

/// An in-flight call to the module.
#[derive(Debug)]
pub(crate) struct HostedCall {
    pub(crate) extension: ExtensionName,
    pub(crate) tool_name: String,
    pub(crate) invocation: ToolInvocation,
    pub(crate) reply: oneshot::Sender<Result<ToolOutcome, ToolFault>>,
}

/// Tools that an agent's extensions have registered.
#[derive(Debug)]
pub(crate) struct RegisteredTools {
    /// True if the agent has extensions that may register tools.
    may_register: bool,
    /// Names of the agent's other tools.
    taken: BTreeSet<String>,
    /// `None` until the extensions have registered.
    offered: Mutex<Option<Arc<[ExtensionTool]>>>,
    calls: mpsc::UnboundedSender<HostedCall>,
    /// Receiver of calls, until the extension host takes it.
    receiver: Mutex<Option<mpsc::UnboundedReceiver<HostedCall>>>,
}

#[derive(Debug)]
struct ExtensionTool {
    extension: ExtensionName,
    entry: CatalogEntry,
    schema: OnceLock<Result<ArgumentSchema, String>>,
}

impl RegisteredTools {
    /// Creates an empty registry. `taken` are the names of the agent's other tools.
    pub(super) fn new(may_register: bool, taken: BTreeSet<String>) -> Self {
        let (calls, receiver) = mpsc::unbounded_channel();
        Self {
            may_register,
            taken,
            offered: Mutex::default(),
            calls,
            receiver: Mutex::new(Some(receiver)),
        }
    }

    /// Takes the receiver of calls; `None` after the first time.
    pub(crate) fn take_receiver(&self) -> Option<mpsc::UnboundedReceiver<HostedCall>> {
        let mut receiver = self.receiver.lock().unwrap_or_else(PoisonError::into_inner);
        receiver.take()
    }

    fn offered(&self) -> Option<Arc<[ExtensionTool]>> {
        let offered = self.offered.lock().unwrap_or_else(PoisonError::into_inner);
        offered.clone()
    }

    /// Replaces the offered tools.
    ///
    /// # Errors
    ///
    /// The extension that registers a tool that cannot be offered, and the reason.
    pub(crate) fn offer(&self, tools: Vec<RegisteredTool>) -> Result<(), (ExtensionName, String)> {
        let too_many = tools.len() > MAX_REGISTERED_TOOLS;
        let mut offered: Vec<ExtensionTool> = Vec::with_capacity(tools.len());
        for tool in tools {
            let RegisteredTool {
                extension,
                name,
                description,
                parameters,
            } = tool;
            if too_many {
                let why = format!(
                    "extensions can register at most {MAX_REGISTERED_TOOLS} tools in total"
                );
                return Err((extension, why));
            }
            if self.taken.contains(&name) {
                let why = format!(
                    "the agent already has a tool `{name}`; register it under another name"
                );
                return Err((extension, why));
            }
            let name = match ToolName::new(name) {
                Ok(name) => name,
                Err(error) => return Err((extension, error.to_string())),
            };
            let entry = CatalogEntry {
                name,
                description,
                parameters,
            };
            offered.push(ExtensionTool {
                extension,
                entry,
                schema: OnceLock::new(),
            });
        }
        *self.offered.lock().unwrap_or_else(PoisonError::into_inner) = Some(offered.into());
        Ok(())
    }

    /// Catalog entries of the offered tools.
    pub(super) fn entries(&self) -> Vec<CatalogEntry> {
        let offered = self.offered();
        let offered = offered.iter().flat_map(|offered| offered.iter());
        offered.map(|offered| offered.entry.clone()).collect()
    }

    /// True if the tool is registered here, or could still be registered.
    pub(super) fn may_have(&self, name: &str) -> bool {
        match self.offered() {
            None => self.may_register,
            Some(offered) => offered.iter().any(|it| it.entry.name.as_str() == name),
        }
    }

    /// Checks a call against the registered tools.
    pub(super) fn check(&self, name: &str, input: &Value) -> Result<(), CallRejection> {
        let offered = self.offered();
        let mut offered = offered.iter().flat_map(|offered| offered.iter());
        let Some(tool) = offered.find(|it| it.entry.name.as_str() == name) else {
            return Ok(());
        };
        let schema = tool
            .schema
            .get_or_init(|| ArgumentSchema::new(&tool.entry.parameters));
        let checked = match schema {
            Ok(schema) => schema.check(input),
            Err(reason) => Err(format!("its schema is invalid: {reason}")),
        };
        checked.map_err(|faults| CallRejection::InvalidArgs(format!("{name}: {faults}")))
    }

    /// Runs a call in the module that registered the tool.
    pub(super) fn run(&self, name: &str, call: ToolInvocation) -> BoxFuture<'static, ToolOutcome> {
        let offered = self.offered();
        let mut offered = offered.iter().flat_map(|offered| offered.iter());
        let Some(tool) = offered.find(|it| it.entry.name.as_str() == name) else {
            let message = format!("no extension of this agent has registered `{name}`");
            let fault = ToolFault::new("E_TOOL_NOT_IN_CATALOG", message);
            return Box::pin(std::future::ready(fault.into()));
        };
        if let Err(misfit) = self.check(name, &call.args) {
            return Box::pin(std::future::ready(ToolFault::from(misfit).into()));
        }
        let (reply, answer) = oneshot::channel();
        let call = HostedCall {
            extension: tool.extension.clone(),
            tool_name: name.to_owned(),
            invocation: call,
            reply,
        };
        let sent = self.calls.send(call);
        Box::pin(async move {
            let lost = || ToolFault::new("E_TOOL_CRASHED", "the process of the extensions is gone");
            let answered = match sent {
                Ok(()) => answer.await.unwrap_or_else(|_| Err(lost())),
                Err(_) => Err(lost()),
            };
            answered.unwrap_or_else(ToolOutcome::from)
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(name: &str) -> RegisteredTool {
        RegisteredTool {
            extension: "memo".parse().unwrap(),
            name: name.to_owned(),
            description: "Remembers.".to_owned(),
            parameters: json!({"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}),
        }
    }

    fn tools() -> RegisteredTools {
        RegisteredTools::new(true, BTreeSet::from(["bash__exec".to_owned()]))
    }

    #[test]
    fn compat_3_unregistered_names_are_assumed_to_be_module_tools() {
        let registered = tools();
        assert!(registered.may_have("memo__save"));
        assert_eq!(registered.check("memo__save", &json!({})), Ok(()));
        registered.offer(vec![tool("memo__save")]).unwrap();
        assert!(registered.may_have("memo__save"));
        assert!(!registered.may_have("memo__other"));
        let misfit = registered.check("memo__save", &json!({})).unwrap_err();
        assert!(misfit.to_string().contains("/text"), "{misfit}");
        assert!(!RegisteredTools::new(false, BTreeSet::new()).may_have("memo__save"));
    }

    #[test]
    fn compat_3_taken_or_invalid_tool_name_is_rejected() {
        for (name, why) in [("bash__exec", "already"), ("a b", "tool name")] {
            let registered = tools();
            let (extension, told) = registered.offer(vec![tool(name)]).unwrap_err();
            assert_eq!(extension.as_str(), "memo");
            assert!(told.contains(why), "{told}");
            assert!(registered.entries().is_empty());
        }
        let many = (0..=MAX_REGISTERED_TOOLS).map(|at| tool(&format!("t{at}")));
        assert!(tools().offer(many.collect()).is_err());
    }
}
