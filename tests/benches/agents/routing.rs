//! Cost of forwarding a message between processes: reading frames from a socket, parsing and
//! checking the message, writing the message for the receiver, and writing frames to a socket. The
//! daemon's decision in between is excluded, because it differs by message.

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use goondan_protocol::call::{CallId, CallOrder, CallTarget, Caller, OutgoingCall};
use goondan_protocol::envelope::{Address, Envelope};
use goondan_protocol::frame::FrameCodec;
use goondan_protocol::ipc::{EnvelopeHeader, ToConnector, ToOrchestrator};
use serde_json::json;
use serde_json::value::to_raw_value;

use crate::AgentsBenchResult;

const MESSAGES: usize = 400_000;
const MESSAGE_BYTES: usize = 1_024;
const READ_BYTES: usize = 64 * 1_024;

/// Forwards messages in one thread.
pub(crate) fn messages_per_second() -> AgentsBenchResult {
    let frame = call()?;
    let wire = frame.len();
    let (mut source, mut incoming) = UnixStream::pair()?;
    let (mut outgoing, mut sink) = UnixStream::pair()?;
    let feeder = thread::spawn(move || -> std::io::Result<()> {
        let batch = frame.repeat(READ_BYTES / frame.len());
        let mut rest = MESSAGES * frame.len();
        while rest > 0 {
            let part = batch.get(..rest).unwrap_or(&batch);
            source.write_all(part)?;
            rest -= part.len();
        }
        Ok(())
    });
    let drain = thread::spawn(move || std::io::copy(&mut sink, &mut std::io::sink()));

    let (wall, cpu) = (Instant::now(), thread_time()?);
    let codec = FrameCodec::new();
    let (mut read, mut written) = (BytesMut::new(), BytesMut::new());
    let mut chunk = vec![0; READ_BYTES];
    let mut routed = 0_u64;
    loop {
        let len = incoming.read(&mut chunk)?;
        if len == 0 {
            break;
        }
        read.extend_from_slice(chunk.get(..len).unwrap_or_default());
        while let Some(frame) = codec.decode(&mut read)? {
            routed += 1;
            codec.encode(hand_on(&frame, routed)?.as_slice(), &mut written)?;
        }
        outgoing.write_all(&written)?;
        written.clear();
    }
    let (wall, cpu) = (wall.elapsed(), thread_time()?.saturating_sub(cpu));
    drop(outgoing);
    feeder.join().map_err(|_| "the feeder panicked")??;
    drain.join().map_err(|_| "the drain panicked")??;
    if routed != MESSAGES as u64 {
        return Err(format!("{routed} of {MESSAGES} messages were handed on").into());
    }
    println!(
        "routing, messages of {wire} bytes: {:.0} messages/s of one core, {:.0} messages/s by the clock",
        MESSAGES as f64 / cpu.as_secs_f64(),
        MESSAGES as f64 / wall.as_secs_f64(),
    );
    Ok(())
}

/// The message for the receiver of a call.
fn hand_on(frame: &[u8], number: u64) -> Result<Vec<u8>, Box<dyn Error>> {
    let envelope = Envelope::from_frame(frame)?;
    let ToOrchestrator::Call(call) = ToOrchestrator::from_envelope(&envelope)? else {
        return Err("a call was expected".into());
    };
    let Address::Agent { name, instance_key } = envelope.from else {
        return Err("a call of an agent was expected".into());
    };
    let order = CallOrder {
        call_id: CallId(number),
        caller: Caller {
            agent: name,
            instance_key,
        },
        event_id: None,
        method: call.method,
        params: call.params,
        deadline_ms: call.deadline_ms,
        again_since: None,
    };
    let mut head = EnvelopeHeader::new(Address::Orchestrator, Address::Child);
    head.trace = envelope.trace;
    Ok(ToConnector::Call(Box::new(order)).to_frame(&head)?)
}

/// A frame of an agent's model call, of slightly more than [`MESSAGE_BYTES`] bytes.
fn call() -> Result<Vec<u8>, Box<dyn Error>> {
    let made = |text_bytes: usize| -> Result<Vec<u8>, Box<dyn Error>> {
        let text = "x".repeat(text_bytes);
        let call = ToOrchestrator::Call(Box::new(OutgoingCall {
            call_id: CallId(1),
            target: CallTarget::Model {
                name: "claude".parse()?,
            },
            method: "complete".to_owned(),
            params: to_raw_value(&json!({"messages": [{"role": "user", "content": text}]}))?,
            deadline_ms: 60_000,
            pieces: false,
            idempotent: true,
            recoverable: false,
            again_since: None,
            only_if_ready: false,
            place: None,
            record: None,
        }));
        let from = Address::Agent {
            name: "clerk".parse()?,
            instance_key: "main".parse()?,
        };
        Ok(call.to_frame(&EnvelopeHeader::new(from, Address::Orchestrator))?)
    };
    let rest = MESSAGE_BYTES.saturating_sub(made(0)?.len());
    let mut frame = BytesMut::new();
    FrameCodec::new().encode(made(rest)?.as_slice(), &mut frame)?;
    Ok(frame.to_vec())
}

fn thread_time() -> Result<Duration, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanos = text.split_whitespace().next().ok_or("no times are kept")?;
    Ok(Duration::from_nanos(nanos.parse()?))
}
