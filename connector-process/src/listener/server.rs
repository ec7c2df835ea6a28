//! Sockets, timeouts and limits.
//!
//! `hyper` serves the connections directly instead of `axum::serve`, because only hyper's builder
//! has a timeout for a request's head. Every connection is a task of one tracker and ends because
//! of its client, its age, or the stop of the connector.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router};
use goondan_clock::{sleep, timeout};
use goondan_log::error_chain;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::bind::{self, BoundListener};
use super::connection_limiter::ConnectionLimiter;
use super::http_endpoint::HttpEndpoint;
use super::outbox::MonitoredOutbox;
use super::request::{BodyTimeout, Listener, Remote, receive};
use super::service::InboundService;
use crate::gateway::Gateway;
use crate::limits::{
    ACCEPT_RETRY_MS, BODY_BYTES_HELD_MAX, BODY_RATE_GRACE_MS, BODY_READ_TIMEOUT_MS,
    CONNECTION_AGE_MAX_MS, CONNECTION_CLOSE_TIMEOUT_MS, CONNECTIONS_MAX, HEADER_READ_TIMEOUT_MS,
    HEADERS_PARSED_MAX, READ_BUFFER_BYTES,
};

/// Time limits of a connection.
#[derive(Debug, Clone, Copy)]
struct ConnectionTimeouts {
    header_read: Duration,
    body: BodyTimeout,
    connection_age: Duration,
    connection_close: Duration,
}

impl ConnectionTimeouts {
    const NORMAL: Self = Self {
        header_read: Duration::from_millis(HEADER_READ_TIMEOUT_MS),
        body: BodyTimeout {
            whole: Duration::from_millis(BODY_READ_TIMEOUT_MS),
            grace: Duration::from_millis(BODY_RATE_GRACE_MS),
        },
        connection_age: Duration::from_millis(CONNECTION_AGE_MAX_MS),
        connection_close: Duration::from_millis(CONNECTION_CLOSE_TIMEOUT_MS),
    };

    /// Time limits of a service; the longest valid request also waits for a reply.
    fn of(service: &dyn InboundService) -> Self {
        let reply_wait = service.reply_wait().unwrap_or_default();
        Self {
            connection_close: Self::NORMAL.connection_close + reply_wait,
            ..Self::NORMAL
        }
    }
}

/// Serves requests until `stop`, then finishes those in progress.
pub(crate) async fn run(
    service: Arc<dyn InboundService>,
    gateway: Gateway,
    stop: CancellationToken,
) {
    let HttpEndpoint { host, port, .. } = service.http_endpoint();
    let opened = bind::open(host, *port, &gateway, &stop).await;
    let Some(BoundListener { listener, address }) = opened else {
        return;
    };
    if !service.is_guarded() && !address.ip().is_loopback() {
        tracing::warn!(%address, "{}", service.exposed());
    }
    let path = &service.http_endpoint().path;
    let detail = format!("listening on http://{address}{path}");
    tracing::info!(%address, path, "listening");
    let outbox = service
        .outbox()
        .map(|outbox| Arc::new(MonitoredOutbox::new(outbox)));
    if let Some(outbox) = &outbox {
        gateway.serve(outbox.clone()).await;
    }
    gateway.report(true, detail.clone()).await;
    let watching = outbox.map(|outbox| outbox.watch(gateway.clone(), detail));
    let timeouts = ConnectionTimeouts::of(service.as_ref());
    let serving = serve(listener, service, gateway, timeouts, stop);
    match watching {
        None => serving.await,
        Some(watching) => tokio::select! {
            () = serving => {}
            // Never completes.
            () = watching => {}
        },
    }
}

