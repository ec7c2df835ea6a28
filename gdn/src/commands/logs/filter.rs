//! Filter for log lines. The daemon applies the same rule to the lines in its memory.

use std::borrow::Cow;

use goondan_protocol::control::FollowLogs;
use goondan_protocol::ids::WorkspaceId;
use serde::Deserialize;

/// Conditions a line must meet to be shown.
#[derive(Debug, Default)]
pub(super) struct Filter {
    /// Workspaces to include; all if none.
    pub(super) workspaces: Option<Vec<WorkspaceId>>,
    /// Connection whose connector logged the line.
    pub(super) connection: Option<String>,
    pub(super) chosen: FollowLogs,
}

/// Field of a line that the daemon does not filter by.
#[derive(Deserialize)]
struct ConnectionField<'l> {
    #[serde(borrow)]
    connection: Option<Cow<'l, str>>,
}

impl Filter {
    /// True if a line is shown. A line that is not a JSON object was not logged by goondan.
    pub(super) fn takes(&self, line: &str) -> bool {
        self.takes_connection(line) && self.takes_rest(line)
    }

    /// True if a line is of the connection.
    pub(super) fn takes_connection(&self, line: &str) -> bool {
        let Some(wanted) = &self.connection else {
            return true;
        };
        serde_json::from_str::<ConnectionField<'_>>(line)
            .is_ok_and(|found| found.connection.as_deref() == Some(wanted.as_str()))
    }

    fn takes_rest(&self, line: &str) -> bool {
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
    fn log_line_is_shown_only_if_it_matches_all_filters() {
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
            connection: None,
        };
        let hook = Filter {
            connection: Some("hook".to_owned()),
            ..Filter::default()
        };
        assert!(hook.takes(r#"{"connection":"hook"}"#));
        assert!(!hook.takes(r#"{"connection":"other"}"#) && !hook.takes(line));
        assert!(narrow(&["v", "w"], "clerk").takes(line));
        assert!(!narrow(&["v"], "clerk").takes(line) && !narrow(&["w"], "buyer").takes(line));
        assert!(!narrow(&["w"], "clerk").takes(r#"{"workspaceId":"w"}"#));
    }
}
