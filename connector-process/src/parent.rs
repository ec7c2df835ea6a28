//! Binds the life of this process to its parent.

/// Requests `SIGKILL` at the parent's death. The end of the socket also reports that the
/// orchestrator is gone, but a busy process may not notice it (`SUP-7`). A parent that died before
/// this call is detected only by the socket.
#[cfg(target_os = "linux")]
pub(crate) fn die_with_parent() -> std::io::Result<()> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL).map_err(Into::into)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn die_with_parent() -> std::io::Result<()> {
    Ok(())
}
