//! Permanently drops the capabilities of root.

use rustix::io::{Errno, Result};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capabilities,
    capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_capabilities_secure_bits,
};

/// Greater than the number of capabilities of any kernel.
const MOST: u32 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetainedCapabilities {
    Nothing,
    /// Listening on ports below 1024, if the caller could. Its child processes cannot.
    LowPorts,
    /// `CAP_SETFCAP` of a root in a user namespace, which it and its children need to create
    /// another one in it (from Linux 5.12 on). It only matters for files that the process may
    /// change anyway.
    NestedUsers,
}

impl RetainedCapabilities {
    fn of(self, had: CapabilitySet) -> CapabilitySet {
        match self {
            Self::Nothing => CapabilitySet::empty(),
            Self::LowPorts => had & CapabilitySet::NET_BIND_SERVICE,
            Self::NestedUsers => had & CapabilitySet::SETFCAP,
        }
    }

    /// Capabilities that a program started by root may regain.
    fn of_programs(self) -> CapabilitySet {
        match self {
            Self::Nothing | Self::LowPorts => CapabilitySet::empty(),
            Self::NestedUsers => CapabilitySet::SETFCAP,
        }
    }
}

/// Drops all other capabilities of the calling thread and its descendants. A thread without
/// capabilities cannot gain any because `no_new_privs` is set with the file rules. For root this is
/// not enough: programs it starts would regain theirs, so the bounding set is reduced as well.
pub(crate) fn keep(kept: RetainedCapabilities) -> Result<()> {
    let had = capabilities(None)?;
    if had.effective.contains(CapabilitySet::SETPCAP) {
        let of_programs = kept.of_programs();
        let numbers = (0..MOST).map(|number| CapabilitySet::from_bits_retain(1 << number));
        for capability in numbers.filter(|capability| !of_programs.contains(*capability)) {
            match capability_is_in_bounding_set(capability) {
                Ok(true) => remove_capability_from_bounding_set(capability)?,
                Ok(false) => {}
                // After the last capability of the kernel.
                Err(Errno::INVAL) => break,
                Err(errno) => return Err(errno),
            }
        }
        if of_programs.is_empty() {
            give_root_no_more_than_others()?;
        }
    }
    clear_ambient_capability_set()?;
    let permitted = kept.of(had.permitted);
    let sets = CapabilitySets {
        effective: permitted,
        permitted,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets)
}

fn give_root_no_more_than_others() -> Result<()> {
    set_capabilities_secure_bits(
        CapabilitiesSecureBits::NO_ROOT
            | CapabilitiesSecureBits::NO_ROOT_LOCKED
            | CapabilitiesSecureBits::NO_SETUID_FIXUP
            | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
            | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED,
    )
}
