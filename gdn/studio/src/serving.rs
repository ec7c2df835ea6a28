//! Connections of browsers: so many at one time, and none that only takes its place.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tokio_util::task::TaskTracker;

use crate::limits::{ACCEPT_RETRY_MS, CONNECTIONS_MAX, HEADER_READ_TIMEOUT_MS};

/// Serves connections for ever; with so many open, a further one waits until another has ended.
pub(crate) async fn serve(listener: TcpListener, router: Router) -> Infallible {
    let tasks = TaskTracker::new();
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let place = Arc::clone(&places).acquire_owned().await;
        match listener.accept().await {
            Ok((stream, _)) => {
                let router = router.clone();
                tasks.spawn(async move {
                    connection(stream, router).await;
                    drop(place);
                });
            }
            // Most often there are no file descriptors left for a moment.
            Err(_) => sleep(Duration::from_millis(ACCEPT_RETRY_MS)).await,
        }
    }
}

/// Serves one connection to its end. What a browser does to it is the browser's affair.
async fn connection(stream: TcpStream, router: Router) {
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(HEADER_READ_TIMEOUT_MS))
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    drop(served.await);
}
