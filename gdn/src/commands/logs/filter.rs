//! Which lines are shown. The daemon chooses by the same rules among those it still has.

use goondan_protocol::JsonObject;
use goondan_protocol::ids::{AgentName, WorkspaceId};
use goondan_protocol::trace::TraceId;
use serde_json::Value;

/// What a line must say to be shown.
#[derive(Debug, Default)]
pub(super) struct Filter {
    /// One of these workspaces; any line if none is said.
    pub(super) workspaces: Option<Vec<WorkspaceId>>,
    pub(super) agent: Option<AgentName>,
    pub(super) trace_id: Option<TraceId>,
}

impl Filter {
    /// Whether a line is shown. One that is no JSON object is none of goondan's.
    pub(super) fn takes(&self, line: &str) -> bool {
        let Ok(fields) = serde_json::from_str::<JsonObject>(line) else {
            return false;
        };
        let field = |name: &str| fields.get(name).and_then(Value::as_str);
        let is_of_workspace = self.workspaces.as_ref().is_none_or(|wanted| {
            let id = field("workspaceId");
            wanted.iter().any(|wanted| Some(wanted.as_str()) == id)
        });
        let agent = self.agent.as_ref().map(AgentName::as_str);
        let trace_id = self.trace_id.map(|id| id.to_string());
        is_of_workspace
            && (agent.is_none() || agent == field("agentName"))
            && (trace_id.is_none() || trace_id.as_deref() == field("traceId"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_shown_if_it_says_all_that_is_asked_for() {
        let line = r#"{"message":"m","workspaceId":"w","agentName":"clerk","traceId":"4bf92f3577b34da6a3ce929d0e0e4736"}"#;
        let all = Filter::default();
        assert!(all.takes(line) && !all.takes("torn {") && !all.takes("[]"));
        let narrow = |workspace: &str, agent: &str| Filter {
            workspaces: Some(vec![WorkspaceId::new(workspace).unwrap()]),
            agent: Some(AgentName::new(agent).unwrap()),
            trace_id: Some("4bf92f3577b34da6a3ce929d0e0e4736".parse().unwrap()),
        };
        assert!(narrow("w", "clerk").takes(line));
        assert!(!narrow("v", "clerk").takes(line) && !narrow("w", "buyer").takes(line));
        assert!(!narrow("w", "clerk").takes(r#"{"workspaceId":"w"}"#));
    }
}
