//! Golden bytes of every IPC message. A change requires a higher
//! [`crate::version::PROTOCOL_VERSION`].

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{EnvelopeHeader, ToAgent, ToChild, ToConnector, ToOrchestrator};
use crate::envelope::{Address, Envelope};

const TRACE: &str =
    r#""trace":{"traceId":"4bf92f3577b34da6a3ce929d0e0e4736","spanId":"00f067aa0ba902b7"}"#;

/// One body for each message type from a child, without its trace.
const FROM_CHILD: &[&str] = &[
    r#"{"type":"hello","from":"child","to":"orchestrator","payload":{"version":{"protocol":3,"goondan":"0.1.0"},"role":"agent","pid":42}}"#,
    r#"{"type":"pong","from":"agent:a:k","to":"orchestrator","payload":{"nonce":9}}"#,
    r#"{"type":"confined","from":"agent:a:k","to":"orchestrator","payload":{"rights":["files","signals","abstract-sockets","system-calls"]}}"#,
    r#"{"type":"confined","from":"agent:a:k","to":"orchestrator","payload":{"rights":["system-calls"],"lacks":"namespaces are not given: EPERM"}}"#,
    r#"{"type":"status","from":"connector:hook","to":"orchestrator","payload":{"ready":true,"detail":"listening on 127.0.0.1:8080"}}"#,
    r#"{"type":"shutdown_ack","from":"agent:a:k","to":"orchestrator","payload":{}}"#,
    r#"{"type":"event","id":3,"from":"connector:hook","to":"orchestrator","payload":{"id":"e1","name":"request","input":"hi","instanceKey":"telegram:1","properties":{"path":"/x"}}}"#,
    r#"{"type":"state.get","id":4,"from":"connector:hook","to":"orchestrator","payload":{}}"#,
    r#"{"type":"state.set","id":5,"from":"connector:hook","to":"orchestrator","payload":{"state":{"a":1}}}"#,
    r#"{"type":"task.started","from":"task:t-1","to":"orchestrator","payload":{"pid":1,"startTime":2}}"#,
    r#"{"type":"task.not_started","from":"task:t-1","to":"orchestrator","payload":{"error":"e"}}"#,
    r#"{"type":"task.told","from":"task:t-1","to":"orchestrator","payload":{"events":[{"text":"x"}]}}"#,
    r#"{"type":"task.output","from":"task:t-1","to":"orchestrator","payload":{"stream":"stdout","text":"x"}}"#,
    r#"{"type":"task.alive","from":"task:t-1","to":"orchestrator","payload":{}}"#,
    r#"{"type":"task.exited","from":"task:t-1","to":"orchestrator","payload":{"code":0}}"#,
    r#"{"type":"agent.not_started","from":"agent:a:k","to":"orchestrator","payload":{"error":"cannot open the work directory"}}"#,
    r#"{"type":"conversation.load","id":1,"from":"agent:a:k","to":"orchestrator","payload":{"offset":0}}"#,
    r#"{"type":"turn.append","from":"agent:a:k","to":"orchestrator","payload":{"turnId":"t","seq":1,"event":{"type":"truncate"}}}"#,
    r#"{"type":"turn.complete","from":"agent:a:k","to":"orchestrator","payload":{"turnId":"t","lastSeq":2,"outcome":{"status":"completed","reply":"hi"},"answered":["t.1:q0:a"]}}"#,
    r#"{"type":"agent.ask","id":5,"from":"agent:a:k","to":"orchestrator","payload":{"turnId":"t","step":1,"call":0,"question":{"op":"request","agent":"b","instanceKey":"k2","input":"hi","wait":true,"timeoutMs":60000}}}"#,
    r#"{"type":"agent.ask","id":40,"from":"agent:a:k","to":"orchestrator","payload":{"turnId":"t","step":1,"call":0,"question":{"op":"proposal.diff","of":{"agent":"b"},"offset":7}}}"#,
    r#"{"type":"agent.ask","id":41,"from":"agent:a:k","to":"orchestrator","payload":{"turnId":"t","step":1,"call":0,"question":{"op":"proposal.check","of":{"task":"t-1"}}}}"#,
    r#"{"type":"agent.ask","id":42,"from":"agent:a:k","to":"orchestrator","payload":{"turnId":"t","step":1,"call":0,"question":{"op":"proposal.apply","of":{"agent":"b"},"digest":"00"}}}"#,
    r#"{"type":"agent.ask","id":6,"from":"agent:a:k","to":"orchestrator","payload":{"turnId":"t","step":1,"call":1,"question":{"op":"send","agent":"b","input":"hi"}}}"#,
    r#"{"type":"agent.ask","id":7,"from":"agent:a:k","to":"orchestrator","payload":{"turnId":"t","step":1,"call":2,"question":{"op":"spawn","agent":"b","input":"hi"}}}"#,
    r#"{"type":"agent.ask","id":8,"from":"agent:a:k","to":"orchestrator","payload":{"turnId":"t","step":1,"call":3,"question":{"op":"list","scope":"conversation"}}}"#,
    r#"{"type":"agent.ask","id":9,"from":"agent:a:k","to":"orchestrator","payload":{"turnId":"t","step":1,"call":4,"question":{"op":"catalog"}}}"#,
    r#"{"type":"agent.ask","id":20,"from":"agent:a:k","to":"orchestrator","payload":{"turnId":"t","step":1,"call":5,"question":{"op":"sandbox.prepare","agent":"b","files":["src"],"mayCreate":["doc"]}}}"#,
    r#"{"type":"agent.ask","id":21,"from":"agent:a:k","to":"orchestrator","payload":{"turnId":"t","step":1,"call":6,"question":{"op":"sandbox.status","agent":"b"}}}"#,
    r#"{"type":"agent.ask","id":24,"from":"agent:a:k","to":"orchestrator","payload":{"turnId":"t","step":1,"call":7,"question":{"op":"task.create","title":"t","description":"d","agent":"b","phases":2,"maxTokens":5}}}"#,
    r#"{"type":"agent.ask","id":25,"from":"agent:a:k","to":"orchestrator","payload":{"turnId":"t","step":1,"call":8,"question":{"op":"task.status","taskId":"t-1"}}}"#,
    r#"{"type":"agent.ask","id":26,"from":"agent:a:k","to":"orchestrator","payload":{"turnId":"t","step":1,"call":9,"question":{"op":"task.wait","taskId":"t-1","timeoutMs":1000}}}"#,
    r#"{"type":"agent.ask","id":22,"from":"agent:a:k","to":"orchestrator","payload":{"turnId":"t","step":1,"call":7,"question":{"op":"proposal.submit","summary":"s","testLog":"t"}}}"#,
    r#"{"type":"agent.ask","id":23,"from":"agent:a:k","to":"orchestrator","payload":{"turnId":"t","step":1,"call":8,"question":{"op":"proposal.status"}}}"#,
    r#"{"type":"agent.ask","id":27,"from":"agent:a:k","to":"orchestrator","payload":{"turnId":"t","step":1,"call":10,"question":{"op":"approval","toolCallId":"c","toolName":"bash__exec","input":{"command":"ls"}}}}"#,
    r#"{"type":"agent.ask","id":28,"from":"agent:a:k","to":"orchestrator","payload":{"turnId":"t","step":1,"call":11,"question":{"op":"bundle","ask":{"do":"commit","message":"m"}}}}"#,
    r#"{"type":"agent.ask","id":29,"from":"agent:a:k","to":"orchestrator","payload":{"turnId":"t","step":1,"call":12,"question":{"op":"event.read","eventId":"gh:d-1"}}}"#,
    r#"{"type":"agent.ask","id":30,"from":"agent:a:k","to":"orchestrator","payload":{"turnId":"t","step":1,"call":13,"question":{"op":"event.list"}}}"#,
    r#"{"type":"question.ask","id":6,"from":"connector:kit","to":"orchestrator","payload":{"callId":1,"message":"Which?","schema":{"type":"object","properties":{"f":{"type":"string"}}},"timeoutMs":600000}}"#,
    r#"{"type":"event.ignored","from":"connector:hook","to":"orchestrator","payload":{"reason":"otherPlace"}}"#,
    r#"{"type":"reply.await","id":8,"from":"connector:hook","to":"orchestrator","payload":{"instanceKey":"hook:k","eventId":"e1"}}"#,
    r#"{"type":"reply.forget","from":"connector:hook","to":"orchestrator","payload":{"requestIds":[8,9]}}"#,
    r#"{"type":"decisions.follow","from":"connector:hook","to":"orchestrator","payload":{"known":["a-1"]}}"#,
    r#"{"type":"decision.press","id":9,"from":"connector:hook","to":"orchestrator","payload":{"decisionId":"a-1","answer":{"button":"approve"},"user":"5"}}"#,
    r#"{"type":"decision.press","id":9,"from":"connector:hook","to":"orchestrator","payload":{"decisionId":"t-1","answer":{"text":"blue"},"user":"5"}}"#,
    r#"{"type":"metrics.get","id":7,"from":"connector:metrics","to":"orchestrator","payload":{}}"#,
    r#"{"type":"question.withdraw","from":"connector:kit","to":"orchestrator","payload":{"requestId":6}}"#,
    r#"{"type":"observe","from":"agent:a:k","to":"orchestrator","payload":{"type":"turn.started","timestamp":"2026-01-01T00:00:00.000Z","traceId":"4bf92f3577b34da6a3ce929d0e0e4736","spanId":"00f067aa0ba902b7","agentName":"a","instanceKey":"k","turnId":"t"}}"#,
    r#"{"type":"call","from":"agent:a:k","to":"orchestrator","payload":{"callId":7,"target":{"kind":"model","name":"claude"},"method":"complete","params":{"messages":[]},"deadlineMs":1000,"pieces":true,"idempotent":true,"place":{"turnId":"t","stepId":"t.1"},"record":{"seq":2,"messageId":"t.1:a"}}}"#,
    r#"{"type":"call","from":"agent:a:k","to":"orchestrator","payload":{"callId":8,"target":{"kind":"connection","name":"bot"},"method":"send","params":{"text":"hi"},"deadlineMs":1000,"place":{"turnId":"t","stepId":"t.1","toolCallId":"c"}}}"#,
    r#"{"type":"call.piece","from":"model:claude","to":"orchestrator","payload":{"callId":1,"piece":{"type":"text","text":"h"}}}"#,
    r#"{"type":"call.result","from":"model:claude","to":"orchestrator","payload":{"callId":1,"outcome":{"ok":{"content":"hi","metadata":{}}}}}"#,
    r#"{"type":"call.result","from":"connector:bot","to":"orchestrator","payload":{"callId":1,"outcome":{"error":{"code":"rateLimited","message":"too many","suggestion":"wait","retryable":true,"retryAfterMs":2000}}}}"#,
    r#"{"type":"call.cancel","from":"agent:a:k","to":"orchestrator","payload":{"callId":7}}"#,
];

