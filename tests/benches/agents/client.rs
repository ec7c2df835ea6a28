//! A client of the control API with many concurrent requests.

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use goondan_protocol::version::Version;
use goondan_tests::Home;
use serde_json::{Value, json};

/// One connection to the daemon of a home.
pub(crate) struct BenchClient {
    stream: UnixStream,
    received: Vec<u8>,
    last_id: u64,
    workspace_id: String,
}

impl BenchClient {
    pub(crate) fn connect(home: &Home) -> Result<Self, Box<dyn Error>> {
        let mut client = Self::connect_to_daemon(home)?;
        let opened = client.call("workspace.list", &json!({}))?;
        let id = opened
            .pointer("/workspaces/0/workspaceId")
            .and_then(Value::as_str);
        id.ok_or("no workspace runs")?
            .clone_into(&mut client.workspace_id);
        Ok(client)
    }

    /// As [`Self::connect`], whether a workspace runs or not.
    pub(crate) fn connect_to_daemon(home: &Home) -> Result<Self, Box<dyn Error>> {
        let stream = UnixStream::connect(home.state_root().join("run/orchestrator.sock"))?;
        let mut client = Self {
            stream,
            received: Vec::new(),
            last_id: 0,
            workspace_id: String::new(),
        };
        client.call("daemon.connect", &json!({"version": Version::current()}))?;
        Ok(client)
    }

    fn call(&mut self, method: &str, params: &Value) -> Result<Value, Box<dyn Error>> {
        let id = self.post(method, params)?;
        loop {
            let (answered, result) = self.next_answer()?;
            if answered == id {
                return Ok(result);
            }
        }
    }

    fn post(&mut self, method: &str, params: &Value) -> Result<u64, Box<dyn Error>> {
        self.last_id += 1;
        let request =
            json!({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params});
        let body = serde_json::to_vec(&request)?;
        let mut frame = u32::try_from(body.len())?.to_be_bytes().to_vec();
        frame.extend_from_slice(&body);
        self.stream.write_all(&frame)?;
        Ok(self.last_id)
    }

    /// Sends an event and requests its result; returns the request id.
    pub(crate) fn ask(&mut self, conversation: &str) -> Result<u64, Box<dyn Error>> {
        self.say(conversation, "Go on.")
    }

    /// As [`Self::ask`], with a text.
    pub(crate) fn say(&mut self, conversation: &str, text: &str) -> Result<u64, Box<dyn Error>> {
        let params = json!({
            "workspaceId": self.workspace_id, "conversationKey": conversation, "input": text,
            "wait": true,
        });
        self.post("event.send", &params)
    }

    /// Makes a request without parameters, and waits for its result.
    pub(crate) fn ask_method(&mut self, method: &str) -> Result<Value, Box<dyn Error>> {
        self.call(method, &json!({}))
    }

    /// Sends an event and waits until its turn is committed.
    pub(crate) fn ask_and_wait(&mut self, conversation: &str) -> Result<(), Box<dyn Error>> {
        let asked = self.ask(conversation)?;
        while self.next_answer()?.0 != asked {}
        Ok(())
    }

    /// Returns the next response with its request id. Notifications are skipped.
    pub(crate) fn next_answer(&mut self) -> Result<(u64, Value), Box<dyn Error>> {
        loop {
            let mut frame: Value = serde_json::from_slice(&self.next_frame()?)?;
            if let Some(error) = frame.get("error") {
                return Err(format!("the daemon refused: {error}").into());
            }
            if let Some(id) = frame.get("id").and_then(Value::as_u64) {
                let result = frame.get_mut("result").map(Value::take);
                return Ok((id, result.unwrap_or_default()));
            }
        }
    }

    fn next_frame(&mut self) -> Result<Vec<u8>, Box<dyn Error>> {
        loop {
            if let Some((header, rest)) = self.received.split_first_chunk::<4>() {
                let len = usize::try_from(u32::from_be_bytes(*header))?;
                if let Some(body) = rest.get(..len) {
                    let body = body.to_vec();
                    self.received.drain(..4 + len);
                    return Ok(body);
                }
            }
            let mut chunk = [0; 65_536];
            let read = self.stream.read(&mut chunk)?;
            if read == 0 {
                return Err("the daemon closed the connection".into());
            }
            self.received.extend(chunk.iter().take(read));
        }
    }
}
