//! Classifies the addresses that requests and programs may reach.
//!
//! A name can resolve to any address, and its owner can point it at this machine or its network.
//! Addresses are therefore checked, and the connection uses the checked address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressReachability {
    /// An address on the Internet.
    Public,
    /// This machine or a private network: permitted only if a person has configured it.
    Private,
    /// Never permitted: link-local addresses, which include cloud metadata services that hand out
    /// credentials; multicast, broadcast and unspecified addresses.
    Never,
}

/// Cloud metadata services that are not link-local.
const METADATA_V4: Ipv4Addr = Ipv4Addr::new(100, 100, 100, 200);
const METADATA_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254);

#[must_use]
pub fn reach_of(address: IpAddr) -> AddressReachability {
    match address {
        IpAddr::V4(address) => reach_of_v4(address),
        IpAddr::V6(address) => reach_of_v6(address),
    }
}

fn reach_of_v4(address: Ipv4Addr) -> AddressReachability {
    if address == METADATA_V4 {
        return AddressReachability::Never;
    }
    match address.octets() {
        [127 | 10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] => {
            AddressReachability::Private
        }
        // Benchmarking networks.
        [198, 18 | 19, ..] => AddressReachability::Private,
        [0 | 224.., ..] | [169, 254, ..] | [192, 0, 0, _] => AddressReachability::Never,
        // Documentation examples, which some networks use for their own servers.
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => AddressReachability::Private,
        _ => AddressReachability::Public,
    }
}

fn reach_of_v6(address: Ipv6Addr) -> AddressReachability {
    if address == Ipv6Addr::LOCALHOST {
        return AddressReachability::Private;
    }
    if address == METADATA_V6 {
        return AddressReachability::Never;
    }
    let embedded = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        reach_of_v4(Ipv4Addr::new(a, b, c, d))
    };
    match address.segments() {
        // IPv6 forms of IPv4 addresses: mapped, translated, tunneled.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            embedded(high, low)
        }
        [0x2002, high, low, ..] => embedded(high, low),
        [0xfc00..=0xfdff, ..] => AddressReachability::Private,
        // Tunnels with a hidden endpoint, and documentation examples.
        [0x2001, 0 | 0xdb8, ..] => AddressReachability::Never,
        [0x2000..=0x3fff, ..] => AddressReachability::Public,
        _ => AddressReachability::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_is_as_far_away_as_it_is() {
        for (address, reach) in [
            ("1.1.1.1", AddressReachability::Public),
            ("172.32.0.1", AddressReachability::Public),
            ("100.128.0.1", AddressReachability::Public),
            ("127.0.0.1", AddressReachability::Private),
            ("127.255.0.9", AddressReachability::Private),
            ("10.1.2.3", AddressReachability::Private),
            ("172.31.9.9", AddressReachability::Private),
            ("192.168.0.1", AddressReachability::Private),
            ("100.64.0.1", AddressReachability::Private),
            ("0.0.0.0", AddressReachability::Never),
            ("169.254.169.254", AddressReachability::Never),
            ("100.100.100.200", AddressReachability::Never),
            ("224.0.0.1", AddressReachability::Never),
            ("255.255.255.255", AddressReachability::Never),
            ("192.0.0.1", AddressReachability::Never),
            ("192.0.2.1", AddressReachability::Private),
            ("203.0.113.9", AddressReachability::Private),
            ("2606:4700::1111", AddressReachability::Public),
            ("::1", AddressReachability::Private),
            ("fd12::1", AddressReachability::Private),
            ("::", AddressReachability::Never),
            ("fe80::1", AddressReachability::Never),
            ("fec0::1", AddressReachability::Never),
            ("ff02::1", AddressReachability::Never),
            ("fd00:ec2::254", AddressReachability::Never),
            ("2001::1", AddressReachability::Never),
            ("2001:db8::1", AddressReachability::Never),
            ("::ffff:127.0.0.1", AddressReachability::Private),
            ("::ffff:169.254.169.254", AddressReachability::Never),
            ("::ffff:1.1.1.1", AddressReachability::Public),
            ("::127.0.0.1", AddressReachability::Never),
            ("64:ff9b::10.0.0.1", AddressReachability::Private),
            ("64:ff9b::a9fe:a9fe", AddressReachability::Never),
            ("2002:7f00:1::", AddressReachability::Private),
            ("2002:a9fe:a9fe::", AddressReachability::Never),
        ] {
            assert_eq!(reach_of(address.parse().unwrap()), reach, "{address}");
        }
    }
}
