//! Rows of the table views, in order.

use goondan_protocol::control::ProcessInfo;
use goondan_protocol::ids::InstanceKey;

use super::board::Board;
use super::view::View;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    /// Identifies the selected row when rows move.
    pub(super) id: String,
    pub(super) key: Option<InstanceKey>,
    /// Index in the list of processes, for a process.
    pub(super) process: Option<usize>,
}

impl Row {
    fn new(id: String, key: Option<InstanceKey>, process: Option<usize>) -> Self {
        Self { id, key, process }
    }
}

/// Rows of a view that contain the lowercase text.
pub(super) fn of(board: &Board, view: View, wanted: &str) -> Vec<Row> {
    match view {
        View::Conversations => {
            let keys = board.conversations_with(wanted).into_iter();
            keys.map(|key| Row::new(key.to_string(), Some(key), None))
                .collect()
        }
        View::Processes => processes(board, |info| has(info, wanted)),
        View::Overview => processes(board, |info| info.turn_id.is_some() && has(info, wanted)),
        View::Events | View::Budgets | View::Logs => Vec::new(),
    }
}

fn processes(board: &Board, is_meant: impl Fn(&ProcessInfo) -> bool) -> Vec<Row> {
    let processes = board.facts().into_iter();
    let processes = processes.flat_map(|facts| &facts.processes);
    let row = |(place, info): (usize, &ProcessInfo)| {
        let key = info.instance_key.as_ref();
        let of = key.map_or_else(String::new, ToString::to_string);
        let id = format!("{} {} {of}", info.role.as_str(), info.name);
        Row::new(id, key.cloned(), Some(place))
    };
    let meant = processes.enumerate().filter(|(_, info)| is_meant(info));
    meant.map(row).collect()
}

fn has(info: &ProcessInfo, wanted: &str) -> bool {
    let has = |text: &str| text.to_lowercase().contains(wanted);
    let key = info.instance_key.as_ref();
    wanted.is_empty() || has(&info.name) || key.is_some_and(|key| has(key.as_str()))
}
