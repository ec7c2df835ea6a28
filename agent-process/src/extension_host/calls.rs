//! Calls of tools that modules have registered (`COMPAT-3`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Poll;

use goondan_clock::Instant;
use goondan_protocol::ids::StepId;
use tokio::sync::mpsc::UnboundedReceiver;

use super::host_output::MAX_ASKS;
use super::wire::{ExtensionHostRequest, MiddlewareAgentRequest};
use super::{ExtensionHost, HostEvent, MiddlewareRequest};
use crate::tool_call::ToolOutcome;
use crate::tools::ToolFault;
use crate::tools::extension_tools::{HostedCall, RegisteredTool, RegisteredTools};

#[derive(Debug)]
pub(super) struct HostedCalls {
    tools: Arc<RegisteredTools>,
    /// `None` if another host of the agent has it.
    receiver: Option<UnboundedReceiver<HostedCall>>,
    open: BTreeMap<u64, OpenCall>,
    last_id: u64,
}

#[derive(Debug)]
struct OpenCall {
    call: HostedCall,
    deadline: Instant,
}

impl HostedCalls {
    pub(super) fn of(tools: &Arc<RegisteredTools>) -> Self {
        Self {
            tools: Arc::clone(tools),
            receiver: tools.take_receiver(),
            open: BTreeMap::new(),
            last_id: 0,
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.open.values().map(|open| open.deadline).min()
    }

    /// Two futures: the next call, and the moment when the caller of an open call has dropped it.
    /// Cancel-safe.
    pub(super) fn news(
        &mut self,
    ) -> (
        impl Future<Output = Option<HostedCall>> + '_,
        impl Future<Output = ()> + '_,
    ) {
        let (receiver, open) = (&mut self.receiver, &mut self.open);
        let called = async move {
            match receiver {
                Some(receiver) => receiver.recv().await,
                None => None,
            }
        };
        let given_up = std::future::poll_fn(move |cx| {
            let mut waited_for = open.values_mut();
            match waited_for.any(|open| open.call.reply.poll_closed(cx).is_ready()) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        });
        (called, given_up)
    }

    /// The process is gone: fails all callers.
    pub(super) fn lose(&mut self) {
        self.open.clear();
    }
}

impl ExtensionHost {
    /// Offers the registered tools. Returns false if that fails, which ends the host.
    pub(super) fn offer(&mut self, tools: Vec<RegisteredTool>) -> bool {
        match self.calls.tools.offer(tools) {
            Ok(()) => true,
            Err((extension, why)) => {
                self.hear_unfit(&extension, "E_EXT_INIT", &why);
                false
            }
        }
    }

    pub(super) fn begin_call(&mut self, call: HostedCall) {
        let Some(process) = &mut self.process else {
            // The closed channel notifies the caller.
            return;
        };
        self.calls.last_id += 1;
        let id = self.calls.last_id;
        let invocation = &call.invocation;
        let site = invocation.site.as_ref();
        process.say(&ExtensionHostRequest::Call {
            id,
            tool_name: &call.tool_name,
            tool_call_id: &invocation.call_id,
            step_id: site.map(|site| StepId::of_turn(&site.turn_id, site.key.step)),
            args: &invocation.args,
            work_dir: &self.surroundings.work_dir,
        });
        let module = self.modules.iter().find(|it| it.name == call.extension);
        let timeout = module.map(|module| module.timeout).unwrap_or_default();
        let deadline = Instant::now() + timeout;
        self.calls.open.insert(id, OpenCall { call, deadline });
    }

    pub(super) fn finish_call(&mut self, id: u64, outcome: ToolOutcome) {
        // A call that is not open was canceled.
        if let Some(open) = self.calls.open.remove(&id) {
            drop(open.call.reply.send(Ok(outcome)));
        }
    }

    /// Notifies modules of the calls whose callers have dropped them.
    pub(super) fn cancel_calls(&mut self) {
        let given_up = |open: &OpenCall| open.call.reply.is_closed();
        self.end_calls(given_up, "the call was canceled");
    }

    /// Ends the calls that exceed their time limit. A hanging module is ended with the next
    /// middleware.
    pub(super) fn end_late_calls(&mut self, now: Instant) {
        self.end_calls(|open| open.deadline <= now, "the call took too long");
    }

    fn end_calls(&mut self, is_over: impl Fn(&OpenCall) -> bool, reason: &str) {
        let over = self.calls.open.iter().filter(|(_, open)| is_over(open));
        let over: Vec<u64> = over.map(|(id, _)| *id).collect();
        for id in over {
            if let Some(process) = &mut self.process {
                process.say(&ExtensionHostRequest::Cancel { id, reason });
            }
            let Some(open) = self.calls.open.remove(&id) else {
                continue;
            };
            let extension = &open.call.extension;
            let module = self.modules.iter().find(|it| it.name == *extension);
            let timeout_ms = module.map_or(0, |module| module.timeout.as_millis());
            let message = format!(
                "the call ran longer than {timeout_ms} ms; ask for less at once, or raise `timeoutSeconds` of the \
                 extension `{extension}`"
            );
            let fault = ToolFault::new("E_TOOL_TIMEOUT", message);
            drop(open.call.reply.send(Err(fault)));
        }
    }

    pub(super) fn hear_ask_of_call(
        &mut self,
        id: u64,
        call: u64,
        place: u32,
        asked: MiddlewareAgentRequest,
    ) {
        let refuse = |host: &mut Self, code: &str, message: String| {
            host.answer(id, Err((code.to_owned(), message)));
        };
        let site = self.calls.open.get(&call);
        let Some(site) = site.and_then(|open| open.call.invocation.site.clone()) else {
            let message = "other agents cannot be reached from here".to_owned();
            return refuse(self, "E_UNAVAILABLE", message);
        };
        if place > MAX_ASKS {
            let message = format!("a call asks other agents at most {MAX_ASKS} times");
            return refuse(self, "E_TOO_MANY_QUESTIONS", message);
        }
        let index = u32::try_from(site.key.index).unwrap_or(u32::MAX);
        // The first number of a call is reserved for its own question, as for tool modules.
        let of_call = index.saturating_add(1).saturating_mul(MAX_ASKS + 1);
        self.host_events
            .push_back(HostEvent::Ask(MiddlewareRequest {
                id,
                step: Some(site.key.step),
                place: of_call.saturating_add(place),
                asked,
            }));
    }
}
