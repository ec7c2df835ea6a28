//! Users who return from an authorization server to a public address (`SYS-4`).
//!
//! The query goes to the orchestrator, which alone can interpret it, and to no log. The page shown
//! in the browser repeats none of the query.

use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, REFERRER_POLICY};
use goondan_protocol::JsonObject;
use goondan_protocol::event::ConnectorEvent;
use goondan_protocol::ipc::{EventRefused, RefusalCode};
use goondan_protocol::oauth::CALLBACK_EVENT;

use super::answer::RequestRejection;
use crate::gateway::EventVerdict;
use crate::limits::CALLBACK_QUERY_BYTES_MAX;

/// The page shown in the browser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallbackPage {
    Taken,
    /// The login does not exist.
    NotTaken,
}

impl CallbackPage {
    pub(super) const HEADERS: [(HeaderName, &'static str); 3] = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CACHE_CONTROL, "no-store"),
        (REFERRER_POLICY, "no-referrer"),
    ];

    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::Taken => StatusCode::OK,
            Self::NotTaken => StatusCode::BAD_REQUEST,
        }
    }

    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Taken => {
                "<!doctype html><meta charset=utf-8><title>goondan</title>\
                 <p>That is all. You can close this page and go back to the terminal."
            }
            Self::NotTaken => {
                "<!doctype html><meta charset=utf-8><title>goondan</title>\
                 <p>This address does not complete a login: it was already used, has expired, or belongs to another login. \
                 Log in again: <code>gdn secret oauth login APP</code>."
            }
        }
    }
}

/// The event with the query; `None` if the query is too long to be valid.
pub(super) fn event_of(query: &str) -> Option<ConnectorEvent> {
    (query.len() <= CALLBACK_QUERY_BYTES_MAX).then(|| ConnectorEvent {
        id: None,
        name: CALLBACK_EVENT.to_owned(),
        input: query.to_owned(),
        instance_key: None,
        properties: JsonObject::new(),
        auth: None,
        metadata: JsonObject::new(),
    })
}

/// The page for the orchestrator's verdict.
pub(super) fn page_of(verdict: EventVerdict) -> Result<CallbackPage, RequestRejection> {
    match verdict {
        Ok(_) => Ok(CallbackPage::Taken),
        Err(EventRefused {
            code: RefusalCode::Invalid | RefusalCode::Unroutable,
            ..
        }) => Ok(CallbackPage::NotTaken),
        Err(refused) => Err(RequestRejection::ByOrchestrator(refused)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sys_4_callback_query_is_never_cut_and_page_echoes_nothing() {
        let event = event_of("code=c&state=s").unwrap();
        assert_eq!(
            (event.name.as_str(), event.input.as_str()),
            (CALLBACK_EVENT, "code=c&state=s")
        );
        assert!(event_of(&"x".repeat(CALLBACK_QUERY_BYTES_MAX)).is_some());
        assert!(event_of(&"x".repeat(CALLBACK_QUERY_BYTES_MAX + 1)).is_none());
        let refused = |code| Err(EventRefused::new(code, "m"));
        let page = page_of(refused(RefusalCode::Invalid)).unwrap();
        assert_eq!(page, CallbackPage::NotTaken);
        assert!(page_of(refused(RefusalCode::Unavailable)).is_err());
    }
}
