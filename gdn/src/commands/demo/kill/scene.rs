//! Project for the kill demo, in a temporary directory.

use std::fs::{OpenOptions, create_dir_all};
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use goondan_protocol::sandbox::Level;

use crate::exit::Exit;
use crate::failure::Failure;

/// Connection that receives half of the events.
pub(super) const HOOK: &str = "hook";

pub(super) const HOOK_PATH: &str = "/events";

const FILES: [(&str, &str); 2] = [
    (
        "goondan.yaml",
        include_str!("../../../../templates/kill/goondan.yaml"),
    ),
    (
        "scripts/worker.yaml",
        include_str!("../../../../templates/kill/scripts/worker.yaml"),
    ),
];

/// The project and the port of its webhook.
#[derive(Debug)]
pub(super) struct KillDemoFiles {
    pub(super) project: PathBuf,
    pub(super) port: u16,
}

impl KillDemoFiles {
    /// Writes the project to this directory, with programs confined at `level`, and the outside service
    /// at `outside_port`.
    pub(super) fn lay_out(
        project: PathBuf,
        level: Level,
        outside_port: u16,
    ) -> Result<Self, Failure> {
        let made = Self::write(project, level, outside_port);
        made.map_err(|error| {
            Failure::of(
                Exit::Internal,
                &error,
                "free disk space in the temporary directory, or set TMPDIR to another one",
            )
        })
    }

    fn write(project: PathBuf, level: Level, outside_port: u16) -> std::io::Result<Self> {
        let port = free_port()?;
        for (name, text) in FILES {
            let path = project.join(name);
            create_dir_all(path.parent().unwrap_or_else(|| Path::new("/")))?;
            let text = text
                .replace("HOOK_PORT", &port.to_string())
                .replace("OUTSIDE_PORT", &outside_port.to_string())
                .replace("SANDBOX_LEVEL", &level.to_string());
            let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
            file.write_all(text.as_bytes())?;
        }
        Ok(Self { project, port })
    }
}

/// Returns an unused port. It stays the same across restarts, so that senders need not look it up.
fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}
