//! The control socket. It is bound again if its file was removed (`CTL-1`), because clients could
//! not connect otherwise.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use goondan_store::root::{Layout, PidFile, make_run_dir};
use interprocess::local_socket::tokio::{Listener, Stream};
use interprocess::local_socket::traits::tokio::Listener as _;
use interprocess::local_socket::{GenericFilePath, ListenerOptions, ToFsName as _};

/// The socket that clients connect to.
pub(in crate::shell) struct Socket {
    layout: Layout,
    listener: Listener,
    /// Device and inode of its file; `None` if they could not be read.
    file: Option<(u64, u64)>,
    /// The pid file, if it was recreated.
    pid_file: Option<PidFile>,
    /// True if the last attempt to bind it again failed, which is logged once.
    is_failing: bool,
}

impl Socket {
    /// Binds the control socket. The caller owns the System Root, so an existing socket belongs to
    /// a dead daemon.
    ///
    /// # Errors
    ///
    /// The operating system's error, typically that the path is too long for a socket.
    pub(in crate::shell) fn bind(layout: &Layout) -> io::Result<Self> {
        let path = layout.socket();
        let listener = listen(&path)?;
        Ok(Self {
            layout: layout.clone(),
            listener,
            file: id_of(&path),
            pid_file: None,
            is_failing: false,
        })
    }

    /// Accepts the next client.
    ///
    /// # Errors
    ///
    /// The operating system's error.
    pub(super) async fn accept(&self) -> io::Result<Stream> {
        self.listener.accept().await
    }

    /// Recreates the socket and the pid file if they were removed.
    pub(super) fn restore(&mut self) {
        let is_there = self.file.is_some() && id_of(&self.layout.socket()) == self.file;
        if is_there && self.layout.pid_file().exists() {
            return;
        }
        match self.make_again() {
            Ok(()) => {
                self.is_failing = false;
                tracing::warn!(
                    socket = %self.layout.socket().display(),
                    "control socket or process id file was removed; creating it again"
                );
            }
            Err(error) if !self.is_failing => {
                self.is_failing = true;
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    socket = %self.layout.socket().display(),
                    "failed to recreate the removed control socket: clients cannot connect; stop \
                     the daemon with SIGTERM"
                );
            }
            Err(_) => {}
        }
    }

    fn make_again(&mut self) -> io::Result<()> {
        make_run_dir(&self.layout).map_err(io::Error::other)?;
        if !self.layout.pid_file().exists() {
            let made = PidFile::take(&self.layout).map_err(io::Error::other)?;
            drop(self.pid_file.replace(made));
        }
        let path = self.layout.socket();
        if self.file.is_none() || id_of(&path) != self.file {
            self.listener = listen(&path)?;
            self.file = id_of(&path);
        }
        Ok(())
    }
}

fn id_of(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

fn listen(path: &Path) -> io::Result<Listener> {
    use interprocess::os::unix::local_socket::ListenerOptionsExt as _;
    if let Err(error) = std::fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let name = path.to_fs_name::<GenericFilePath>()?;
    let options = ListenerOptions::new().name(name).reclaim_name(false);
    // Other systems cannot set the socket's mode here, but its directory (0700) restricts access.
    if cfg!(target_os = "linux") {
        options.mode(0o600).create_tokio()
    } else {
        options.create_tokio()
    }
}
