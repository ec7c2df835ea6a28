//! What root may do beyond the rights of a user, given up for good.

use rustix::io::{Errno, Result};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capabilities,
    capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_capabilities_secure_bits,
};

/// More than any kernel has.
const MOST: u32 = 64;

const NONE: CapabilitySets = CapabilitySets {
    effective: CapabilitySet::empty(),
    permitted: CapabilitySet::empty(),
    inheritable: CapabilitySet::empty(),
};

/// Gives up every capability of the calling thread and of what it starts. Whoever has none can get none,
/// since `no_new_privs` is set with the rules for files; whoever has all, as root, needs more: a program that
/// root starts would get them back.
pub(crate) fn drop_all() -> Result<()> {
    if capabilities(None)?
        .effective
        .contains(CapabilitySet::SETPCAP)
    {
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
    set_capabilities(None, NONE)
}
