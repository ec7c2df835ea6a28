//! Rows of the table views, in order.

use goondan_protocol::control::ProcessInfo;
use goondan_protocol::ids::InstanceKey;

use super::board::Board;
use super::view::{Scope, View};
use crate::commands::inbox::InboxItem;
use crate::commands::inbox::shown;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    /// Identifies the selected row when rows move.
    pub(super) id: String,
    pub(super) key: Option<InstanceKey>,
    /// Index in the list of processes, for a process.
    pub(super) process: Option<usize>,
    /// The item, for an item of the inbox.
    pub(super) item: Option<Box<InboxItem>>,
}

impl Row {
    fn new(id: String, key: Option<InstanceKey>, process: Option<usize>) -> Self {
        Self {
            id,
            key,
            process,
            item: None,
        }
    }

    fn of_item(item: &InboxItem) -> Self {
        let (kind, workspace, at, id) = item.key();
        let at = at.as_ref().map_or("", InstanceKey::as_str);
        Self {
            item: Some(Box::new(item.clone())),
            ..Self::new(format!("{kind}\n{workspace}\n{at}\n{id}"), None, None)
        }
    }
}

/// Rows of a view that contain the lowercase text.
pub(super) fn of(board: &Board, scope: Scope, view: View, wanted: &str) -> Vec<Row> {
    match view {
        View::Conversations => {
            let keys = board.conversations_with(wanted).into_iter();
            keys.map(|key| Row::new(key.to_string(), Some(key), None))
                .collect()
        }
        View::Processes => processes(board, scope, |info| has(info, wanted)),
        View::Overview => processes(board, scope, |info| {
            info.turn_id.is_some() && has(info, wanted)
        }),
        View::Inbox => {
            let items = board.inbox().into_iter().flat_map(|inbox| &inbox.items);
            let meant = items.filter(|item| item_has(item, wanted));
            meant.map(Row::of_item).collect()
        }
        View::Events | View::Budgets | View::Logs => Vec::new(),
    }
}

fn processes(board: &Board, scope: Scope, is_meant: impl Fn(&ProcessInfo) -> bool) -> Vec<Row> {
    let processes = board.facts().into_iter();
    let processes = processes.flat_map(|facts| &facts.processes);
    let row = |(place, info): (usize, &ProcessInfo)| {
        let key = info.instance_key.as_ref();
        let of = key.map_or_else(String::new, ToString::to_string);
        let workspace = &info.workspace_id;
        let id = format!("{workspace} {} {} {of}", info.role.as_str(), info.name);
        // The keys for conversations are about the project.
        let key = key.filter(|_| scope == Scope::Project);
        Row::new(id, key.cloned(), Some(place))
    };
    let meant = processes.enumerate().filter(|(_, info)| is_meant(info));
    meant.map(row).collect()
}

fn item_has(item: &InboxItem, wanted: &str) -> bool {
    let key = item.conversation.as_ref().map(InstanceKey::as_str);
    let texts = [
        shown::kind_words(item.kind),
        item.workspace_id.as_str(),
        &item.id,
        &item.subject,
    ];
    let mut texts = texts.into_iter().chain(item.from.as_deref()).chain(key);
    texts.any(|text| text.to_lowercase().contains(wanted))
}

fn has(info: &ProcessInfo, wanted: &str) -> bool {
    let has = |text: &str| text.to_lowercase().contains(wanted);
    let key = info.instance_key.as_ref();
    wanted.is_empty() || has(&info.name) || key.is_some_and(|key| has(key.as_str()))
}
