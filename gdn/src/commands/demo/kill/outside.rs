//! The outside service of the demo: each event has one effect there, which is counted.
//!
//! It works in the demo's process, so it survives every kill. As many services, it recognizes a repeated key.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::commands::demo::verdict::DemoEvent;

/// Header with the key of a request.
const KEY_HEADER: &str = "idempotency-key";

/// Time between an effect and its answer, in milliseconds, so that kills hit between both.
const ANSWER_MS: u64 = 20;

/// Pause after a connection that could not be accepted, in milliseconds.
const PAUSE_MS: u64 = 50;

/// Largest body that is read, in bytes.
const BODY_BYTES_MAX: usize = 4_096;

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
    pub(super) async fn listen() -> io::Result<Self> {
        Ok(Self {
            listener: TcpListener::bind(("127.0.0.1", 0)).await?,
            effects: Arc::default(),
        })
    }

    pub(super) fn port(&self) -> io::Result<u16> {
        Ok(self.listener.local_addr()?.port())
    }

    pub(super) fn effects(&self) -> MutexGuard<'_, Effects> {
        lock(&self.effects)
    }

    /// Answers requests.
    pub(super) async fn serve(&self) -> Infallible {
        let mut answers = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    // A client that was killed closes its connection.
                    Ok((stream, _)) => drop(answers.spawn(answer(stream, Arc::clone(&self.effects)))),
                    Err(_) => sleep(Duration::from_millis(PAUSE_MS)).await,
                },
                Some(_) = answers.join_next() => {}
            }
        }
    }
}

fn lock(effects: &Mutex<Effects>) -> MutexGuard<'_, Effects> {
    effects.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Performs one request, whose body is the input of its event.
async fn answer(stream: TcpStream, effects: Arc<Mutex<Effects>>) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let (mut key, mut bytes) = (String::new(), 0);
    let mut line = String::new();
    // The first line is the only one without a colon after a name; it is passed over.
    while stream.read_line(&mut line).await? > 0 && !line.trim().is_empty() {
        if let Some((name, value)) = line.split_once(':') {
            if name.eq_ignore_ascii_case(KEY_HEADER) {
                value.trim().clone_into(&mut key);
            } else if name.eq_ignore_ascii_case("content-length") {
                bytes = value.trim().parse().unwrap_or(0);
            }
        }
        line.clear();
    }
    let mut body = vec![0; bytes.min(BODY_BYTES_MAX)];
    stream.read_exact(&mut body).await?;
    lock(&effects).perform(key, String::from_utf8_lossy(&body).into_owned());
    sleep(Duration::from_millis(ANSWER_MS)).await;
    let answer = b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    stream.write_all(answer).await?;
    stream.flush().await
}

#[cfg(test)]
mod tests {
    use goondan_protocol::ids::InstanceKey;

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
        let service = OutsideService::listen().await.unwrap();
        let port = service.port().unwrap();
        let ask = async {
            for key in ["k1", "k1", "k2"] {
                let status = post(port, key).await;
                assert!(status.starts_with("HTTP/1.1 201"), "{status}");
            }
        };
        tokio::select! {
            never = service.serve() => match never {},
            () = ask => {}
        }
        let verdict = service.effects().judge(&[], &BTreeSet::new());
        assert_eq!((verdict.effects, verdict.recognized), (2, 1));
    }
}
