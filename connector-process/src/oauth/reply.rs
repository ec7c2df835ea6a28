//! Parses answers of token endpoints and similar ones, including nonstandard forms.

use goondan_protocol::oauth::{DeviceCode, Reply, Token, TokenErrorResponse, url_decoded};
use goondan_protocol::secret::SecretValue;
use serde_json::{Map, Value};

use crate::service::HttpAnswer;

/// Errors that some servers send for an ended grant instead of `invalid_grant`.
const ENDED: [&str; 5] = [
    "bad_refresh_token",
    "invalid_refresh_token",
    "refresh_token_expired",
    "token_revoked",
    "token_expired",
];

/// Longest text of a server that is repeated, in characters.
const DESCRIPTION_CHARS_MAX: usize = 300;

/// Default lifetime of a device code, in seconds.
const DEVICE_LIFE_S: u64 = 900;

/// Default polling interval, in seconds (RFC 8628).
const DEVICE_INTERVAL_S: u64 = 5;

/// Parses the answer of a token endpoint; `None` if it is unreadable.
pub(super) fn token(answered: &HttpAnswer) -> Option<Reply<Token>> {
    let fields = fields_of(&answered.body)?;
    if let Some(refused) = refusal(&fields) {
        return Some(Reply::Refused(refused));
    }
    if !is_good(answered) {
        return None;
    }
    // Some servers wrap the token, or return a user's token next to an empty one.
    let inner = ["data", "authed_user"].iter();
    let inner = inner.filter_map(|name| fields.get(*name)?.as_object());
    let mut all = [&fields].into_iter().chain(inner);
    let fields = all.find(|fields| text(fields, "access_token").is_some())?;
    Some(Reply::Granted(Token {
        access_token: SecretValue::new(text(fields, "access_token")?),
        refresh_token: text(fields, "refresh_token").map(SecretValue::new),
        expires_in_s: number(fields, "expires_in").or_else(|| number(fields, "expires")),
        scope: scope(fields),
    }))
}

/// Parses the answer of a revocation endpoint; any success status is enough (RFC 7009).
pub(super) fn revoked(answered: &HttpAnswer) -> Option<Reply<()>> {
    let fields = fields_of(&answered.body);
    match fields.as_ref().and_then(refusal) {
        Some(refused) => Some(Reply::Refused(refused)),
        None => is_good(answered).then_some(Reply::Granted(())),
    }
}

/// Parses the answer of a device authorization endpoint.
pub(super) fn device(answered: &HttpAnswer) -> Option<Reply<DeviceCode>> {
    let fields = fields_of(&answered.body)?;
    if let Some(refused) = refusal(&fields) {
        return Some(Reply::Refused(refused));
    }
    if !is_good(answered) {
        return None;
    }
    let either = |one: &str, other: &str| text(&fields, one).or_else(|| text(&fields, other));
    Some(Reply::Granted(DeviceCode {
        device_code: SecretValue::new(text(&fields, "device_code")?),
        user_code: text(&fields, "user_code")?,
        // Google's name from before the standard.
        verification_uri: either("verification_uri", "verification_url")?,
        verification_uri_complete: either("verification_uri_complete", "verification_url_complete"),
        expires_in_s: number(&fields, "expires_in").unwrap_or(DEVICE_LIFE_S),
        interval_s: number(&fields, "interval").unwrap_or(DEVICE_INTERVAL_S),
    }))
}

pub(super) fn is_good(answered: &HttpAnswer) -> bool {
    (200..300).contains(&answered.status)
}

/// Parses the fields of a body: JSON, or a form.
pub(super) fn fields_of(body: &[u8]) -> Option<Map<String, Value>> {
    let text = std::str::from_utf8(body).ok()?;
    let text = text.trim_start_matches('\u{feff}').trim();
    if let Ok(Value::Object(fields)) = serde_json::from_str(text) {
        return Some(fields);
    }
    if !text.contains('=') || text.contains(['<', '{', '\n']) {
        return None;
    }
    let fields = text.split('&').map(|field| {
        let (name, value) = field.split_once('=')?;
        Some((url_decoded(name)?, Value::String(url_decoded(value)?)))
    });
    fields.collect()
}