/// One body for each message type from the orchestrator, without its trace.
const TO_CHILD: &[&str] = &[
    r#"{"type":"welcome","from":"orchestrator","to":"connector:hook","payload":{"version":{"protocol":3,"goondan":"0.1.0"},"assignment":{"role":"connector","definition":{"workspaceId":"w","connection":"hook","connector":"webhook","config":{"port":1},"secrets":{"hmac":"s"}}}}}"#,
    r#"{"type":"ping","from":"orchestrator","to":"agent:a:k","payload":{"nonce":9}}"#,
    r#"{"type":"quiesce","from":"orchestrator","to":"connector:hook","payload":{}}"#,
    r#"{"type":"shutdown","from":"orchestrator","to":"agent:a:k","payload":{"gracePeriodMs":300000,"reason":"restart"}}"#,
    r#"{"type":"event","from":"orchestrator","to":"agent:a:k","payload":{"turnId":"t","attempt":1,"event":{"id":"e1","type":"message","createdAt":"2026-01-01T00:00:00.000Z","traceId":"4bf92f3577b34da6a3ce929d0e0e4736","input":"hi","instanceKey":"k","source":{"kind":"connector","name":"cli"},"replyTo":{"target":{"kind":"agent","name":"b","instanceKey":"k2"},"correlationId":"c"}}}}"#,
    r#"{"type":"event","from":"orchestrator","to":"agent:a:k","payload":{"turnId":"t","attempt":1,"event":{"id":"bot:1","type":"message","createdAt":"2026-01-01T00:00:00.000Z","input":"hi","header":"[Telegram · Ada]","properties":{"fromId":7},"instanceKey":"k","source":{"kind":"connector","name":"bot"}}}}"#,
    r#"{"type":"event.accepted","inReplyTo":3,"from":"orchestrator","to":"connector:hook","payload":{"eventId":"e1","duplicate":false}}"#,
    r#"{"type":"event.accepted","inReplyTo":3,"from":"orchestrator","to":"connector:hook","payload":{"eventId":"e1","duplicate":true,"instanceKey":"hook:k"}}"#,
    r#"{"type":"reply","inReplyTo":8,"from":"orchestrator","to":"connector:hook","payload":{"state":"over","outcome":{"status":"completed","reply":"hi"}}}"#,
    r#"{"type":"reply","inReplyTo":8,"from":"orchestrator","to":"connector:hook","payload":{"state":"open","message":"the event is parked"}}"#,
    r#"{"type":"reply","inReplyTo":8,"from":"orchestrator","to":"connector:hook","payload":{"state":"unknown"}}"#,
    r#"{"type":"event.refused","inReplyTo":3,"from":"orchestrator","to":"connector:hook","payload":{"code":"overloaded","message":"too many"}}"#,
    r#"{"type":"state","inReplyTo":4,"from":"orchestrator","to":"connector:hook","payload":{"state":{"a":1}}}"#,
    r#"{"type":"state.kept","inReplyTo":5,"from":"orchestrator","to":"connector:hook","payload":{}}"#,
    r#"{"type":"state.refused","inReplyTo":5,"from":"orchestrator","to":"connector:hook","payload":{"message":"the disk is full"}}"#,
    r#"{"type":"metrics","inReplyTo":7,"from":"orchestrator","to":"connector:metrics","payload":{"at":"2026-01-01T00:01:00.000Z","startedAt":"2026-01-01T00:00:00.000Z","families":[{"metric":"goondan_turns","series":[{"labels":{"outcome":"completed"},"value":{"number":2000000}}]}]}}"#,
    r#"{"type":"decision.show","from":"orchestrator","to":"connector:hook","payload":{"decisionId":"a-1","about":{"kind":"call","instanceKey":"k","agentName":"a","toolName":"bash__exec","input":{"command":"ls"}},"form":{"choices":[{"answer":"approve","label":"Approve"},{"answer":"deny","label":"Deny"}]}}}"#,
    r#"{"type":"decision.show","from":"orchestrator","to":"connector:hook","payload":{"decisionId":"t-2","about":{"kind":"proposal","of":"proposal r/w","text":"a.txt (added)","command":"proposal show r w"},"form":{"choices":[{"answer":"approve","label":"Approve"}],"reply":"reject it"}}}"#,
    r#"{"type":"decision.show","from":"orchestrator","to":"connector:hook","payload":{"decisionId":"t-3","about":{"kind":"login","of":"login for OAuthApp/idp","text":"calls wait","command":"secret oauth login idp"},"form":{}}}"#,
    r#"{"type":"decision.show","from":"orchestrator","to":"connector:hook","payload":{"decisionId":"t-1","about":{"kind":"question","agentName":"a","of":"task shop","text":"Which?","command":"task show shop"},"form":{"choices":[{"answer":"0","label":"red"}],"reply":"answer"},"expires":{"at":"2026-01-01T01:00:00.000Z","outcome":"red is chosen"}}}"#,
    r#"{"type":"decision.closed","from":"orchestrator","to":"connector:hook","payload":{"decisionId":"a-1","how":"denied by telegram:5"}}"#,
    r#"{"type":"decision.verdict","inReplyTo":9,"from":"orchestrator","to":"connector:hook","payload":{"state":"decided","how":"approved"}}"#,
    r#"{"type":"decision.verdict","inReplyTo":9,"from":"orchestrator","to":"connector:hook","payload":{"state":"decidedBefore","how":"denied by a person"}}"#,
    r#"{"type":"decision.verdict","inReplyTo":9,"from":"orchestrator","to":"connector:hook","payload":{"state":"over"}}"#,
    r#"{"type":"decision.verdict","inReplyTo":9,"from":"orchestrator","to":"connector:hook","payload":{"state":"notAllowed","message":"not you"}}"#,
    r#"{"type":"decision.verdict","inReplyTo":9,"from":"orchestrator","to":"connector:hook","payload":{"state":"notNow","message":"later"}}"#,
    r#"{"type":"conversation.page","inReplyTo":1,"from":"orchestrator","to":"agent:a:k","payload":{"messageBytes":[10],"events":[{"type":"truncate"}],"next":null}}"#,
    r#"{"type":"turn.appended","from":"orchestrator","to":"agent:a:k","payload":{"turnId":"t","seq":2}}"#,
    r#"{"type":"turn.committed","from":"orchestrator","to":"agent:a:k","payload":{"turnId":"t"}}"#,
    r#"{"type":"welcome","from":"orchestrator","to":"model:claude","payload":{"version":{"protocol":3,"goondan":"0.1.0"},"assignment":{"role":"model","definition":{"workspaceId":"w","model":{"name":"claude","provider":"anthropic","model":"claude-x","endpoint":"http://127.0.0.1:1/","apiKey":"k"}}}}}"#,
    r#"{"type":"call","from":"orchestrator","to":"model:claude","payload":{"callId":1,"caller":{"agent":"a","instanceKey":"k"},"method":"complete","params":{"messages":[]},"deadlineMs":1000}}"#,
    r#"{"type":"call.piece","from":"orchestrator","to":"agent:a:k","payload":{"callId":7,"piece":{"type":"text","text":"h"}}}"#,
    r#"{"type":"call.result","from":"orchestrator","to":"agent:a:k","payload":{"callId":7,"outcome":{"ok":{"message":{"id":"t.1:a"}}}}}"#,
    r#"{"type":"call.cancel","from":"orchestrator","to":"model:claude","payload":{"callId":1}}"#,
    r#"{"type":"question.answered","inReplyTo":6,"from":"orchestrator","to":"connector:kit","payload":{"action":"accept","content":{"f":"x"}}}"#,
    r#"{"type":"question.answered","inReplyTo":6,"from":"orchestrator","to":"connector:kit","payload":{"action":"cancel"}}"#,
    r#"{"type":"question.refused","inReplyTo":6,"from":"orchestrator","to":"connector:kit","payload":{"message":"the call is over"}}"#,
    r#"{"type":"agent.answer","inReplyTo":5,"from":"orchestrator","to":"agent:a:k","payload":{"status":"answered","agent":"b","instanceKey":"b:k","eventId":"t.1:q0","outcome":{"status":"completed","reply":"hi"}}}"#,
    r#"{"type":"agent.answer","inReplyTo":6,"from":"orchestrator","to":"agent:a:k","payload":{"status":"accepted","agent":"b","instanceKey":"b:k","eventId":"t.1:q1"}}"#,
    r#"{"type":"agent.answer","inReplyTo":5,"from":"orchestrator","to":"agent:a:k","payload":{"status":"pending","agent":"b","instanceKey":"b:k","eventId":"t.1:q0","reason":"it took longer than 60000 ms"}}"#,
    r#"{"type":"agent.answer","inReplyTo":8,"from":"orchestrator","to":"agent:a:k","payload":{"status":"instances","instances":[{"instanceKey":"b:k","agent":"b","status":"idle","pendingEvents":0}],"more":0}}"#,
    r#"{"type":"agent.answer","inReplyTo":9,"from":"orchestrator","to":"agent:a:k","payload":{"status":"catalog","agents":[{"name":"b","description":"looks things up","tools":["bash"],"isEntry":false}]}}"#,
    r#"{"type":"agent.answer","inReplyTo":27,"from":"orchestrator","to":"agent:a:k","payload":{"status":"approval","decision":"denied","reason":"not now"}}"#,
    r#"{"type":"agent.answer","inReplyTo":27,"from":"orchestrator","to":"agent:a:k","payload":{"status":"approval","decision":"denied","timedOut":true}}"#,
    r#"{"type":"agent.answer","inReplyTo":20,"from":"orchestrator","to":"agent:a:k","payload":{"status":"sandbox","sandbox":{"runId":"k-1","agent":"b","inputDir":"/s/input","workDir":"/s/work","proposalDir":"/s/proposal","files":["src/a"],"moreFiles":0,"mayCreate":[],"proposal":"open"}}}"#,
    r#"{"type":"agent.answer","inReplyTo":25,"from":"orchestrator","to":"agent:a:k","payload":{"status":"tasks","tasks":[{"workspaceId":"w","taskId":"t-1","title":"t","type":"delegated","agent":"b","status":"running","currentPhase":1,"totalPhases":2,"progress":0,"tokens":0,"cost":0,"createdBy":"k","createdAt":"2026-01-01T00:00:00.000Z","updatedAt":"2026-01-01T00:00:00.000Z"}],"more":1}}"#,
    r#"{"type":"agent.answer","inReplyTo":28,"from":"orchestrator","to":"agent:a:k","payload":{"status":"bundle","told":{"changeset":{"changesetId":"t.1-q9","state":"waiting","base":"00","openedAt":"2026-01-01T00:00:00.000Z"}}}}"#,
    r#"{"type":"agent.answer","inReplyTo":21,"from":"orchestrator","to":"agent:a:k","payload":{"status":"proposal","proposal":{"runId":"k-1","agent":"b","state":"open","digest":"00","workDir":"/s/work","proposalDir":"/s/proposal","changed":[{"path":"src/a","status":"modified"}],"moreChanged":0,"said":"1 file"}}}"#,
    r#"{"type":"agent.answer","inReplyTo":5,"from":"orchestrator","to":"agent:a:k","payload":{"status":"refused","code":"E_CIRCULAR_REQUEST","message":"a waits for b"}}"#,
    r#"{"type":"turn.input","from":"orchestrator","to":"agent:a:k","payload":{"turnId":"t","event":{"id":"t.1:q0:a","type":"reply","createdAt":"2026-01-01T00:00:00.000Z","traceId":"4bf92f3577b34da6a3ce929d0e0e4736","input":"hi","instanceKey":"k","source":{"kind":"agent","name":"b","instanceKey":"b:k"},"chain":{"rootInstance":"k","rootEvent":"e1","depth":1},"metadata":{"inReplyTo":"t.1:q0"}}}}"#,
];

