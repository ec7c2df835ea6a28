//! Binds the life of this process to its parent.

/// Kills this process when its parent dies, even if it is too busy to notice the closed socket
/// (`SUP-7`). If the parent died before this call, only the socket reports it.
#[cfg(target_os = "linux")]
pub(crate) fn die_with_parent() -> std::io::Result<()> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL).map_err(Into::into)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn die_with_parent() -> std::io::Result<()> {
    Ok(())
}
