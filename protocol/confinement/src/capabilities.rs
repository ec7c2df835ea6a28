//! What root may do beyond the rights of a user, given up for good.

use rustix::io::{Errno, Result};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capabilities,
    capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_capabilities_secure_bits,
};

/// More than any kernel has.
const MOST: u32 = 64;

/// What is not given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    Nothing,
    /// Listening on a port below 1024, where the caller could. What it starts cannot.
    LowPorts,
}

impl Kept {
    fn of(self, had: CapabilitySet) -> CapabilitySet {
        match self {
            Self::Nothing => CapabilitySet::empty(),
            Self::LowPorts => had & CapabilitySet::NET_BIND_SERVICE,
        }
    }
}

/// Gives up every other capability of the calling thread and of what it starts. Whoever has none can get none,
/// since `no_new_privs` is set with the rules for files; whoever has all, as root, needs more: a program that
/// root starts would get them back.
pub(crate) fn keep(kept: Kept) -> Result<()> {
    let had = capabilities(None)?;
    if had.effective.contains(CapabilitySet::SETPCAP) {
        for number in 0..MOST {
            let capability = CapabilitySet::from_bits_retain(1 << number);
            match capability_is_in_bounding_set(capability) {
                Ok(true) => remove_capability_from_bounding_set(capability)?,
                Ok(false) => {}
                // Behind the last one that the kernel knows.
                Err(Errno::INVAL) => break,
                Err(errno) => return Err(errno),
            }
        }
        set_capabilities_secure_bits(
            CapabilitiesSecureBits::NO_ROOT
                | CapabilitiesSecureBits::NO_ROOT_LOCKED
                | CapabilitiesSecureBits::NO_SETUID_FIXUP
                | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
                | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
                | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
                | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED,
        )?;
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
