//! The life of this process is bound to that of whoever started it.

/// The end of the socket says that the orchestrator is gone; this says so even to a process that is
/// too busy to look (`SUP-7`). A parent that died before this call is noticed by the socket alone.
#[cfg(target_os = "linux")]
pub(crate) fn die_with_parent() -> std::io::Result<()> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL).map_err(Into::into)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn die_with_parent() -> std::io::Result<()> {
    Ok(())
}
