//! Two PostgreSQL servers on two machines: the primary confirms only writes that the standby has.

use crate::network::{Network, NetworkMachine};
use crate::postgres::{PostgresServer, ROLE};
use crate::wait::wait_until;

/// A server detects a lost standby within seconds, and a returning standby reconnects immediately.
/// Changes that a standby missed are kept for it.
const SETTINGS: [&str; 6] = [
    "wal_sender_timeout=3s",
    "wal_receiver_timeout=3s",
    "wal_retrieve_retry_interval=200ms",
    "wal_keep_size=1GB",
    "max_wal_size=96MB",
    "shared_buffers=16MB",
];

/// Two servers.
#[derive(Debug)]
pub struct Pair {
    primary: PostgresServer,
    standby: PostgresServer,
    /// Their machines, primary first.
    machines: [NetworkMachine; 2],
    synchronous: String,
}

impl Pair {
    /// Two servers on these machines, the first of which is the primary. None without PostgreSQL.
    #[must_use]
    pub fn running(machines: [NetworkMachine; 2]) -> Option<Self> {
        let names = machines.each_ref().map(NetworkMachine::name).join(", ");
        let synchronous = format!("synchronous_standby_names=ANY 1 ({names})");
        let settings = Self::settings(&synchronous);
        let primary = PostgresServer::running_at(&machines[0], &settings)?;
        let standby = PostgresServer::standby_at(&machines[1], &primary, &settings);
        let pair = Self {
            primary,
            standby,
            machines,
            synchronous,
        };
        pair.waits_until_in_step();
        Some(pair)
    }

    fn settings(synchronous: &str) -> Vec<&str> {
        let all = SETTINGS.into_iter();
        all.chain([synchronous]).collect()
    }

    /// Connection URL for the primary.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts = self.machines.each_ref().map(|it| it.address().to_string());
        // The namespaces identify the machines; only root listens there.
        format!(
            "postgres://{ROLE}@{}/postgres?sslmode=disable",
            hosts.join(",")
        )
    }

    #[must_use]
    pub fn primary(&self) -> &PostgresServer {
        &self.primary
    }

    #[must_use]
    pub fn primary_machine(&self) -> &NetworkMachine {
        &self.machines[0]
    }

    #[must_use]
    pub fn standby_machine(&self) -> &NetworkMachine {
        &self.machines[1]
    }

    /// Crashes the primary, and starts it again.
    pub fn crashes(&self) {
        self.primary.crash();
        self.primary.start();
    }

    /// Crashes the primary, and only then promotes the standby: two primaries would be a fault that
    /// nothing could survive. The primary's machine can be cut off first, so that clients do not
    /// notice the crash.
    pub fn fails_over(&mut self, network: &Network, is_cut_off: bool) {
        if is_cut_off {
            network.unplug(&self.machines[0]);
        }
        self.primary.crash();
        self.standby.promote();
        std::mem::swap(&mut self.primary, &mut self.standby);
        self.machines.swap(0, 1);
    }

    /// Recreates a standby after [`Self::fails_over`], on the former primary's machine. Until it is
    /// in sync, nothing is confirmed.
    pub fn has_a_standby_again(&mut self, network: &Network) {
        network.plug(&self.machines[1]);
        let settings = Self::settings(&self.synchronous);
        self.standby = PostgresServer::standby_at(&self.machines[1], &self.primary, &settings);
        self.waits_until_in_step();
    }

    /// Waits until the standby confirms the primary's writes.
    pub fn waits_until_in_step(&self) {
        let confirming = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'quorum'";
        wait_until("the standby confirms", || {
            self.primary.sql(confirming) == "1"
        });
    }
}
