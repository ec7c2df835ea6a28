//! Checks targets against allow lists.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use goondan_connectors::{AddressReachability, reach_of};
use goondan_protocol::egress::AllowList;
use goondan_protocol::package_runner::is_registry;
use goondan_protocol::sandbox::Host;

use super::refusal::EgressDenial;
use super::refusals::Refusals;
use super::target::Target;

/// The allow list of one socket.
#[derive(Debug)]
pub(super) struct EgressRules {
    list: AllowList,
    refusals: Refusals,
}

impl fmt::Display for EgressRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.list.caller, self.listed())
    }
}

impl EgressRules {
    pub(super) fn new(list: AllowList) -> Self {
        let refusals = Refusals::new();
        Self { list, refusals }
    }

    /// Logs the reason for a refusal.
    pub(super) fn tell_refused(&self, why: impl fmt::Display) {
        self.refusals.tell(&self.list.caller, why);
    }

    fn listed(&self) -> String {
        let hosts = self.list.allow.iter().map(|host| format!("`{host}`"));
        hosts.collect::<Vec<_>>().join(", ")
    }

    /// Checks that a target is listed. Must be called before its name is resolved.
    pub(super) fn check_listed(&self, target: &Target) -> Result<(), EgressDenial> {
        let mut allow = self.list.allow.iter();
        if allow.any(|listed| listed.allows(&target.host, target.port)) {
            return Ok(());
        }
        Err(EgressDenial::NotListed {
            target: target.clone(),
            caller: self.list.caller.to_string(),
            listed: self.listed(),
        })
    }

    /// Selects the addresses of a listed target that may be connected to: public ones, and private
    /// ones that are listed themselves. Networks with a mirror resolve the names of package
    /// registries to private ones.
    pub(super) fn reachable(
        &self,
        target: &Target,
        addresses: &[IpAddr],
    ) -> Result<Vec<SocketAddr>, EgressDenial> {
        let is_listed = |address: IpAddr| {
            let asked = Host::Address(address);
            let mut allow = self.list.allow.iter();
            allow.any(|listed| listed.allows(&asked, target.port))
        };
        let may_be_reached = |address: &IpAddr| match reach_of(*address) {
            AddressReachability::Public => true,
            AddressReachability::Private => {
                is_listed(*address) || is_registry(&target.host, target.port)
            }
            AddressReachability::Never => false,
        };
        let good = addresses.iter().copied().filter(may_be_reached);
        let good: Vec<_> = good.map(|it| SocketAddr::new(it, target.port)).collect();
        match addresses.first() {
            Some(address) if good.is_empty() => Err(match reach_of(*address) {
                AddressReachability::Never => EgressDenial::Never {
                    target: target.clone(),
                    address: *address,
                },
                AddressReachability::Public | AddressReachability::Private => {
                    EgressDenial::Private {
                        target: target.clone(),
                        address: *address,
                        caller: self.list.caller.to_string(),
                    }
                }
            }),
            Some(_) => Ok(good),
            None => Err(EgressDenial::Unresolved {
                target: target.clone(),
                why: "the name has no address".to_owned(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use goondan_protocol::egress::EgressCaller;

    use super::super::refusal::EgressFaultParty;
    use super::*;

    fn rules(allow: &[&str]) -> EgressRules {
        EgressRules::new(AllowList {
            caller: EgressCaller::Agent("coder".parse().unwrap()),
            allow: allow.iter().map(|host| host.parse().unwrap()).collect(),
        })
    }

    fn target(host: &str, port: u16) -> Target {
        Target::read(host, port).unwrap()
    }

    #[test]
    fn sec_3_only_listed_hosts_are_requested() {
        let rules = rules(&["a.org", "127.0.0.1:8080"]);
        for (host, port) in [("a.org", 443), ("A.org.", 80), ("127.0.0.1", 8080)] {
            rules.check_listed(&target(host, port)).unwrap();
        }
        for (host, port) in [
            ("b.org", 443),
            ("a.org", 8443),
            ("93.184.216.34", 443),
            ("[::ffff:127.0.0.1]", 8080),
            ("127.0.0.1", 80),
        ] {
            let refusal = rules.check_listed(&target(host, port)).unwrap_err();
            assert_eq!(refusal.fault(), EgressFaultParty::Denied);
            let text = refusal.to_string();
            for part in ["agent `coder`", "`a.org`", "network: {allow: […]}", host] {
                assert!(text.contains(part), "{text}");
            }
        }
        for host in ["2130706433", "0x7f000001", "127.1", "a..org", "a/b", ""] {
            assert!(Target::read(host, 80).is_err(), "{host}");
        }
    }

    #[test]
    fn prov_1_a_mirror_of_a_registry_can_have_a_private_address() {
        let rules = rules(&["registry.npmjs.org", "a.org"]);
        let reaches = |host: &str, port, address: &str| {
            let addresses: [IpAddr; 1] = [address.parse().unwrap()];
            rules.reachable(&target(host, port), &addresses).is_ok()
        };
        for mirror in ["10.0.0.8", "203.0.113.9"] {
            assert!(reaches("registry.npmjs.org", 443, mirror), "{mirror}");
        }
        assert!(!reaches("registry.npmjs.org", 80, "10.0.0.8"));
        assert!(!reaches("registry.npmjs.org", 443, "169.254.169.254"));
        assert!(!reaches("a.org", 443, "10.0.0.8"));
    }

    #[test]
    fn sec_3_listed_hostname_cannot_resolve_to_local_networks() {
        let rules = rules(&["a.org", "10.0.0.7", "169.254.169.254"]);
        let reachable = |addresses: &[&str]| {
            let addresses: Vec<IpAddr> = addresses.iter().map(|it| it.parse().unwrap()).collect();
            let good = rules.reachable(&target("a.org", 443), &addresses);
            good.map(|good| {
                good.iter()
                    .map(|it| it.ip().to_string())
                    .collect::<Vec<_>>()
            })
        };
        assert_eq!(reachable(&["1.1.1.1"]).unwrap(), ["1.1.1.1"]);
        // Only the permitted address remains.
        assert_eq!(reachable(&["127.0.0.1", "1.1.1.1"]).unwrap(), ["1.1.1.1"]);
        // This exact address is listed.
        assert_eq!(reachable(&["10.0.0.7"]).unwrap(), ["10.0.0.7"]);
        for address in [
            "127.0.0.1",
            "10.0.0.8",
            "192.168.1.1",
            "::1",
            "fd12::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.7",
            "64:ff9b::a00:1",
            "2002:7f00:1::",
            "169.254.169.254",
            "100.100.100.200",
            "224.0.0.1",
            "fe80::1",
            "0.0.0.0",
        ] {
            let refusal = reachable(&[address]).unwrap_err();
            assert_eq!(refusal.fault(), EgressFaultParty::Denied, "{address}");
        }
        assert_eq!(
            reachable(&[]).unwrap_err().fault(),
            EgressFaultParty::Failed
        );
    }
}
