//! Signals of the service manager and the terminal, as inputs of the core (`SUP-6`).

use futures_util::StreamExt as _;
use goondan_core::CoreInput;
use sd_notify::NotifyState;
use signal_hook::consts::SIGHUP;
use signal_hook_tokio::Signals;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::event::ShellEvent;

/// Forwards signals until the daemon ends. The first request to stop is orderly, the next is not.
///
/// The end comes from a token. `Handle::close` would not do: in signal-hook 0.4.6 a stream that is
/// closed while it looks for signals waits forever, and the daemon with it.
pub(super) async fn forward(
    mut signals: Signals,
    events: mpsc::Sender<ShellEvent>,
    ending: CancellationToken,
) {
    let mut is_stopping = false;
    loop {
        let signal = tokio::select! {
            signal = signals.next() => signal,
            () = ending.cancelled() => None,
        };
        let Some(signal) = signal else { break };
        let input = match signal {
            SIGHUP => CoreInput::Reload,
            _ if is_stopping => CoreInput::ForceStop,
            _ => {
                is_stopping = true;
                drop(sd_notify::notify(&[NotifyState::Stopping]));
                CoreInput::Stop {
                    grace_period_ms: None,
                }
            }
        };
        drop(events.send(ShellEvent::Input(input)).await);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// With `Handle::close` one of about 300 ends was never seen.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn sup_6_daemon_end_right_after_a_signal_ends_the_forwarding() {
        for attempt in 0..3_000 {
            let signals = Signals::new([SIGHUP]).unwrap();
            let (events, mut incoming) = mpsc::channel(1);
            let ending = CancellationToken::new();
            let mut forwarding = tokio::task::JoinSet::new();
            forwarding.spawn(forward(signals, events, ending.clone()));
            signal_hook::low_level::raise(SIGHUP).unwrap();
            assert!(matches!(
                incoming.recv().await,
                Some(ShellEvent::Input(CoreInput::Reload))
            ));
            drop(incoming);
            for _ in 0..attempt % 50 {
                std::hint::spin_loop();
            }
            ending.cancel();
            let ended = forwarding.join_next();
            let ended = tokio::time::timeout(Duration::from_secs(60), ended).await;
            ended.expect("the forwarding ends").unwrap().unwrap();
        }
    }
}
