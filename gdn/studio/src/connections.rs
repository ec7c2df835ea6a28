//! Connections of browsers, limited in number.
//!
//! A connection counts as idle unless a request of a logged-in page is in progress. When the limit
//! is reached, the oldest idle connection is closed, so that connections that send nothing cannot
//! block new ones.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::task::TaskTracker;

use crate::limits::{ACCEPT_RETRY_MS, CONNECTIONS_MAX, HEADER_READ_TIMEOUT_MS};

pub(crate) async fn serve(listener: TcpListener, router: Router) -> Infallible {
    let tasks = TaskTracker::new();
    let seats = Seats::new(CONNECTIONS_MAX);
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let seat = seats.take().await;
                let router = router.clone().layer(Extension(Arc::clone(&seat)));
                tasks.spawn(async move {
                    tokio::select! {
                        () = connection(stream, router) => {}
                        () = seat.gives_way.notified() => {}
                    }
                });
            }
            // Usually a temporary lack of file descriptors.
            Err(_) => sleep(Duration::from_millis(ACCEPT_RETRY_MS)).await,
        }
    }
}

/// Serves one connection until it ends. Errors of the browser's connection are ignored.
async fn connection(stream: TcpStream, router: Router) {
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(HEADER_READ_TIMEOUT_MS))
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    drop(served.await);
}

#[derive(Debug)]
struct Seats {
    max: usize,
    taken: Mutex<ConnectionTable>,
    /// A place is free, or a connection is idle again.
    freed: Notify,
}

#[derive(Debug, Default)]
struct ConnectionTable {
    /// By number, which rises: the oldest is first.
    connections: BTreeMap<u64, ConnectionEntry>,
    next: u64,
}

#[derive(Debug)]
struct ConnectionEntry {
    /// Requests that are worked on.
    requests: usize,
    gives_way: Arc<Notify>,
}

impl Seats {
    fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            taken: Mutex::default(),
            freed: Notify::new(),
        })
    }

    fn taken(&self) -> MutexGuard<'_, ConnectionTable> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one more connection. Waits only while a request is worked on in each of the others.
    async fn take(self: &Arc<Self>) -> Arc<Seat> {
        loop {
            let freed = self.freed.notified();
            if let Some(seat) = self.try_take() {
                return seat;
            }
            freed.await;
        }
    }

    fn try_take(self: &Arc<Self>) -> Option<Arc<Seat>> {
        let mut taken = self.taken();
        if taken.connections.len() >= self.max {
            let mut connections = taken.connections.iter();
            let (number, _) = connections.find(|(_, standing)| standing.requests == 0)?;
            let number = *number;
            let idle = taken.connections.remove(&number)?;
            idle.gives_way.notify_one();
        }
        let number = taken.next;
        taken.next += 1;
        let gives_way = Arc::new(Notify::new());
        let standing = ConnectionEntry {
            requests: 0,
            gives_way: Arc::clone(&gives_way),
        };
        taken.connections.insert(number, standing);
        Some(Arc::new(Seat {
            seats: Arc::clone(self),
            number,
            gives_way,
        }))
    }

    /// Changes how many requests of a connection are worked on.
    fn change(&self, number: u64, change: impl FnOnce(usize) -> usize) {
        if let Some(standing) = self.taken().connections.get_mut(&number) {
            standing.requests = change(standing.requests);
            if standing.requests == 0 {
                self.freed.notify_one();
            }
        }
    }
}

/// The place of one connection.
#[derive(Debug)]
pub(crate) struct Seat {
    seats: Arc<Seats>,
    number: u64,
    gives_way: Arc<Notify>,
}

impl Seat {
    /// A request of a page that has logged in is worked on until this is dropped.
    pub(crate) fn work(self: &Arc<Self>) -> ActiveRequest {
        self.seats.change(self.number, |requests| requests + 1);
        ActiveRequest(Arc::clone(self))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.taken().connections.remove(&self.number);
        self.seats.freed.notify_one();
    }
}

/// A request that is worked on.
#[derive(Debug)]
pub(crate) struct ActiveRequest(Arc<Seat>);

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let change = |requests: usize| requests.saturating_sub(1);
        self.0.seats.change(self.0.number, change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn obs_5_the_oldest_idle_connection_gives_way_and_no_busy_one() {
        let seats = Seats::new(2);
        let (first, second) = (seats.take().await, seats.take().await);
        let working = first.work();
        let third = seats.take().await;
        second.gives_way.notified().await;
        let _also = third.work();
        assert!(seats.try_take().is_none());
        drop(working);
        let _fourth = seats.take().await;
        first.gives_way.notified().await;
    }
}
