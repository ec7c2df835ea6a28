//! Nodes with daemons that share the logs of their workspaces.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::home::{CommandOutput, Home};
use crate::postgres::PostgresServer;
use crate::projects::LAB;
use crate::wait::{PATIENCE, wait_for, wait_until, within};

/// Directory names whose contents are not in a workspace's log, at any depth.
const APART: [&str; 5] = ["work", ".checkpoints", "changesets", "gate", "sandboxes"];
/// Part of a work area that is in a log.
const METADATA: &str = ".metadata";

/// Number of records after which a snapshot is taken.
const SNAPSHOT_AFTER: u64 = 25;

/// A node whose daemon shares a log with others.
#[derive(Debug)]
pub struct ClusterNode {
    /// Its state root; the first node's home also contains the project.
    pub home: Home,
    pub project: String,
}

impl ClusterNode {
    /// Node `a`, with its own project, which the others share.
    #[must_use]
    pub fn first(server: &PostgresServer) -> Self {
        Self::with(Home::new(LAB), "a", &server.url())
    }

    /// A node with a project, which others share, and a log at this URL.
    #[must_use]
    pub fn with(home: Home, name: &str, url: &str) -> Self {
        let project = home.project().to_str().unwrap().to_owned();
        let node = Self { home, project };
        node.joins(url, name);
        node
    }

    /// Adds another node.
    #[must_use]
    pub fn beside(&self, server: &PostgresServer, name: &str) -> Self {
        self.and(Home::without_project(), name, &server.url())
    }

    /// Adds another node, with a log at this URL.
    #[must_use]
    pub fn and(&self, home: Home, name: &str, url: &str) -> Self {
        let project = self.project.clone();
        let node = Self { home, project };
        node.joins(url, name);
        node
    }

    fn joins(&self, url: &str, name: &str) {
        self.is_configured(&json!({
            "node": name,
            "postgres": url,
            "snapshotAfterRecords": SNAPSHOT_AFTER,
        }));
    }

    /// Sets its part in the replication, in place of the usual one, before its daemon starts.
    pub fn is_configured(&self, replication: &Value) {
        let config = json!({ "replication": replication }).to_string();
        self.home.write("state/config.json", &config);
    }

    /// Runs `gdn` for the project.
    #[must_use]
    pub fn gdn(&self, args: &[&str]) -> CommandOutput {
        self.home
            .gdn(&[&["--project", &self.project], args].concat())
    }

    /// Runs `gdn node`, again while the reason to refuse is a heartbeat of another node that is
    /// missing, as it may be for some seconds on a busy machine.
    #[must_use]
    pub fn gdn_node(&self, args: &[&str]) -> CommandOutput {
        wait_for("the other node is heard", || {
            let ran = self.gdn(&[&["node"], args].concat());
            let is_missed = |why: &&str| ran.stderr.contains(*why);
            let missed = ["has not recently reported", "no other node follows"];
            (ran.code == 0 || !missed.iter().any(is_missed)).then_some(ran)
        })
    }

    /// Runs `gdn --json`, which must succeed, and returns its output.
    #[must_use]
    pub fn json(&self, args: &[&str]) -> Value {
        let ran = self.gdn(&[&["--json"], args].concat());
        ran.exits(0).json()
    }

    /// Sends a message, which must be answered, and returns the answer.
    pub fn ask(&self, key: &str, text: &str) -> String {
        let ran = self.gdn(&["send", "--instance", key, text]).exits(0);
        ran.stdout.trim_end().to_owned()
    }

    /// The messages of a conversation.
    #[must_use]
    pub fn history(&self, key: &str) -> Value {
        self.json(&["instance", "history", "--", key])["messages"].clone()
    }

    /// The only workspace in `gdn daemon node list`, if it is listed.
    #[must_use]
    pub fn workspace(&self) -> Option<Value> {
        let listed = self.json(&["node", "list"]);
        listed["workspaces"].as_array().unwrap().first().cloned()
    }

    /// True if it runs the workspace.
    #[must_use]
    pub fn runs(&self) -> bool {
        let listed = self.home.gdn(&["--json", "workspace", "list"]);
        listed.code == 0 && listed.json()["workspaces"].as_array().unwrap().len() == 1
    }

    /// Waits until it runs the workspace.
    pub fn waits_until_it_runs(&self) {
        wait_until("the workspace runs here", || self.runs());
    }

    /// Waits until another node has caught up.
    pub fn waits_until_followed_by(&self, other: &str) {
        wait_until("the standby has read all", || {
            let Some(workspace) = self.workspace() else {
                return false;
            };
            let replicas = workspace["replicas"].as_array().unwrap();
            let of = |node: &str| {
                let replica = replicas.iter().find(|it| it["node"] == node);
                replica.map(|it| it["position"].as_u64().unwrap())
            };
            // During a move it has no owner.
            let Some(owner) = workspace["owner"].as_str() else {
                return false;
            };
            of(other).is_some() && of(other) == of(owner)
        });
    }

    /// Waits until others have the same replicated files as this one.
    ///
    /// # Panics
    ///
    /// With the files that still differ after a timeout.
    pub fn waits_until_alike(&self, others: &[&Self]) {
        let mut differ = Vec::new();
        let alike = within(PATIENCE, || {
            let own = self.files();
            let of_other = |other: &Self| unlike(&own, &other.files());
            differ = others.iter().copied().flat_map(of_other).collect();
            differ.is_empty().then_some(())
        });
        assert!(alike.is_some(), "nodes have other files: {differ:#?}");
    }

    /// All replicated files of its workspace, with their contents.
    #[must_use]
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let Some(dir) = self.home.found_workspace_dir() else {
            return BTreeMap::new();
        };
        let mut files = BTreeMap::new();
        let mut dirs = vec![dir.clone()];
        while let Some(at) = dirs.pop() {
            for entry in std::fs::read_dir(&at).into_iter().flatten() {
                let path = entry.unwrap().path();
                let below = path.strip_prefix(&dir).unwrap().to_str().unwrap();
                if is_apart(below) {
                    continue;
                }
                if path.is_file() {
                    // A file that was deleted meanwhile is skipped.
                    let bytes = std::fs::read(&path).ok();
                    files.extend(bytes.map(|bytes| (below.to_owned(), bytes)));
                } else {
                    dirs.push(path);
                }
            }
        }
        files
    }
}

/// Files that differ between two nodes, with their sizes on each.
fn unlike(one: &BTreeMap<String, Vec<u8>>, other: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
    let names: BTreeSet<_> = one.keys().chain(other.keys()).collect();
    let unlike = names
        .into_iter()
        .filter(|name| one.get(*name) != other.get(*name));
    let bytes = |of: Option<&Vec<u8>>| of.map_or("none".to_owned(), |it| it.len().to_string());
    unlike
        .map(|name| {
            let (one, other) = (bytes(one.get(name)), bytes(other.get(name)));
            format!("{name}: {one} bytes here, {other} there")
        })
        .collect()
}

/// True if a file of a workspace is not in a log.
fn is_apart(path: &str) -> bool {
    let names: Vec<&str> = path.split('/').collect();
    match names[..] {
        // Node-local data exists only here.
        ["known", .., "here.jsonl"] => true,
        ["tasks", _] => false,
        ["tasks", _, below, ..] => below != METADATA,
        _ => names.last().is_some_and(|name| APART.contains(name)),
    }
}
