use goondan_protocol::event::PAYLOAD;

use super::*;
use crate::limits::EMAIL_PARTS_MAX;

const PLACE: Place = Place {
    uid_validity: 7,
    uid: 42,
};

fn accepted() -> Accepted {
    Accepted {
        address: "help@example.org".to_owned(),
        folder: "INBOX".to_owned(),
        from: None,
        verified_by: None,
    }
}

fn mail(raw: &str) -> Mail {
    mail_for(raw, &accepted())
}

fn mail_for(raw: &str, accepted: &Accepted) -> Mail {
    let raw = raw.replace('\n', "\r\n");
    to_mail(raw.as_bytes(), PLACE, accepted, &ProofKey::for_test())
}

fn event(raw: &str) -> ConnectorEvent {
    match mail(raw) {
        Mail::Event(event) => *event,
        Mail::Ignored(reason, why) => panic!("{reason:?}: {why}"),
    }
}

fn reason(mail: Mail) -> IgnoreReason {
    match mail {
        Mail::Ignored(reason, _) => reason,
        Mail::Event(event) => panic!("{event:?}"),
    }
}

const PLAIN: &str = "\
From: Ada Lovelace <Ada@example.com>
To: help@example.org
Subject: Where is my book?
Date: Mon, 2 Mar 2026 10:00:00 +0100
Message-ID: <1@example.com>

It is late.
";

#[test]
fn conn_1_email_is_an_event_with_its_sender_and_words() {
    let event = event(PLAIN);
    assert_eq!(event.name, "message");
    assert_eq!(event.input, "Where is my book?\n\nIt is late.");
    let properties = json!({"from": "ada@example.com", "fromName": "Ada Lovelace",
        "fromDomain": "example.com", "mailbox": "help@example.org", "folder": "INBOX",
        "isAuthenticated": false, "isReply": false, "subject": "Where is my book?"});
    assert_eq!(Value::Object(event.properties), properties);
    assert_eq!(event.auth, None);
    assert_eq!(event.metadata["date"], "2026-03-02T10:00:00+01:00");
    assert_eq!(event.metadata["messageId"], "1@example.com");
    assert_eq!(event.metadata[PAYLOAD]["to"], json!(["help@example.org"]));
    let reply: EmailReply = serde_json::from_value(event.metadata[EMAIL_REPLY].clone()).unwrap();
    assert_eq!(reply.to, "ada@example.com");
    let parts = reply_parts(&reply.to, &reply.message_id, &reply.thread);
    assert!(ProofKey::for_test().is_proof(&parts, &reply.proof));
    let key = event.instance_key.unwrap();
    assert_eq!(key.as_str(), format!("email:{}", reply.thread));
}

#[test]
fn conn_2_thread_is_one_conversation_without_repeated_history() {
    let first = event(PLAIN);
    let second = event(
        "From: ada@example.com\nSubject: Re: Where is my book?\nMessage-ID: <3@example.com>\n\
         In-Reply-To: <2@example.org>\nReferences: <1@example.com>\n <2@example.org>\n\n\
         Thanks.\n\nOn Mon, 2 Mar 2026, Help <help@example.org> wrote:\n> It is on its way.\n",
    );
    assert_eq!(second.instance_key, first.instance_key);
    assert_ne!(second.id, first.id);
    assert_eq!(second.input, "Thanks.\n\n[Earlier messages are left out]");
    let quoted = second.metadata[PAYLOAD]["quoted"].as_str().unwrap();
    assert!(quoted.ends_with("> It is on its way."), "{quoted}");
    let reply = &second.metadata[EMAIL_REPLY];
    assert_eq!(reply["messageId"], "3@example.com");
    assert_eq!(
        reply["references"],
        json!(["1@example.com", "2@example.org"])
    );
    // Another thread is another conversation.
    let other = event(&PLAIN.replace("1@example.com", "9@example.com"));
    assert_ne!(other.instance_key, first.instance_key);
    // A forwarded message is what the person sends.
    let forwarded = event(
        "From: ada@example.com\nSubject: Fwd: x\nIn-Reply-To: <1@example.com>\n\nSee:\n> text\n",
    );
    assert_eq!(forwarded.input, "See:\n> text");
    let long: Vec<String> = (0..9).map(|n| format!("{n}@x")).collect();
    assert_eq!(kept_references(&long), ["0@x", "6@x", "7@x", "8@x"]);
    assert_eq!(kept_references(&long[..2]), ["0@x", "1@x"]);
}

