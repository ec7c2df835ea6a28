//! Connect timeout that ignores suspended time, which the HTTP client's own timeout would count.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use goondan_clock::timeout;
use tower_layer::Layer;
use tower_service::Service;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Layer that adds the timeout to a connector.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConnectTimeout(pub(super) Duration);

impl<S> Layer<S> for ConnectTimeout {
    type Service = TimedConnector<S>;

    fn layer(&self, inner: S) -> TimedConnector<S> {
        let connect_timeout = self.0;
        TimedConnector {
            inner,
            connect_timeout,
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct TimedConnector<S> {
    inner: S,
    connect_timeout: Duration,
}

impl<S, R> Service<R> for TimedConnector<S>
where
    S: Service<R>,
    S::Future: Send + 'static,
    S::Response: 'static,
    S::Error: Into<BoxError> + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let (connecting, connect_timeout) = (self.inner.call(request), self.connect_timeout);
        Box::pin(async move {
            match timeout(connect_timeout, connecting).await {
                Ok(connected) => connected.map_err(Into::into),
                Err(_elapsed) => {
                    let ms = connect_timeout.as_millis();
                    let message = format!("no connection within {ms} ms");
                    Err(io::Error::new(io::ErrorKind::TimedOut, message).into())
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connector that never connects.
    #[derive(Clone)]
    struct UnresponsiveConnector;

    impl Service<()> for UnresponsiveConnector {
        type Response = ();
        type Error = io::Error;
        type Future = std::future::Pending<io::Result<()>>;

        fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, (): ()) -> Self::Future {
            std::future::pending()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn sup_9_connecting_is_given_up_and_a_pause_does_not_count() {
        let mut connecting = ConnectTimeout(Duration::from_secs(10))
            .layer(UnresponsiveConnector)
            .call(());
        let begun = tokio::time::Instant::now();
        let mut poll_once = async || {
            std::future::poll_fn(|cx| Poll::Ready(connecting.as_mut().poll(cx).is_pending())).await
        };
        assert!(poll_once().await);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(poll_once().await);
        let error = connecting.await.unwrap_err();
        assert_eq!(error.to_string(), "no connection within 10000 ms");
        assert!(begun.elapsed() >= Duration::from_secs(69));
    }
}
