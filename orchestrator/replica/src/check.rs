//! Checks the server's settings for `gdn doctor`.

use goondan_replication::wire::{ServerCheck, ServerCheckVerdict};
use tokio_postgres::{Error, Row};

/// Reads the settings by name. `role` is not a server setting. `reset_val` is the initial value of
/// sessions; connections that put records raise it.
pub(crate) const LOOK: &str = "
SELECT name, reset_val FROM pg_settings
WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit', 'synchronous_standby_names', 'server_version')
UNION ALL SELECT 'role', CASE WHEN pg_is_in_recovery() THEN 'standby' ELSE 'primary' END
UNION ALL SELECT 'version_number', current_setting('server_version_num')
ORDER BY 1";

/// The oldest tested version.
const OLDEST_VERSION: u32 = 15;

/// Finding for a server that does not respond.
pub(crate) fn unreachable(trouble: Option<String>) -> ServerCheck {
    ServerCheck {
        what: "connection".to_owned(),
        found: trouble.unwrap_or_else(|| "none".to_owned()),
        verdict: ServerCheckVerdict::Bad,
        advice: "the server does not answer, or no host of the URL accepts writes; nothing is \
            acknowledged until one does. If the password was changed on the server, change it in \
            `config.json` too"
            .to_owned(),
    }
}

/// Finding for a server that responds to reads and confirms no commits.
pub(crate) fn unconfirmed(trouble: String) -> ServerCheck {
    ServerCheck {
        what: "commits".to_owned(),
        found: trouble,
        verdict: ServerCheckVerdict::Bad,
        advice: "nothing is acknowledged until the server confirms it: restart a synchronous \
            standby of `synchronous_standby_names`, or decide to run without one: `ALTER SYSTEM \
            SET synchronous_standby_names = ''; SELECT pg_reload_conf();`"
            .to_owned(),
    }
}

pub(crate) fn findings(host: &str, rows: &[Row]) -> Vec<ServerCheck> {
    let mut findings = vec![finding("connection", host, ServerCheckVerdict::Good, "")];
    let settings = rows.iter().filter_map(|row| setting(row).ok());
    findings.extend(settings.filter_map(|(name, value)| judged(&name, &value)));
    findings
}

fn setting(row: &Row) -> Result<(String, String), Error> {
    let value: Option<String> = row.try_get(1)?;
    Ok((row.try_get(0)?, value.unwrap_or_default()))
}

fn finding(what: &str, found: &str, verdict: ServerCheckVerdict, advice: &str) -> ServerCheck {
    ServerCheck {
        what: what.to_owned(),
        found: found.to_owned(),
        verdict,
        advice: advice.to_owned(),
    }
}

fn judged(name: &str, value: &str) -> Option<ServerCheck> {
    use ServerCheckVerdict::{Bad, Good, Weak};
    let (verdict, advice) = match (name, value) {
        ("fsync" | "full_page_writes", "on") | ("role", "primary") => (Good, ""),
        ("fsync", _) => (
            Bad,
            "set `fsync = on`: without it, a power failure can take acknowledged records or the whole database",
        ),
        ("full_page_writes", _) => (
            Weak,
            "set `full_page_writes = on`, unless the file system never writes half of a page",
        ),
        ("role", _) => (
            Bad,
            "this is a standby: write its primary, or the hosts of both, into the URL",
        ),
        ("synchronous_standby_names", "") => (
            Weak,
            "no standby confirms records: if this server is lost permanently, records that its \
             standbys do not have yet are lost too; set `synchronous_standby_names` if the server \
             has a standby",
        ),
        ("synchronous_standby_names", _) => (Good, ""),
        ("synchronous_commit", "remote_apply" | "on") => (Good, ""),
        // Connections that put records set it to `on` themselves.
        ("synchronous_commit", _) => (
            Good,
            "records are committed with `on` anyway, unless a connection pooler shares sessions",
        ),
        ("server_version", _) => (Good, ""),
        ("version_number", number) => {
            let major = number.parse::<u32>().unwrap_or(0) / 10_000;
            if major >= OLDEST_VERSION {
                return None;
            }
            (
                Weak,
                "older than the oldest tested version: upgrade to 15 or newer",
            )
        }
        _ => return None,
    };
    Some(finding(name, value, verdict, advice))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_risk_record_loss_are_reported_with_a_fix() {
        for (name, value, verdict) in [
            ("fsync", "on", ServerCheckVerdict::Good),
            ("fsync", "off", ServerCheckVerdict::Bad),
            ("full_page_writes", "off", ServerCheckVerdict::Weak),
            ("role", "standby", ServerCheckVerdict::Bad),
            ("synchronous_standby_names", "", ServerCheckVerdict::Weak),
            (
                "synchronous_standby_names",
                "ANY 1 (b, c)",
                ServerCheckVerdict::Good,
            ),
            ("version_number", "90600", ServerCheckVerdict::Weak),
        ] {
            let found = judged(name, value).unwrap();
            assert_eq!(found.verdict, verdict, "{name} = {value}");
            assert_eq!(
                found.advice.is_empty(),
                verdict == ServerCheckVerdict::Good,
                "{name}"
            );
        }
        assert_eq!(judged("version_number", "150004"), None);
    }
}