#[test]
fn conn_1_encoded_words_html_and_attachments_are_readable() {
    let event = event(
        "From: =?ISO-8859-1?Q?J=FCrgen?= <j@example.com>\n\
         Subject: =?utf-8?B?7KO866y4?= =?utf-8?B?IOusuOydmA==?=\n\
         Message-ID: <5@example.com>\nMIME-Version: 1.0\n\
         Content-Type: multipart/mixed; boundary=b\n\n\
         --b\nContent-Type: multipart/alternative; boundary=c\n\n\
         --c\nContent-Type: text/html; charset=windows-1252\n\
         Content-Transfer-Encoding: quoted-printable\n\n\
         <p>F=FCr <b>dich</b></p><p>See <a href=3D\"https://example.com\">here</a></p>\n\
         --c--\n\
         --b\nContent-Type: application/pdf\n\
         Content-Disposition: attachment; filename*=utf-8''%EA%B0%80.pdf\n\
         Content-Transfer-Encoding: base64\n\n\
         aGVsbG8=\n\
         --b--\n",
    );
    assert_eq!(event.properties["fromName"], "Jürgen");
    assert_eq!(event.properties["subject"], "주문 문의");
    let file = event.metadata["files"][0].clone();
    let id = file["fileId"].as_str().unwrap();
    assert_eq!(file["name"], "가.pdf");
    assert_eq!(file["mimeType"], "application/pdf");
    assert_eq!(file["bytes"], 5);
    assert!(
        event.input.starts_with("주문 문의\n\nFür dich"),
        "{}",
        event.input
    );
    assert!(
        event.input.contains("https://example.com"),
        "{}",
        event.input
    );
    let line = format!("[File: 가.pdf, application/pdf, 5 bytes, file ID {id}]");
    assert!(event.input.ends_with(&line), "{}", event.input);
    let (place, part) = parse_file_id(id, &ProofKey::for_test()).unwrap();
    assert_eq!(place, PLACE);
    for forged in ["7.42.1", &id.replacen("42", "43", 1), "", "7.42.3.00"] {
        assert_eq!(parse_file_id(forged, &ProofKey::for_test()), None);
    }
    let raw = "From: a@b\nContent-Type: text/plain; name=a.txt\n\
               Content-Disposition: attachment; filename=a.txt\n\nhi";
    let opened = open_file(raw.as_bytes(), 0).unwrap();
    assert_eq!(
        (opened.name.as_str(), opened.mime_type.as_str()),
        ("a.txt", "text/plain")
    );
    assert_eq!(opened.content, b"hi");
    assert!(open_file(raw.as_bytes(), part + 1).is_none());
}

#[test]
fn conn_1_messages_of_programs_and_own_ones_are_passed_over() {
    let with = |header: &str| mail(&format!("{header}\n{PLAIN}"));
    for header in [
        "Auto-Submitted: auto-replied",
        "auto-submitted: auto-generated (vacation)",
        "Precedence: bulk",
        "List-Id: <all.example.com>",
        "Return-Path: <>",
        "Content-Type: multipart/report; report-type=delivery-status; boundary=x",
    ] {
        assert_eq!(reason(with(header)), IgnoreReason::Bot, "{header}");
    }
    assert!(matches!(with("Auto-Submitted: no"), Mail::Event(_)));
    let bounce = PLAIN.replace("Ada@example.com", "MAILER-DAEMON@example.com");
    assert_eq!(reason(mail(&bounce)), IgnoreReason::Bot);
    let own = PLAIN.replace("Ada@example.com", "Help@Example.org");
    assert_eq!(reason(mail(&own)), IgnoreReason::Own);
    let sent = super::super::thread::own_id(None, "mark", "help@example.org");
    let looped = PLAIN.replace("1@example.com", &sent);
    assert_eq!(reason(mail(&looped)), IgnoreReason::Own);
}