/// A server's refusal; some servers send one with a success status.
pub(super) fn refusal(fields: &Map<String, Value>) -> Option<TokenErrorResponse> {
    let (error, description) = match fields.get("error")? {
        Value::String(error) if !error.is_empty() => {
            (error.clone(), text(fields, "error_description"))
        }
        // Some servers send an object.
        Value::Object(inner) => {
            let code = ["type", "status", "code"].iter();
            let code = code.filter_map(|name| text(inner, name)).next();
            (code.unwrap_or_default(), text(inner, "message"))
        }
        _ => return None,
    };
    let cut = |text: String| text.chars().take(DESCRIPTION_CHARS_MAX).collect::<String>();
    let error = if ENDED.contains(&error.as_str()) {
        "invalid_grant".to_owned()
    } else {
        cut(error)
    };
    Some(TokenErrorResponse {
        error,
        description: description.map(cut),
    })
}

/// A non-empty string, or a number as a string.
pub(super) fn text(fields: &Map<String, Value>, name: &str) -> Option<String> {
    match fields.get(name)? {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// A positive number, also as a string or with a fraction.
fn number(fields: &Map<String, Value>, name: &str) -> Option<u64> {
    let number = match fields.get(name)? {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        _ => return None,
    };
    let whole = number.split('.').next()?.trim().parse().ok()?;
    Some(whole).filter(|whole| *whole > 0)
}

/// Scope of a token: a string or a list.
fn scope(fields: &Map<String, Value>) -> Option<String> {
    let scopes = fields.get("scope").or_else(|| fields.get("scopes"))?;
    let scope = match scopes {
        Value::String(scope) => scope.clone(),
        Value::Array(scopes) => {
            let scopes = scopes.iter().filter_map(Value::as_str);
            scopes.collect::<Vec<_>>().join(" ")
        }
        _ => return None,
    };
    Some(scope).filter(|scope| !scope.is_empty())
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderMap;

    use super::*;

    fn answer(status: u16, body: &str) -> HttpAnswer {
        HttpAnswer {
            status,
            headers: HeaderMap::new(),
            body: body.as_bytes().to_vec(),
        }
    }

    fn granted(body: &str) -> Token {
        match token(&answer(200, body)) {
            Some(Reply::Granted(token)) => token,
            other => panic!("{body}: {other:?}"),
        }
    }

    fn refused(status: u16, body: &str) -> String {
        match token(&answer(status, body)) {
            Some(Reply::Refused(refused)) => refused.to_string(),
            other => panic!("{body}: {other:?}"),
        }
    }

    #[test]
    fn sys_4_the_habits_of_servers_that_give_tokens() {
        let plain = granted(
            r#"{"access_token":"a","token_type":"Bearer","expires_in":3600,"refresh_token":"r","scope":"x y"}"#,
        );
        assert_eq!(plain.access_token.expose(), "a");
        assert_eq!(plain.refresh_token.unwrap().expose(), "r");
        assert_eq!(plain.expires_in_s, Some(3_600));
        assert_eq!(plain.scope.as_deref(), Some("x y"));
        // A number as a string, and one with a fraction.
        let life = |body: &str| granted(body).expires_in_s;
        assert_eq!(
            life(r#"{"access_token":"a","expires_in":"3599"}"#),
            Some(3_599)
        );
        assert_eq!(
            life(r#"{"access_token":"a","expires_in":3599.5}"#),
            Some(3_599)
        );
        assert_eq!(
            life(r#"{"access_token":"a","expires":5183999}"#),
            Some(5_183_999)
        );
        // Tokens that never expire.
        assert_eq!(life(r#"{"access_token":"a"}"#), None);
        assert_eq!(life(r#"{"access_token":"a","expires_in":0}"#), None);
        assert_eq!(life(r#"{"access_token":"a","expires_in":null}"#), None);
        // An empty refresh token counts as missing.
        let none = granted(r#"{"access_token":"a","refresh_token":""}"#);
        assert_eq!(none.refresh_token, None);
        // A form instead of JSON.
        let form = granted("access_token=a%2Bb&scope=repo%2Cgist&token_type=bearer");
        assert_eq!(form.access_token.expose(), "a+b");
        assert_eq!(form.scope.as_deref(), Some("repo,gist"));
        // Scopes as a list, after a byte order mark.
        let list = granted("\u{feff}{\"access_token\":\"a\",\"scope\":[\"x\",\"y\"]}");
        assert_eq!(list.scope.as_deref(), Some("x y"));
        // Wrapped, or only a user's token.
        assert_eq!(
            granted(r#"{"data":{"access_token":"d"}}"#)
                .access_token
                .expose(),
            "d"
        );
        let user =
            r#"{"ok":true,"authed_user":{"id":"U1","access_token":"u","refresh_token":"v"}}"#;
        assert_eq!(granted(user).refresh_token.unwrap().expose(), "v");
    }

    #[test]
    fn sys_4_nonstandard_token_responses_are_accepted() {
        // Any token type, in any case, is sent as a bearer token.
        for kind in [
            r#""token_type":"bEARER","#,
            r#""token_type":"mac","#,
            r#""token_type":null,"#,
            "",
        ] {
            let body = format!(r#"{{{kind}"access_token":"a","expires_in":60}}"#);
            assert_eq!(granted(&body).expires_in_s, Some(60), "{body}");
        }
        // An identity token, and custom fields.
        let more = r#"{"access_token":"a","id_token":"e30.e30.","user":{"access_token":"no"},"not_before":-1,
            "expires_at":1,"scope":null,"refresh_token":null,"refresh_token_expires_in":5}"#;
        let more = granted(more);
        assert_eq!(more.access_token.expose(), "a");
        assert_eq!((more.refresh_token, more.scope), (None, None));
        // Absolute times are ignored because of clock skew: only the lifetime counts.
        assert_eq!(more.expires_in_s, None);
        // An error inside a page.
        for status in [400, 403, 502] {
            let page = "<html><a href=\"?error=invalid_grant\">Bad Gateway</a></html>";
            assert_eq!(token(&answer(status, page)), None, "{status}");
        }
    }

    #[test]
    fn sys_4_the_habits_of_servers_that_decline() {
        let body = r#"{"error":"invalid_grant","error_description":"revoked"}"#;
        assert_eq!(refused(400, body), "`invalid_grant`: revoked");
        // With a success status and custom names.
        let github = r#"{"error":"bad_refresh_token","error_description":"expired"}"#;
        assert_eq!(refused(200, github), "`invalid_grant`: expired");
        let slack = r#"{"ok":false,"error":"invalid_refresh_token"}"#;
        assert_eq!(refused(200, slack), "`invalid_grant`");
        // As an object.
        let long = r#"{"error":{"message":"Error validating","type":"OAuthException","code":190}}"#;
        assert_eq!(refused(400, long), "`OAuthException`: Error validating");
        assert_eq!(refused(400, "error=access_denied"), "`access_denied`");
        // Other bodies are not answers.
        for (status, body) in [
            (200, ""),
            (200, "<html>a=b</html>"),
            (200, "[]"),
            (200, r#"{"token_type":"bearer"}"#),
            (500, r#"{"access_token":"a"}"#),
            (200, r#"{"access_token":""}"#),
        ] {
            assert_eq!(token(&answer(status, body)), None, "{body}");
        }
    }

    #[test]
    fn sys_4_the_habits_of_the_other_endpoints() {
        assert_eq!(revoked(&answer(200, "")), Some(Reply::Granted(())));
        assert_eq!(revoked(&answer(204, "")), Some(Reply::Granted(())));
        assert_eq!(revoked(&answer(503, "")), None);
        let unsupported = revoked(&answer(400, r#"{"error":"unsupported_token_type"}"#));
        assert!(matches!(unsupported, Some(Reply::Refused(_))));
        let google =
            r#"{"device_code":"d","user_code":"A-B","verification_url":"https://x/device"}"#;
        let Some(Reply::Granted(code)) = device(&answer(200, google)) else {
            panic!("no code")
        };
        assert_eq!(code.verification_uri, "https://x/device");
        assert_eq!((code.expires_in_s, code.interval_s), (900, 5));
    }
}
