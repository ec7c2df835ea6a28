//! Opens a connector's listening socket, with retries.

use std::net::SocketAddr;
use std::time::Duration;

use goondan_clock::sleep;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::gateway::Gateway;
use crate::limits::{BIND_RETRY_FIRST_MS, BIND_RETRY_MAX_MS};

/// A listening socket and its address.
pub(crate) struct BoundListener {
    pub(crate) listener: TcpListener,
    pub(crate) address: SocketAddr,
}

/// Opens the listening socket and retries until it succeeds; `None` once `stop` is set. Failures
/// are reported to people.
pub(crate) async fn open(
    host: &str,
    port: u16,
    gateway: &Gateway,
    stop: &CancellationToken,
) -> Option<BoundListener> {
    let place = format!("{host}:{port}");
    let mut last_reason = String::new();
    for pause in bind_pauses() {
        let error = tokio::select! {
            () = stop.cancelled() => return None,
            result = bind(host, port) => match result {
                Ok(listening) => return Some(listening),
                Err(error) => error,
            },
        };
        let reason = error.to_string();
        tracing::warn!(place, reason, "cannot listen; trying again");
        if reason != last_reason {
            let detail = format!("cannot listen on {place}: {reason}; trying again");
            gateway.report(false, detail).await;
            last_reason = reason;
        }
        tokio::select! {
            () = stop.cancelled() => return None,
            () = sleep(pause) => {}
        }
    }
    None
}

async fn bind(host: &str, port: u16) -> std::io::Result<BoundListener> {
    let listener = TcpListener::bind((host, port)).await?;
    let address = listener.local_addr()?;
    Ok(BoundListener { listener, address })
}

/// Pauses between attempts to open the listening socket. Infinite.
fn bind_pauses() -> impl Iterator<Item = Duration> {
    let longest = Duration::from_millis(BIND_RETRY_MAX_MS);
    std::iter::successors(
        Some(Duration::from_millis(BIND_RETRY_FIRST_MS)),
        move |pause| Some((*pause * 2).min(longest)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_between_binds_double_up_to_the_longest() {
        let pauses: Vec<_> = bind_pauses()
            .take(9)
            .map(|pause| pause.as_millis())
            .collect();
        let expected = [250, 500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000];
        assert_eq!(pauses, expected);
    }
}