#[test]
fn conn_1_only_accepted_and_verified_senders_are_heard() {
    let listed = |from: &str| Accepted {
        from: Some(vec![from.to_owned()]),
        ..accepted()
    };
    assert!(matches!(
        mail_for(PLAIN, &listed("example.com")),
        Mail::Event(_)
    ));
    let other = mail_for(PLAIN, &listed("bob@example.com"));
    assert_eq!(reason(other), IgnoreReason::OtherPlace);
    let verified = Accepted {
        verified_by: Some("mx.example.org".to_owned()),
        ..accepted()
    };
    assert_eq!(reason(mail_for(PLAIN, &verified)), IgnoreReason::Unverified);
    let result = "Authentication-Results: mx.example.org;\n dmarc=pass header.from=example.com\n";
    let Mail::Event(event) = mail_for(&format!("{result}{PLAIN}"), &verified) else {
        panic!("it is verified");
    };
    assert_eq!(event.properties["isAuthenticated"], true);
    assert_eq!(event.auth.unwrap()["user"], "ada@example.com");
    // The result of another server, or below that of the own one, is not proof.
    for forged in [
        result.replace("mx.", "mx2."),
        format!("Authentication-Results: mx.example.org; dmarc=fail\n{result}"),
    ] {
        let forged = mail_for(&format!("{forged}{PLAIN}"), &verified);
        assert_eq!(reason(forged), IgnoreReason::Unverified);
    }
}

#[test]
fn conn_1_hostile_and_empty_messages_are_counted() {
    let nested = "Content-Type: message/rfc822\n\n".repeat(EMAIL_PARTS_MAX + 1);
    for (raw, expected) in [
        (
            format!("From: a@example.com\n{nested}"),
            IgnoreReason::Unsupported,
        ),
        (
            format!("From: eve@example.com\n{PLAIN}"),
            IgnoreReason::Unsupported,
        ),
        (
            PLAIN.replace("<Ada@", "<a@example.com>, <Ada@"),
            IgnoreReason::Unsupported,
        ),
        (
            PLAIN.replace("<Ada@example.com>", "undisclosed"),
            IgnoreReason::Unsupported,
        ),
        (String::new(), IgnoreReason::Unsupported),
        (
            "From: a@example.com\n\n \n".to_owned(),
            IgnoreReason::NoText,
        ),
    ] {
        assert_eq!(reason(mail(&raw)), expected, "{raw}");
    }
    // Deep but permitted nesting is parsed.
    let nested = "Content-Type: message/rfc822\n\n".repeat(EMAIL_PARTS_MAX - 1);
    assert!(matches!(
        mail(&format!("From: a@example.com\nSubject: x\n{nested}")),
        Mail::Event(_)
    ));
    let long = PLAIN.replace("It is late.", &"가나 ".repeat(EMAIL_TEXT_BYTES_MAX));
    let event = event(&long);
    assert!(event.input.len() < EMAIL_TEXT_BYTES_MAX + 200);
    assert!(
        event
            .input
            .ends_with("\n\n[The rest of the text is left out]")
    );
    let many: String = (0..EMAIL_FILES_MAX + 2)
        .map(|n| format!("--b\nContent-Type: image/png; name={n}.png\n\nx\n"))
        .collect();
    let raw =
        format!("From: a@example.com\nContent-Type: multipart/mixed; boundary=b\n\n{many}--b--\n");
    let Mail::Event(event) = mail(&raw) else {
        panic!("it has files");
    };
    assert!(event.input.ends_with("\n[2 more files]"), "{}", event.input);
}
