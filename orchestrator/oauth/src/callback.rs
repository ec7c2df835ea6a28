//! Parsing of an authorization server's redirect.

use goondan_protocol::oauth::{TokenErrorResponse, url_decoded};
use goondan_protocol::secret::SecretValue;

/// Parameters of a redirect URL.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Callback {
    pub(crate) state: SecretValue,
    /// Issuer named by the server (RFC 9207).
    pub(crate) issuer: Option<String>,
    pub(crate) outcome: Result<SecretValue, TokenErrorResponse>,
}

/// Reason why a URL does not finish this login. It never quotes the URL, which may contain a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallbackError {
    #[error("the address does not begin with the redirect address of the login")]
    OtherAddress,
    #[error("the address has no `{0}`")]
    Missing(&'static str),
    #[error("the address has `{0}` twice")]
    Twice(&'static str),
    #[error("the address is not properly URL-encoded")]
    NotEncoded,
}

impl Callback {
    /// Parses a URL that must be `redirect_uri` plus query parameters.
    pub(crate) fn parse(address: &str, redirect_uri: &str) -> Result<Self, CallbackError> {
        let address = address.trim();
        let address = address
            .split_once('#')
            .map_or(address, |(before, _)| before);
        let separator = if redirect_uri.contains('?') { '&' } else { '?' };
        let query = address
            .strip_prefix(redirect_uri)
            .and_then(|rest| rest.strip_prefix(separator));
        Self::of_query(query.ok_or(CallbackError::OtherAddress)?)
    }

    /// Parses the query of a verified URL.
    pub(crate) fn of_query(query: &str) -> Result<Self, CallbackError> {
        let find = |name: &'static str| {
            let mut found = query.split('&').filter_map(|field| {
                let (key, value) = field.split_once('=').unwrap_or((field, ""));
                (key == name).then_some(value)
            });
            let value = found.next();
            if found.next().is_some() {
                return Err(CallbackError::Twice(name));
            }
            let value = value.map(|value| url_decoded(value).ok_or(CallbackError::NotEncoded));
            Ok(value.transpose()?.filter(|value| !value.is_empty()))
        };
        let state = find("state")?.ok_or(CallbackError::Missing("state"))?;
        let outcome = match (find("error")?, find("code")?) {
            (Some(error), _) => Err(TokenErrorResponse {
                error,
                description: find("error_description")?,
            }),
            (None, Some(code)) => Ok(SecretValue::new(code)),
            (None, None) => return Err(CallbackError::Missing("code")),
        };
        Ok(Self {
            state: SecretValue::new(state),
            issuer: find("iss")?,
            outcome,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REDIRECT: &str = "http://127.0.0.1:4711/callback";

    #[test]
    fn sys_4_a_callback_is_read_from_the_exact_address_alone() {
        let good = format!("{REDIRECT}?code=a%2Fb&state=s&iss=https%3A%2F%2Fas.example#_=_");
        let callback = Callback::parse(&good, REDIRECT).unwrap();
        assert_eq!(callback.state.expose(), "s");
        assert_eq!(callback.issuer.as_deref(), Some("https://as.example"));
        assert_eq!(callback.outcome.unwrap().expose(), "a/b");
        let fixed = "https://example.org/cb?tenant=1";
        let with_query = format!("{fixed}&code=c&state=s");
        assert!(Callback::parse(&with_query, fixed).is_ok());
        for other in [
            "http://127.0.0.1:4712/callback?code=c&state=s",
            "http://127.0.0.1:4711/callback/x?code=c&state=s",
            "http://localhost:4711/callback?code=c&state=s",
            "http://127.0.0.1:4711/callback",
            "code=c&state=s",
        ] {
            let error = Callback::parse(other, REDIRECT).unwrap_err();
            assert_eq!(error, CallbackError::OtherAddress, "{other}");
        }
    }

    #[test]
    fn sys_4_callback_with_missing_or_repeated_parts_is_refused() {
        let parse = |query: &str| Callback::parse(&format!("{REDIRECT}?{query}"), REDIRECT);
        assert_eq!(parse("code=c"), Err(CallbackError::Missing("state")));
        assert_eq!(parse("state=s"), Err(CallbackError::Missing("code")));
        assert_eq!(parse("state=s&code="), Err(CallbackError::Missing("code")));
        let twice = parse("state=s&code=c&code=d");
        assert_eq!(twice, Err(CallbackError::Twice("code")));
        assert_eq!(parse("state=%zz&code=c"), Err(CallbackError::NotEncoded));
        let declined = parse("error=access_denied&error_description=no+thanks&state=s").unwrap();
        let refused = declined.outcome.unwrap_err();
        assert_eq!(refused.to_string(), "`access_denied`: no thanks");
    }
}
