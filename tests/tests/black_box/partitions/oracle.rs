//! Conditions that must hold after everything has healed. Independent of the faults.

use std::collections::{BTreeMap, BTreeSet};

use goondan_tests::node::ClusterNode;
use goondan_tests::postgres::PostgresServer;
use goondan_tests::service::ServiceManager;
use goondan_tests::wait::{PATIENCE, wait_until, within};
use serde_json::Value;

use super::load::{AcknowledgedEvent, Event, Sent};

/// Exit code of a daemon whose workspace another node owns.
const DEPOSED: i32 = 7;

/// A seal contains the incarnation and the node after its kind, which is 2; the layout is defined
/// in `goondan-replication`.
const SEALS: &str = "
    SELECT seq, ('x' || encode(substring(record FROM 16 + w FOR 8), 'hex'))::bit(64)::bigint,
        encode(substring(record FROM 57 + w FOR 8), 'hex'), convert_from(substring(record FROM 67 + w), 'UTF8')
    FROM goondan.records, LATERAL (SELECT get_byte(record, 5) * 256 + get_byte(record, 6) AS w) AS widths
    WHERE get_byte(record, 55 + w) = 2 ORDER BY seq";

/// Messages of each conversation.
type Histories = BTreeMap<String, Vec<Value>>;

/// Returns the conversations once each event in them is answered, or after a timeout.
pub(super) fn histories(sent: &Sent, node: &ClusterNode) -> Histories {
    let mut answers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for AcknowledgedEvent { event, .. } in &sent.acknowledged {
        answers.entry(event.key()).or_default().push(event.answer());
    }
    let of_key = |(key, answers): (String, Vec<String>)| {
        let read = || node.history(&key).as_array().unwrap().clone();
        let is_there = |history: &Vec<Value>| {
            let texts: BTreeSet<_> = history
                .iter()
                .filter_map(|it| it["data"]["content"].as_str())
                .collect();
            answers.iter().all(|answer| texts.contains(answer.as_str()))
        };
        let answered = within(PATIENCE, || Some(read()).filter(is_there));
        let history = answered.unwrap_or_else(read);
        (key, history)
    };
    answers.into_iter().map(of_key).collect()
}

/// Each acknowledged event is in its conversation once, with one answer.
pub(super) fn each_is_answered_once(sent: &Sent, histories: &Histories, tally: &str) {
    assert_eq!(sent.wrong, Vec::<String>::new(), "answered otherwise");
    for acknowledged in &sent.acknowledged {
        let event = &acknowledged.event;
        let history = &histories[&event.key()];
        let said = |role: &str, text: &str| {
            let data = history.iter().map(|message| &message["data"]);
            data.filter(|it| it["role"] == role && it["content"] == text)
                .count()
        };
        let (asked, answered) = (
            said("user", &event.text()),
            said("assistant", &event.answer()),
        );
        assert_eq!(
            (asked, answered),
            (1, 1),
            "{event:?}, acknowledged by {}: {history:#?}",
            acknowledged.by
        );
        if event.has_a_tool() {
            no_tool_ran_in_silence(event, history, tally);
        }
    }
}

/// Checks that each acknowledged task exists, even after a partial creation, once its files are
/// written.
pub(super) fn each_task_is_there(sent: &Sent, node: &ClusterNode) -> usize {
    let tasks = sent.acknowledged.iter().filter_map(|it| it.event.task());
    let shown = tasks.inspect(|task| {
        wait_until(&format!("task {task} is there"), || {
            let shown = node.gdn(&["--json", "task", "show", task]);
            shown.code == 0 && shown.json()["info"]["taskId"] == **task
        });
    });
    shown.count()
}

/// Checks that a tool ran once, plus at most once for each result with an unknown outcome.
fn no_tool_ran_in_silence(event: &Event, history: &[Value], tally: &str) {
    let id = event.id();
    let ran = tally.lines().filter(|line| **line == id).count();
    let of_event = |message: &&Value| message["data"]["content"] == event.text();
    let from = history.iter().position(|it| of_event(&it)).unwrap();
    let turn = history[from + 1..].iter();
    let turn = turn.take_while(|it| it["data"]["role"] != "user");
    let unknown = turn.filter(|it| it["data"].to_string().contains("E_TOOL_INTERRUPTED"));
    let unknown = unknown.count();
    assert!(
        (1..=1 + unknown).contains(&ran),
        "{id}: its tool ran {ran} times, and {unknown} lines say so"
    );
}

/// Each epoch has one owner: by the nodes' claims, and by the log, as far back as it goes.
pub(super) fn each_epoch_has_one_owner(
    sent: &Sent,
    names: &[&str],
    services: &[ServiceManager],
    server: &PostgresServer,
) -> usize {
    let listed = server.sql(SEALS);
    let seals: Vec<Vec<&str>> = listed
        .lines()
        .map(|line| line.split('|').collect())
        .collect();
    let epochs: Vec<u64> = seals.iter().map(|it| it[1].parse().unwrap()).collect();
    // The log may have dropped the first epochs, or all.
    let first = epochs.first().copied().unwrap_or(u64::MAX);
    let all: Vec<u64> = (first..).take(epochs.len()).collect();
    assert_eq!(epochs, all, "{listed}");
    let lives: BTreeSet<_> = seals.iter().map(|it| (it[2], it[3])).collect();
    assert_eq!(lives.len(), seals.len(), "a life sealed twice: {listed}");
    for (epoch, owners) in &sent.owners {
        let owners: Vec<_> = owners.iter().map(|at| names[*at]).collect();
        assert_eq!(owners.len(), 1, "epoch {epoch}: {owners:?}");
        let seal = seals.iter().zip(&epochs).find(|(_, of)| *of == epoch);
        if let Some((seal, _)) = seal {
            assert_eq!(owners, [seal[3]], "epoch {epoch}: {listed}");
        }
    }
    for (name, service) in names.iter().zip(services) {
        let taken = service.saying("this node owns the workspace");
        let lives: BTreeSet<_> = taken.iter().map(|(life, _)| life).collect();
        assert_eq!(lives.len(), taken.len(), "taken twice in one life: {name}");
        let sealed = seals.iter().filter(|seal| seal[3] == *name).count();
        assert!(
            first > 1 || taken.len() <= sealed,
            "{name} took it without a seal: {listed}"
        );
    }
    seals.len()
}

/// A daemon exited only on request, by a kill, because another one owned its workspace, or because
/// its disk was full.
pub(super) fn no_daemon_failed(services: &[ServiceManager]) {
    for life in services.iter().flat_map(ServiceManager::lives) {
        let is_full = life.told.contains("No space left on device");
        assert!(
            matches!(life.code, None | Some(0 | DEPOSED)) || is_full,
            "it ended with {:?}: {}",
            life.code,
            life.told
        );
    }
}
