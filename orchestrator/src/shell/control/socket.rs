//! The control socket, which is bound again when its file is gone (`CTL-1`): nobody could reach the daemon otherwise.

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
    /// Device and inode of its file; none if it could not be looked at.
    file: Option<(u64, u64)>,
    /// The file of the process id, once it was made again.
    pid_file: Option<PidFile>,
    /// True if the last try to bind it again failed, which is logged once.
    is_failing: bool,
}

impl Socket {
    /// Binds the control socket. The caller owns the System Root, so a socket that is there is a dead daemon's.
    ///
    /// # Errors
    ///
    /// As the operating system says; a path too long for a socket above all.
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

    /// The next client.
    ///
    /// # Errors
    ///
    /// As the operating system says.
    pub(super) async fn accept(&self) -> io::Result<Stream> {
        self.listener.accept().await
    }

    /// Binds the socket again if its file is gone, and makes the file of the process id again if that is.
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
                    "the control socket or the file of the process id was removed, and is made again"
                );
            }
            Err(error) if !self.is_failing => {
                self.is_failing = true;
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    socket = %self.layout.socket().display(),
                    "the control socket was removed and cannot be made again: clients cannot connect; SIGTERM stops \
                     the daemon"
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
    // Where the socket's own mode cannot be set, its folder's (0700) keeps others out.
    if cfg!(target_os = "linux") {
        options.mode(0o600).create_tokio()
    } else {
        options.create_tokio()
    }
}
