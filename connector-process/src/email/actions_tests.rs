use mail_parser::MessageParser;

use super::*;

fn actions(smtp: Option<MailServer>) -> Actions {
    crate::http::install_cryptography();
    let tls = std::sync::Arc::new(goondan_outbound::client_config());
    let config = json!({"address": "help@example.org", "imap": {"host": "localhost"}});
    let config = config.as_object().unwrap();
    let values = goondan_connectors::Values::of("email", config).map("imap");
    let imap = MailServer::of(&values, (993, 143), &tls).unwrap();
    let secrets = [("password".to_owned(), "s3cret".to_owned())];
    Actions {
        imap,
        smtp,
        login: Login::of("help", &secrets.into_iter().collect()).unwrap(),
        address: "help@example.org".to_owned(),
        display_name: Some("Hilfe für alle".to_owned()),
        folder: "INBOX".to_owned(),
        send_to: vec!["example.org".to_owned()],
        key: ProofKey::for_test(),
    }
}

fn reply() -> EmailReply {
    let (to, message_id, thread) = ("ada@example.com", "2@example.com", "t");
    EmailReply {
        to: to.to_owned(),
        subject: "Büch\r\nBcc: eve@example.com".to_owned(),
        message_id: message_id.to_owned(),
        references: vec!["1@example.com".to_owned(), "bad id".to_owned()],
        thread: thread.to_owned(),
        proof: ProofKey::for_test().proof(&reply_parts(to, message_id, thread)),
    }
}

fn draft(to: &[&str], reply: Option<EmailReply>) -> EmailDraft {
    EmailDraft {
        to: to.iter().map(|to| (*to).to_owned()).collect(),
        subject: String::new(),
        text: "Grüße\n.\nend".to_owned(),
        mark: "email:1".to_owned(),
        reply,
    }
}

#[test]
fn conn_2_agents_write_to_listed_addresses_and_to_the_sender() {
    let actions = actions(None);
    let to = actions.recipients(&draft(&[], Some(reply()))).unwrap();
    assert_eq!(to, ["ada@example.com"]);
    let to = actions
        .recipients(&draft(&["bob@example.org"], None))
        .unwrap();
    assert_eq!(to, ["bob@example.org"]);
    let redirected = EmailReply {
        to: "eve@example.com".to_owned(),
        ..reply()
    };
    for (draft, code) in [
        (draft(&["ada@example.com"], None), CallErrorCode::Refused),
        (draft(&[], Some(redirected)), CallErrorCode::Refused),
        (
            draft(&["bob@example.org", "eve@example.com"], None),
            CallErrorCode::Refused,
        ),
        (
            draft(&["a@b>\r\nRCPT TO:<c@example.org"], None),
            CallErrorCode::Invalid,
        ),
        (draft(&[], None), CallErrorCode::Invalid),
    ] {
        assert_eq!(actions.recipients(&draft).unwrap_err().code, code);
    }
}

#[test]
fn conn_2_reply_belongs_to_its_thread_and_is_marked_as_automatic() {
    let actions = actions(None);
    let draft = draft(&[], Some(reply()));
    let attachment = Attachment {
        name: "a\r\nb.txt",
        content: b"hi".to_vec(),
    };
    let to = ["ada@example.com".to_owned()];
    let raw = actions
        .compose(&draft, &to, "id@example.org", Some(attachment))
        .unwrap();
    let message = MessageParser::default().parse(&raw).unwrap();
    assert_eq!(message.subject(), Some("Re: Büch Bcc: eve@example.com"));
    assert_eq!(message.message_id(), Some("id@example.org"));
    assert_eq!(message.in_reply_to().as_text(), Some("2@example.com"));
    let references = message.references().as_text_list().unwrap();
    assert_eq!(references, ["1@example.com", "2@example.com"]);
    assert_eq!(
        message.header_raw("Auto-Submitted").unwrap().trim(),
        "auto-replied"
    );
    assert!(message.bcc().is_none());
    let from = message.from().unwrap().first().unwrap();
    assert_eq!(from.name(), Some("Hilfe für alle"));
    assert_eq!(
        message.body_text(0).unwrap().replace("\r\n", "\n").trim(),
        "Grüße\n.\nend"
    );
    assert_eq!(message.attachment(0).unwrap().contents(), b"hi");
    assert!(raw.is_ascii());
}

#[test]
fn conn_2_only_a_lost_decision_leaves_the_outcome_open() {
    use super::super::stream::StreamError;

    let broken = || StreamError("reset".to_owned());
    let said = || "no".to_owned();
    for (error, code, retryable) in [
        (
            SmtpError::NotSent(broken()),
            CallErrorCode::Unavailable,
            true,
        ),
        (
            SmtpError::Temporary {
                code: 451,
                said: said(),
            },
            CallErrorCode::Unavailable,
            true,
        ),
        (
            SmtpError::Permanent {
                code: 550,
                said: said(),
            },
            CallErrorCode::Refused,
            false,
        ),
        (
            SmtpError::Permanent {
                code: 552,
                said: said(),
            },
            CallErrorCode::TooLarge,
            false,
        ),
        (SmtpError::Login(said()), CallErrorCode::Unauthorized, false),
        (SmtpError::Lost(broken()), CallErrorCode::Interrupted, false),
    ] {
        let found = to_error(&error, false);
        assert_eq!((found.code, found.retryable), (code, retryable), "{error}");
    }
    // A reply is repeated with the same Message-ID.
    assert!(to_error(&SmtpError::Lost(broken()), true).retryable);
}