/// Serves connections until `stop`, then waits for the open ones.
async fn serve(
    listener: TcpListener,
    service: Arc<dyn InboundService>,
    gateway: Gateway,
    timeouts: ConnectionTimeouts,
    stop: CancellationToken,
) {
    let requests = Listener::new(service, gateway, timeouts.body, stop.clone());
    let requests = Arc::new(requests);
    let router = Router::new()
        .fallback(receive)
        .with_state(Arc::clone(&requests));
    let limiter = ConnectionLimiter::new(CONNECTIONS_MAX, BODY_BYTES_HELD_MAX);
    let accepting = async {
        loop {
            match listener.accept().await {
                Ok((stream, address)) => {
                    let permit = limiter.admit(address.ip());
                    let evicted = permit.evicted().clone();
                    let router = router.clone().layer(Extension(Remote { address, permit }));
                    let stop = stop.clone();
                    requests.tasks.spawn(async move {
                        tokio::select! {
                            () = evicted.cancelled() => {
                                tracing::debug!(%address, "evicted a connection");
                            }
                            () = connection(stream, router, timeouts, stop) => {}
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(error = error_chain(&error), "failed to accept a connection");
                    sleep(Duration::from_millis(ACCEPT_RETRY_MS)).await;
                }
            }
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = accepting => {}
    }
    drop(listener);
    requests.tasks.close();
    requests.tasks.wait().await;
}

/// Serves one connection until it ends.
async fn connection(
    stream: TcpStream,
    router: Router,
    timeouts: ConnectionTimeouts,
    stop: CancellationToken,
) {
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(timeouts.header_read)
        .max_headers(HEADERS_PARSED_MAX)
        .max_buf_size(READ_BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut served = pin!(served);
    let result = tokio::select! {
        result = served.as_mut() => Ok(result),
        () = async {
            tokio::select! {
                () = stop.cancelled() => {}
                () = sleep(timeouts.connection_age) => {}
            }
        } => {
            served.as_mut().graceful_shutdown();
            timeout(timeouts.connection_close, served).await
        }
    };
    match result {
        Ok(Ok(())) => {}
        // A broken connection of a client is not an error of the server.
        Ok(Err(error)) => tracing::debug!(error = error_chain(&error), "connection broke"),
        Err(_elapsed) => tracing::debug!("closed a connection at its age limit"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::future::Future;
    use std::net::SocketAddr;

    use goondan_protocol::JsonObject;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::limits::REQUESTS_IN_FLIGHT_MAX;
    use crate::webhook::Webhook;

    /// Time limit of a test.
    const DEADLINE: Duration = Duration::from_secs(30);

    /// Longer than any test, for limits that are not under test.
    const FOREVER: Duration = Duration::from_secs(3600);

    const LENIENT: ConnectionTimeouts = ConnectionTimeouts {
        header_read: FOREVER,
        body: BodyTimeout {
            whole: FOREVER,
            grace: FOREVER,
        },
        connection_age: FOREVER,
        connection_close: FOREVER,
    };

    /// Serves with these timeouts while `client` talks to the address, then stops.
    async fn serve_while<F: Future>(
        timeouts: ConnectionTimeouts,
        client: impl FnOnce(SocketAddr) -> F,
    ) {
        let webhook = Webhook::new(&JsonObject::new(), &BTreeMap::new());
        let service: Arc<dyn InboundService> = Arc::new(webhook);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (gateway, _orders) = Gateway::new(CancellationToken::new());
        let stop = CancellationToken::new();
        let serving = serve(listener, service, gateway, timeouts, stop.clone());
        let talking = async {
            timeout(DEADLINE, client(address)).await.unwrap();
            stop.cancel();
        };
        tokio::join!(serving, talking);
    }

    /// Sends a request and reads until the server closes.
    async fn answer_to(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        String::from_utf8(answer).unwrap()
    }

    #[tokio::test]
    async fn incomplete_request_head_is_disconnected() {
        let timeouts = ConnectionTimeouts {
            header_read: Duration::from_millis(20),
            ..LENIENT
        };
        serve_while(timeouts, |address| async move {
            assert_eq!(answer_to(address, "POST / HTTP/1.1\r\nhost:").await, "");
            assert_eq!(answer_to(address, "").await, "");
            // A finished request no longer counts, but the silence after it does.
            let answer = answer_to(address, "PUT / HTTP/1.1\r\nhost: x\r\n\r\n").await;
            assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
        })
        .await;
    }

    #[tokio::test]
    async fn incomplete_request_body_gets_a_timeout_response() {
        let short = Duration::from_millis(20);
        for (whole, grace) in [(short, FOREVER), (FOREVER, short)] {
            let timeouts = ConnectionTimeouts {
                body: BodyTimeout { whole, grace },
                ..LENIENT
            };
            serve_while(timeouts, |address| async move {
                let request = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nhalf";
                let answer = answer_to(address, request).await;
                assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
                assert!(answer.contains(r#""code":"too_slow""#), "{answer}");
            })
            .await;
        }
    }

    #[tokio::test]
    async fn idle_connections_do_not_delay_requests() {
        serve_while(LENIENT, |address| async move {
            let mut idle = Vec::new();
            for _ in 0..CONNECTIONS_MAX + 20 {
                idle.push(TcpStream::connect(address).await.unwrap());
            }
            // All time limits are infinite here: the request is answered because another connection
            // was evicted.
            let request = "PUT / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
            let answer = answer_to(address, request).await;
            assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
            let mut some = [0; 1];
            let oldest = idle.first_mut().unwrap();
            assert!(!matches!(oldest.read(&mut some).await, Ok(1..)));
        })
        .await;
    }

    #[tokio::test]
    async fn bodies_that_never_end_take_no_slots() {
        serve_while(LENIENT, |address| async move {
            let mut slow = Vec::new();
            for _ in 0..=REQUESTS_IN_FLIGHT_MAX {
                let mut stream = TcpStream::connect(address).await.unwrap();
                let request = b"POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n\
                                content-length: 9\r\n\r\n";
                stream.write_all(request).await.unwrap();
                // The server requests the body, so it is reading.
                let mut go_on = [0; 25];
                stream.read_exact(&mut go_on).await.unwrap();
                assert!(go_on.starts_with(b"HTTP/1.1 100"));
                stream.write_all(b"half").await.unwrap();
                slow.push(stream);
            }
            let request = "POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
                           content-length: 1\r\n\r\n ";
            let answer = answer_to(address, request).await;
            assert!(answer.contains("no_input"), "{answer}");
            drop(slow);
        })
        .await;
    }

    #[tokio::test]
    async fn a_connection_ends_by_its_age_even_if_it_never_pauses() {
        let timeouts = ConnectionTimeouts {
            connection_age: Duration::from_millis(20),
            connection_close: Duration::from_millis(20),
            ..LENIENT
        };
        serve_while(timeouts, |address| async move {
            assert_eq!(answer_to(address, "").await, "");
            assert_eq!(answer_to(address, "POST / HTTP/1.1\r\nhost:").await, "");
            let mut stream = TcpStream::connect(address).await.unwrap();
            let request = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";
            // A connection reset is also an acceptable end.
            while stream.write_all(request).await.is_ok() {
                let mut some = [0; 1024];
                if !matches!(stream.read(&mut some).await, Ok(1..)) {
                    break;
                }
            }
        })
        .await;
    }
}
