//! The outside service of the demo: each event has one effect there, which is counted.
//!
//! It works in the demo's process, so it survives every kill. As many services, it recognizes a repeated key.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::routing::post;
use serde::Serialize;
use tokio::time::sleep;

use crate::commands::demo::verdict::DemoEvent;

/// Header with the key of a request.
const KEY_HEADER: &str = "idempotency-key";

/// Time between an effect and its answer, in milliseconds, so that kills hit between both.
const ANSWER_MS: u64 = 20;

/// Effects that took place.
#[derive(Debug, Default)]
pub(super) struct Effects {
    /// Inputs of the events, by the keys of the requests.
    by_key: BTreeMap<String, String>,
    /// Requests that repeated an earlier one.
    recognized: usize,
}

/// Outcome of all effects.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OutsideVerdict {
    effects: usize,
    /// Requests that the service recognized as repeated.
    recognized: usize,
    /// Inputs with more than one effect.
    pub(super) doubled: Vec<String>,
    /// Accepted inputs without an effect.
    pub(super) lost: Vec<String>,
}

impl Effects {
    fn perform(&mut self, key: String, input: String) {
        match self.by_key.entry(key) {
            Entry::Vacant(place) => {
                place.insert(input);
            }
            Entry::Occupied(_) => self.recognized += 1,
        }
    }

    /// Judges the effects of all events. An event that an operator retried runs in a new turn, which may have its own
    /// effect.
    pub(super) fn judge(&self, events: &[DemoEvent], retried: &BTreeSet<String>) -> OutsideVerdict {
        let mut times = BTreeMap::<&str, usize>::new();
        for input in self.by_key.values() {
            *times.entry(input).or_default() += 1;
        }
        let mut verdict = OutsideVerdict {
            effects: self.by_key.len(),
            recognized: self.recognized,
            ..OutsideVerdict::default()
        };
        for event in events {
            match times.get(event.input.as_str()) {
                None if event.is_accepted => verdict.lost.push(event.input.clone()),
                Some(2..) if !retried.contains(&event.input) => {
                    verdict.doubled.push(event.input.clone());
                }
                None | Some(_) => {}
            }
        }
        verdict
    }
}

impl OutsideVerdict {
    /// True if each accepted event had its effect once.
    pub(super) fn is_good(&self) -> bool {
        self.doubled.is_empty() && self.lost.is_empty()
    }

    /// The result in one line.
    pub(super) fn in_words(&self) -> String {
        let (doubled, lost) = (self.doubled.len(), self.lost.len());
        let effects = self.effects;
        format!("effects: {effects}, doubled {doubled}, lost {lost}")
    }
}

/// The service, which listens before the project is written.
#[derive(Debug)]
pub(super) struct OutsideService {
    listener: TcpListener,
    effects: Arc<Mutex<Effects>>,
}

impl OutsideService {
    pub(super) fn listen() -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            effects: Arc::default(),
        })
    }

    pub(super) fn port(&self) -> io::Result<u16> {
        Ok(self.listener.local_addr()?.port())
    }

    pub(super) fn effects(&self) -> MutexGuard<'_, Effects> {
        lock(&self.effects)
    }

    /// Answers requests. Returns why it cannot.
    pub(super) async fn serve(&self) -> io::Error {
        let serving = async {
            let listener = tokio::net::TcpListener::from_std(self.listener.try_clone()?)?;
            let effects = Arc::clone(&self.effects);
            let router = Router::new().route("/effects", post(perform));
            axum::serve(listener, router.with_state(effects)).await
        };
        let ended = serving.await;
        ended
            .err()
            .unwrap_or_else(|| io::Error::other("the outside service of the demo has ended"))
    }
}

fn lock(effects: &Mutex<Effects>) -> MutexGuard<'_, Effects> {
    effects.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Performs one effect. The body is the input of its event.
async fn perform(
    State(effects): State<Arc<Mutex<Effects>>>,
    headers: HeaderMap,
    input: String,
) -> StatusCode {
    let key = headers.get(KEY_HEADER).map(HeaderValue::to_str);
    let Some(Ok(key)) = key else {
        return StatusCode::BAD_REQUEST;
    };
    lock(&effects).perform(key.to_owned(), input);
    sleep(Duration::from_millis(ANSWER_MS)).await;
    StatusCode::CREATED
}

#[cfg(test)]
mod tests {
    use goondan_protocol::ids::InstanceKey;
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    use tokio::net::TcpStream;

    use super::*;

    #[test]
    fn rel_2_doubled_and_lost_effects_are_reported() {
        let event = |input: &str, is_accepted| DemoEvent {
            conversation: InstanceKey::new("c").unwrap(),
            input: input.to_owned(),
            is_accepted,
        };
        let mut effects = Effects::default();
        for (key, input) in [("1", "a"), ("1", "a"), ("2", "b"), ("3", "b"), ("4", "r")] {
            effects.perform(key.to_owned(), input.to_owned());
        }
        effects.perform("5".to_owned(), "r".to_owned());
        let retried = BTreeSet::from(["r".to_owned()]);
        let good = [event("a", true), event("r", true), event("x", false)];
        let verdict = effects.judge(&good, &retried);
        assert!(verdict.is_good(), "{verdict:?}");
        assert_eq!((verdict.effects, verdict.recognized), (5, 1));
        let bad = [event("b", true), event("c", true)];
        let verdict = effects.judge(&bad, &retried);
        assert_eq!(verdict.doubled, ["b"]);
        assert_eq!(verdict.lost, ["c"]);
        assert_eq!(verdict.in_words(), "effects: 5, doubled 1, lost 1");
    }

    /// Status line of the answer to a request.
    async fn post(port: u16, key: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let request = format!(
            "POST /effects HTTP/1.1\r\nHost: shop\r\nIdempotency-Key: {key}\r\n\
             Content-Length: 7\r\nConnection: close\r\n\r\nevent a"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut status = String::new();
        let mut answer = BufReader::new(stream);
        answer.read_line(&mut status).await.unwrap();
        status
    }

    #[tokio::test]
    async fn rel_2_the_outside_service_recognizes_a_repeated_key() {
        let service = OutsideService::listen().unwrap();
        let port = service.port().unwrap();
        let ask = async {
            for key in ["k1", "k1", "k2"] {
                let status = post(port, key).await;
                assert!(status.starts_with("HTTP/1.1 201"), "{status}");
            }
        };
        tokio::select! {
            failed = service.serve() => panic!("{failed}"),
            () = ask => {}
        }
        let verdict = service.effects().judge(&[], &BTreeSet::new());
        assert_eq!((verdict.effects, verdict.recognized), (2, 1));
    }
}
