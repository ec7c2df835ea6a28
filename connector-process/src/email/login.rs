//! The login at both servers: a password, or an OAuth access token.

use std::collections::BTreeMap;
use std::fmt;

/// User and secret.
#[derive(Clone)]
pub(super) struct Login {
    user: String,
    secret: String,
    is_token: bool,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").finish_non_exhaustive()
    }
}

impl Login {
    /// The login of a Connection.
    ///
    /// # Errors
    ///
    /// If it has no secret, or both.
    pub(super) fn of(user: &str, secrets: &BTreeMap<String, String>) -> Result<Self, String> {
        let (secret, is_token) = match (secrets.get("password"), secrets.get("accessToken")) {
            (Some(password), None) => (password, false),
            (None, Some(token)) => (token, true),
            (None, None) => {
                return Err("set one of the secrets `password` and `accessToken`".to_owned());
            }
            (Some(_), Some(_)) => {
                return Err("set only one of the secrets `password` and `accessToken`".to_owned());
            }
        };
        if [user, secret]
            .iter()
            .any(|text| text.contains(['\0', '\x01']))
        {
            return Err("the user name or the secret has control characters".to_owned());
        }
        Ok(Self {
            user: user.to_owned(),
            secret: secret.clone(),
            is_token,
        })
    }

    pub(super) fn user(&self) -> &str {
        &self.user
    }

    pub(super) fn secret(&self) -> &str {
        &self.secret
    }

    /// The response of the mechanism PLAIN (RFC 4616).
    pub(super) fn plain(&self) -> String {
        format!("\0{}\0{}", self.user, self.secret)
    }

    /// The response of the mechanism XOAUTH2 with an access token; `None` with a password.
    pub(super) fn xoauth2(&self) -> Option<String> {
        let (user, token) = (&self.user, &self.secret);
        self.is_token
            .then(|| format!("user={user}\x01auth=Bearer {token}\x01\x01"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conn_1_login_has_exactly_one_secret() {
        let login = |names: &[&str]| {
            let secrets = names
                .iter()
                .map(|name| ((*name).to_owned(), "s".to_owned()));
            Login::of("ada", &secrets.collect())
        };
        assert_eq!(login(&["password"]).unwrap().xoauth2(), None);
        assert_eq!(login(&["password"]).unwrap().plain(), "\0ada\0s");
        let token = login(&["accessToken"]).unwrap().xoauth2().unwrap();
        assert_eq!(token, "user=ada\u{1}auth=Bearer s\u{1}\u{1}");
        for wrong in [&[][..], &["password", "accessToken"]] {
            assert!(login(wrong).is_err());
        }
    }
}
