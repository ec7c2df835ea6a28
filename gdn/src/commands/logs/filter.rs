//! Which lines are shown. The daemon chooses by the same rule among those it still has.

use goondan_protocol::control::FollowLogs;
use goondan_protocol::ids::WorkspaceId;

/// What a line must say to be shown.
#[derive(Debug, Default)]
pub(super) struct Filter {
    /// One of these workspaces; any line if none is said.
    pub(super) workspaces: Option<Vec<WorkspaceId>>,
    /// Everything else.
    pub(super) chosen: FollowLogs,
}

impl Filter {
    /// Whether a line is shown. One that is no JSON object is none of goondan's.
    pub(super) fn takes(&self, line: &str) -> bool {
        let Some(workspaces) = &self.workspaces else {
            return line.starts_with('{') && self.chosen.takes(line.as_bytes());
        };
        workspaces.iter().any(|wanted| {
            let chosen = FollowLogs {
                workspace_id: Some(wanted.clone()),
                ..self.chosen.clone()
            };
            chosen.takes(line.as_bytes())
        })
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
        let narrow = |workspaces: &[&str], agent: &str| Filter {
            workspaces: Some(workspaces.iter().map(|id| id.parse().unwrap()).collect()),
            chosen: FollowLogs {
                agent: Some(agent.parse().unwrap()),
                trace_id: Some("4bf92f3577b34da6a3ce929d0e0e4736".parse().unwrap()),
                ..FollowLogs::default()
            },
        };
        assert!(narrow(&["v", "w"], "clerk").takes(line));
        assert!(!narrow(&["v"], "clerk").takes(line) && !narrow(&["w"], "buyer").takes(line));
        assert!(!narrow(&["w"], "clerk").takes(r#"{"workspaceId":"w"}"#));
    }
}
