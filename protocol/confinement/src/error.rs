//! Errors of confinement.

use goondan_protocol::sandbox::Right;

use crate::namespaces::NamespaceError;

/// Reason why a program was not confined and therefore must not start.
#[derive(Debug, thiserror::Error)]
pub enum EnforceError {
    /// A path of the policy does not exist, or a confined program could have created it.
    #[error("the sandbox cannot grant a path: {0}; create it, or remove it from the policy")]
    Layout(#[source] std::io::Error),
    /// A path of the policy cannot be opened.
    #[error("the sandbox cannot grant a path: {0}; create it, or remove it from the policy")]
    Path(#[from] landlock::PathFdError),
    /// The kernel refused the rules for files and scopes.
    #[error("Landlock refused the sandbox's rules: {0}; check `dmesg` for `landlock`")]
    Landlock(#[from] landlock::RulesetError),
    /// The kernel accepted the rules but only enforces a part of them.
    #[error("Landlock enforces only a part of the sandbox's rules; use Linux 6.12 or later")]
    Partial,
    /// The filter cannot be created for this architecture.
    #[error("failed to create the system call filter for this architecture: {0}")]
    Filter(#[from] seccompiler::BackendError),
    /// The kernel refuses to drop capabilities.
    #[error(
        "failed to drop the capabilities of root: {0}; start the daemon as a user, not as root"
    )]
    Capabilities(#[source] std::io::Error),
    /// The kernel accepted the rules, but a forbidden operation succeeded in a test.
    #[error(
        "the kernel accepted the sandbox's rules but does not enforce them: {0}; use Linux 6.12 or later"
    )]
    NotHeld(Right),
    /// A part of the level `full` could not be created.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The kernel refused the filter.
    #[error("the kernel refused the system call filter: {0}; it needs CONFIG_SECCOMP_FILTER")]
    Seccomp(#[from] seccompiler::Error),
}
