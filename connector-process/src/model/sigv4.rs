//! Signature Version 4 of AWS (pure): headers that authenticate a request with an access key.
//!
//! The algorithm is that of the AWS General Reference. Paths are encoded twice, as for all services
//! except S3.

use goondan_protocol::cloud::AwsAccessKey;
use hmac::{Hmac, Mac as _};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use reqwest::Url;
use sha2::{Digest as _, Sha256};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// A request to sign.
#[derive(Debug, Clone, Copy)]
pub(super) struct UnsignedRequest<'r> {
    pub(super) method: &'r str,
    pub(super) url: &'r Url,
    /// Headers that the signature covers, besides `host` and those that signing adds. Names in
    /// lower case.
    pub(super) headers: &'r [(&'static str, &'r str)],
    pub(super) body: &'r [u8],
}

/// The service that a signature is valid for.
#[derive(Debug, Clone, Copy)]
pub(super) struct SigningScope<'s> {
    pub(super) region: &'s str,
    pub(super) service: &'s str,
}

/// The headers to add to the request.
pub(super) fn headers_of(
    request: UnsignedRequest<'_>,
    key: &AwsAccessKey,
    scope: SigningScope<'_>,
    now: Timestamp,
) -> Vec<(&'static str, String)> {
    let now = now.to_zoned(TimeZone::UTC);
    let time = now.strftime("%Y%m%dT%H%M%SZ").to_string();
    let date = now.strftime("%Y%m%d").to_string();
    let mut added = vec![("x-amz-date", time.clone())];
    if let Some(token) = &key.session_token {
        added.push(("x-amz-security-token", token.clone()));
    }
    let mut headers: Vec<(&str, String)> = added.clone();
    headers.push(("host", host_of(request.url)));
    let signed = request.headers.iter();
    headers.extend(signed.map(|(name, value)| (*name, (*value).to_owned())));
    headers.sort();
    let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let canonical = canonical_request(request, &headers, &names);
    let scope_text = format!("{date}/{}/{}/aws4_request", scope.region, scope.service);
    let digest = hex::encode(Sha256::digest(canonical));
    let to_sign = format!("{ALGORITHM}\n{time}\n{scope_text}\n{digest}");
    let mut signing_key = format!("AWS4{}", key.secret).into_bytes();
    for part in [&date, scope.region, scope.service, "aws4_request"] {
        signing_key = keyed_digest(&signing_key, part);
    }
    let signature = hex::encode(keyed_digest(&signing_key, &to_sign));
    added.push((
        "authorization",
        format!(
            "{ALGORITHM} Credential={}/{scope_text}, SignedHeaders={names}, Signature={signature}",
            key.id
        ),
    ));
    added
}

fn keyed_digest(key: &[u8], text: &str) -> Vec<u8> {
    // A key of any length is valid.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else {
        return Vec::new();
    };
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

/// The value of the header `host`, as the client sends it.
fn host_of(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

fn canonical_request(
    request: UnsignedRequest<'_>,
    headers: &[(&str, String)],
    names: &str,
) -> String {
    let mut query: Vec<(String, String)> = request
        .url
        .query_pairs()
        .map(|(name, value)| (encoded(&name, false), encoded(&value, false)))
        .collect();
    query.sort();
    let query: Vec<String> = query
        .into_iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let lines: String = headers
        .iter()
        .map(|(name, value)| {
            let words: Vec<&str> = value.split_ascii_whitespace().collect();
            format!("{name}:{}\n", words.join(" "))
        })
        .collect();
    [
        request.method,
        &encoded(request.url.path(), true),
        &query.join("&"),
        &lines,
        names,
        &hex::encode(Sha256::digest(request.body)),
    ]
    .join("\n")
}

/// Percent-encodes everything but unreserved characters.
pub(super) fn encoded(text: &str, keeps_slashes: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        let c = char::from(byte);
        if c.is_ascii_alphanumeric()
            || matches!(c, '-' | '.' | '_' | '~')
            || keeps_slashes && c == '/'
        {
            out.push(c);
        } else {
            out.push('%');
            out.push_str(&hex::encode_upper([byte]));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Signs as in the test suite that AWS publishes, and returns the signature.
    fn signature(
        method: &str,
        url: &str,
        headers: &[(&'static str, &str)],
        body: &str,
        token: Option<&str>,
    ) -> String {
        let key = AwsAccessKey {
            id: "AKIDEXAMPLE".to_owned(),
            secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned(),
            session_token: token.map(str::to_owned),
        };
        let url: Url = url.parse().unwrap();
        let request = UnsignedRequest {
            method,
            url: &url,
            headers,
            body: body.as_bytes(),
        };
        let scope = SigningScope {
            region: "us-east-1",
            service: "service",
        };
        let now = "2015-08-30T12:36:00Z".parse().unwrap();
        let headers = headers_of(request, &key, scope, now);
        let (_, authorization) = headers.last().unwrap();
        let start = "AWS4-HMAC-SHA256 \
                     Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders=";
        assert!(authorization.starts_with(start), "{authorization}");
        authorization.rsplit('=').next().unwrap().to_owned()
    }

    #[test]
    fn prov_1_signatures_match_the_test_suite_of_aws() {
        const URL: &str = "https://example.amazonaws.com/";
        const TOKEN: &str = "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA==";
        let form = [("content-type", "application/x-www-form-urlencoded")];
        for (name, found, expected) in [
            (
                "get-vanilla",
                signature("GET", URL, &[], "", None),
                "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            ),
            (
                "post-vanilla",
                signature("POST", URL, &[], "", None),
                "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
            ),
            (
                "get-vanilla-query-order-key-case",
                signature(
                    "GET",
                    &format!("{URL}?Param2=value2&Param1=value1"),
                    &[],
                    "",
                    None,
                ),
                "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
            ),
            (
                "post-x-www-form-urlencoded",
                signature("POST", URL, &form, "Param1=value1", None),
                "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
            ),
            (
                "post-sts-header-before",
                signature("POST", URL, &[], "", Some(TOKEN)),
                "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead",
            ),
        ] {
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn prov_1_an_encoded_path_is_encoded_again_for_the_signature() {
        let url: Url = "https://bedrock-runtime.us-east-1.amazonaws.com/model/a.b-v1%3A0/invoke"
            .parse()
            .unwrap();
        let request = UnsignedRequest {
            method: "POST",
            url: &url,
            headers: &[],
            body: b"",
        };
        let canonical = canonical_request(request, &[], "");
        assert!(
            canonical.starts_with("POST\n/model/a.b-v1%253A0/invoke\n"),
            "{canonical}"
        );
    }
}