fn with_trace(body: &str) -> String {
    let (head, payload) = body.split_once(r#","payload""#).unwrap();
    format!(r#"{head},{TRACE},"payload"{payload}"#)
}

fn head_of(envelope: &Envelope) -> EnvelopeHeader {
    EnvelopeHeader {
        id: envelope.id,
        in_reply_to: envelope.in_reply_to,
        from: envelope.from.clone(),
        to: envelope.to.clone(),
        trace: envelope.trace,
    }
}

#[test]
fn every_message_has_golden_bytes() {
    let mut seen = BTreeSet::new();
    for body in FROM_CHILD
        .iter()
        .flat_map(|body| [(*body).to_owned(), with_trace(body)])
    {
        let envelope = Envelope::from_frame(body.as_bytes()).unwrap();
        let message = ToOrchestrator::from_envelope(&envelope).unwrap();
        seen.insert(message.kind());
        let again = message.to_frame(&head_of(&envelope)).unwrap();
        assert_eq!(String::from_utf8(again).unwrap(), body);
    }
    assert_eq!(seen, ToOrchestrator::KINDS.iter().copied().collect());

    let mut seen = BTreeSet::new();
    for body in TO_CHILD
        .iter()
        .flat_map(|body| [(*body).to_owned(), with_trace(body)])
    {
        let envelope = Envelope::from_frame(body.as_bytes()).unwrap();
        let message = match envelope.to {
            Address::Agent { .. } => ToAgent::from_envelope(&envelope).map(ToChild::from),
            _ => ToConnector::from_envelope(&envelope).map(ToChild::from),
        };
        let message = message.unwrap();
        seen.insert(message.kind());
        let again = message.to_frame(&head_of(&envelope)).unwrap();
        assert_eq!(String::from_utf8(again).unwrap(), body);
    }
    let kinds = ToAgent::KINDS.iter().chain(ToConnector::KINDS);
    assert_eq!(seen, kinds.copied().collect());
}

#[test]
fn a_message_of_the_other_direction_is_refused() {
    let envelope = Envelope::from_frame(TO_CHILD[0].as_bytes()).unwrap();
    assert!(ToOrchestrator::from_envelope(&envelope).is_err());
    // Messages for connectors are not valid for agents, and vice versa.
    for (body, is_for_agents) in [(TO_CHILD[4], true), (TO_CHILD[6], false)] {
        let envelope = Envelope::from_frame(body.as_bytes()).unwrap();
        assert_eq!(ToAgent::from_envelope(&envelope).is_ok(), is_for_agents);
        assert_eq!(
            ToConnector::from_envelope(&envelope).is_ok(),
            !is_for_agents
        );
    }
}

proptest! {
    /// Garbage and damaged messages never panic.
    #[test]
    fn damaged_messages_are_errors(
        which in 0..FROM_CHILD.len(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut body = FROM_CHILD[which].as_bytes().to_vec();
        let at = at.index(body.len());
        body[at] = byte;
        if let Ok(envelope) = Envelope::from_frame(&body) {
            drop(ToOrchestrator::from_envelope(&envelope));
        }
    }

    /// Every instance key survives a round trip in an address.
    #[test]
    fn any_key_fits_an_address(key in "\\PC{1,40}|[\\x00-\\x7f]{1,10}") {
        let address = Address::Agent {
            name: "a".parse().unwrap(),
            instance_key: key.parse().unwrap(),
        };
        prop_assert_eq!(address.to_string().parse::<Address>().unwrap(), address);
    }
}
