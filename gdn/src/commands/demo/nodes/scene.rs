//! State roots of the two daemons and the project they share, in a temporary directory.

use std::fs::{OpenOptions, create_dir_all};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use goondan_protocol::sandbox::Level;
use serde_json::json;

use crate::exit::Exit;
use crate::failure::Failure;

pub(super) const NODES: [&str; 2] = ["a", "b"];

pub(super) const PROJECT: &str = "project";

const FILES: [(&str, &str); 2] = [
    (
        "goondan.yaml",
        include_str!("../../../../templates/nodes/goondan.yaml"),
    ),
    (
        "scripts/worker.yaml",
        include_str!("../../../../templates/nodes/scripts/worker.yaml"),
    ),
];

#[derive(Debug)]
pub(super) struct NodesDemoFiles {
    pub(super) project: PathBuf,
    /// In the order of [`NODES`].
    pub(super) state_roots: [PathBuf; 2],
}

impl NodesDemoFiles {
    /// Writes the project and both state roots to this directory, with programs confined at `level` and the log at
    /// `url`.
    pub(super) fn lay_out(room: &Path, level: Level, url: &str) -> Result<Self, Failure> {
        let made = Self::write(room, level, url);
        made.map_err(|error| {
            Failure::of(
                Exit::Internal,
                &error,
                "free disk space in the temporary directory, or set TMPDIR to another one",
            )
        })
    }

    fn write(room: &Path, level: Level, url: &str) -> std::io::Result<Self> {
        for (name, text) in FILES {
            let text = text.replace("SANDBOX_LEVEL", &level.to_string());
            write(&room.join(PROJECT).join(name), &text)?;
        }
        let state_roots = NODES.map(|node| room.join(node));
        for (node, state_root) in NODES.iter().zip(&state_roots) {
            let config = json!({"replication": {"node": node, "postgres": url}});
            write(&state_root.join("config.json"), &config.to_string())?;
        }
        Ok(Self {
            project: room.join(PROJECT),
            state_roots,
        })
    }
}

fn write(path: &Path, text: &str) -> std::io::Result<()> {
    create_dir_all(path.parent().unwrap_or_else(|| Path::new("/")))?;
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text.as_bytes())
}
