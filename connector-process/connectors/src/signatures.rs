//! Signature presets of webhooks: the schemes of well-known services as data.
//!
//! A preset says which header carries the signature, how it is computed, and where the service puts
//! the id and the type of an event. `docs/connectors/webhook.md` lists all presets.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use goondan_protocol::JsonObject;
use serde_json::Value;

/// The scheme of one service.
#[derive(Debug)]
pub struct SignaturePreset {
    /// Its name in `signature.preset`.
    pub name: &'static str,
    pub scheme: SignatureScheme,
    /// The header with the signatures; the first one that a request has counts.
    pub headers: &'static [&'static str],
    pub algorithm: HashAlgorithm,
    pub encoding: SignatureEncoding,
    /// Text before each signature.
    pub prefix: &'static str,
    /// Character between the items of the header, if it can carry several.
    pub separator: Option<char>,
    /// Parts of the signed text, in order.
    pub signed: &'static [SignedPart],
    pub time: SignedTime,
    pub secret: SecretFormat,
    /// Locations of the event id, in order of precedence.
    pub id: &'static [ValueSource],
    /// Locations of the event type, in order of precedence.
    pub event_type: &'static [ValueSource],
    /// Field with the input, as for `inputField`; other bodies follow the usual rule.
    pub input: Option<&'static str>,
    pub challenge: Challenge,
    /// Status code that the service expects for an accepted event.
    pub status: u16,
    /// True if the service gives up after at most five seconds.
    pub is_swift: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignatureScheme {
    /// A keyed hash of the signed parts.
    Hmac,
    /// The header contains the secret itself.
    Token,
    /// HTTP Basic authentication; the secret is `user:password`.
    Basic,
    /// A keyed hash of the URL and the sorted form fields, or of a URL with the hash of the body.
    Twilio,
    /// A signature by the key of a certificate of Amazon SNS.
    Sns,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashAlgorithm {
    Sha1,
    Sha256,
    Sha512,
}

impl HashAlgorithm {
    /// Names in `signature.algorithm`.
    pub const NAMES: [&'static str; 3] = ["sha256", "sha1", "sha512"];

    /// The algorithm of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "sha1" => Some(Self::Sha1),
            "sha256" => Some(Self::Sha256),
            "sha512" => Some(Self::Sha512),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignatureEncoding {
    Hex,
    Base64,
}

impl SignatureEncoding {
    /// Names in `signature.encoding`.
    pub const NAMES: [&'static str; 2] = ["hex", "base64"];

    /// The encoding of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "hex" => Some(Self::Hex),
            "base64" => Some(Self::Base64),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignedPart {
    Text(&'static str),
    /// The value of this header.
    Header(&'static str),
    /// The time, as written in the request.
    Time,
    Body,
}

/// Location of the time of a signature, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignedTime {
    /// The scheme signs no time.
    None,
    Header(&'static str),
    /// An item of the signature header, after this prefix.
    Item(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretFormat {
    /// Its bytes are the key.
    Text,
    /// Base64, after this optional prefix.
    Base64(&'static str),
    /// `user:password`.
    UserAndPassword,
    /// The scheme has no secret.
    None,
}

impl SecretFormat {
    /// The key in `secret`; `None` if it has another format.
    #[must_use]
    pub fn key(self, secret: &str) -> Option<Vec<u8>> {
        let key = match self {
            Self::Text => secret.as_bytes().to_vec(),
            Self::Base64(prefix) => {
                let digits = secret.strip_prefix(prefix).unwrap_or(secret);
                STANDARD.decode(digits.trim()).ok()?
            }
            Self::UserAndPassword if secret.contains(':') => secret.as_bytes().to_vec(),
            Self::UserAndPassword | Self::None => return None,
        };
        (!key.is_empty()).then_some(key)
    }

    /// Description of a valid secret.
    #[must_use]
    pub fn expected(self) -> String {
        match self {
            Self::Text => "a text that is not empty".to_owned(),
            Self::Base64(prefix) => format!("base64, after an optional `{prefix}`"),
            Self::UserAndPassword => "`user:password`".to_owned(),
            Self::None => "absent, because the preset has none".to_owned(),
        }
    }
}

/// Location of a fact about the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueSource {
    Header(&'static str),
    /// A field of the body, as for `idField`.
    Field(&'static str),
    /// The SHA-256 of the body, for services without an id: an exact repetition is the same event.
    Digest,
}

/// Question of a service that checks the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Challenge {
    None,
    /// `url_verification`: the challenge is returned.
    Slack,
    /// `endpoint.url_validation`: the token is returned with its keyed hash.
    Zoom,
}

/// Largest difference between a signed time and this machine's clock, in seconds, unless
/// `signature.toleranceSeconds` is set. All services with a signed time recommend five minutes.
pub const TOLERANCE_S: u64 = 300;

use ValueSource::{Digest, Field, Header};

/// Common values: HMAC-SHA256 of the body, in hexadecimal digits without a prefix.
pub const PLAIN: SignaturePreset = SignaturePreset {
    name: "",
    scheme: SignatureScheme::Hmac,
    headers: &[],
    algorithm: HashAlgorithm::Sha256,
    encoding: SignatureEncoding::Hex,
    prefix: "",
    separator: None,
    signed: &[SignedPart::Body],
    time: SignedTime::None,
    secret: SecretFormat::Text,
    id: &[],
    event_type: &[],
    input: None,
    challenge: Challenge::None,
    status: 202,
    is_swift: false,
};

const WHSEC: SecretFormat = SecretFormat::Base64("whsec_");

/// Standard Webhooks, and its older form with other header names.
const STANDARD_WEBHOOKS: SignaturePreset = SignaturePreset {
    headers: &["webhook-signature"],
    encoding: SignatureEncoding::Base64,
    prefix: "v1,",
    separator: Some(' '),
    signed: &[
        SignedPart::Header("webhook-id"),
        SignedPart::Text("."),
        SignedPart::Time,
        SignedPart::Text("."),
        SignedPart::Body,
    ],
    time: SignedTime::Header("webhook-timestamp"),
    secret: WHSEC,
    id: &[Header("webhook-id")],
    event_type: &[Field("type")],
    ..PLAIN
};

/// The scheme that Slack and Zoom share.
const V0_PREFIX: &str = "v0=";
const V0_SIGNED: &[SignedPart] = &[
    SignedPart::Text("v0:"),
    SignedPart::Time,
    SignedPart::Text(":"),
    SignedPart::Body,
];

/// Every preset, by name.
pub static PRESETS: [SignaturePreset; 15] = [
    SignaturePreset {
        name: "basic",
        scheme: SignatureScheme::Basic,
        headers: &["authorization"],
        secret: SecretFormat::UserAndPassword,
        ..PLAIN
    },
    SignaturePreset {
        name: "github",
        headers: &["x-hub-signature-256"],
        prefix: "sha256=",
        id: &[Header("x-github-delivery")],
        event_type: &[Header("x-github-event")],
        ..PLAIN
    },
    SignaturePreset {
        name: "gitlab",
        scheme: SignatureScheme::Token,
        headers: &["x-gitlab-token"],
        // Events that one event causes share `X-Gitlab-Event-UUID`; newer servers also send a key
        // that only repetitions share.
        id: &[Header("idempotency-key"), Header("x-gitlab-event-uuid")],
        event_type: &[Header("x-gitlab-event")],
        ..PLAIN
    },
    SignaturePreset {
        name: "pagerduty",
        headers: &["x-pagerduty-signature"],
        prefix: "v1=",
        separator: Some(','),
        id: &[Field("/event/id")],
        event_type: &[Field("/event/event_type")],
        ..PLAIN
    },
    SignaturePreset {
        name: "paystack",
        headers: &["x-paystack-signature"],
        algorithm: HashAlgorithm::Sha512,
        id: &[Digest],
        event_type: &[Field("event")],
        status: 200,
        ..PLAIN
    },
    SignaturePreset {
        name: "shopify",
        // The second headers are those of Shopify Events.
        headers: &["x-shopify-hmac-sha256", "shopify-hmac-sha256"],
        encoding: SignatureEncoding::Base64,
        id: &[Header("x-shopify-webhook-id"), Header("shopify-webhook-id")],
        event_type: &[Header("x-shopify-topic"), Header("shopify-topic")],
        is_swift: true,
        ..PLAIN
    },
    SignaturePreset {
        name: "slack",
        headers: &["x-slack-signature"],
        prefix: V0_PREFIX,
        signed: V0_SIGNED,
        time: SignedTime::Header("x-slack-request-timestamp"),
        id: &[Field("event_id")],
        event_type: &[Field("/event/type"), Field("type")],
        challenge: Challenge::Slack,
        is_swift: true,
        ..PLAIN
    },
    SignaturePreset {
        name: "sns",
        scheme: SignatureScheme::Sns,
        encoding: SignatureEncoding::Base64,
        secret: SecretFormat::None,
        id: &[Field("MessageId")],
        event_type: &[Header("x-amz-sns-message-type")],
        input: Some("Message"),
        status: 200,
        ..PLAIN
    },
    SignaturePreset {
        name: "standard-webhooks",
        ..STANDARD_WEBHOOKS
    },
    SignaturePreset {
        name: "stripe",
        headers: &["stripe-signature"],
        prefix: "v1=",
        separator: Some(','),
        signed: &[SignedPart::Time, SignedPart::Text("."), SignedPart::Body],
        time: SignedTime::Item("t="),
        id: &[Field("id")],
        event_type: &[Field("type")],
        ..PLAIN
    },
    SignaturePreset {
        name: "svix",
        headers: &["svix-signature"],
        signed: &[
            SignedPart::Header("svix-id"),
            SignedPart::Text("."),
            SignedPart::Time,
            SignedPart::Text("."),
            SignedPart::Body,
        ],
        time: SignedTime::Header("svix-timestamp"),
        id: &[Header("svix-id")],
        ..STANDARD_WEBHOOKS
    },
    SignaturePreset {
        name: "twilio",
        scheme: SignatureScheme::Twilio,
        headers: &["x-twilio-signature"],
        algorithm: HashAlgorithm::Sha1,
        encoding: SignatureEncoding::Base64,
        id: &[Header("i-twilio-idempotency-token")],
        event_type: &[Field("EventType")],
        input: Some("Body"),
        // Twilio reads a body as TwiML.
        status: 204,
        ..PLAIN
    },
    SignaturePreset {
        name: "typeform",
        headers: &["typeform-signature"],
        encoding: SignatureEncoding::Base64,
        prefix: "sha256=",
        id: &[Field("event_id")],
        event_type: &[Field("event_type")],
        ..PLAIN
    },
    SignaturePreset {
        name: "vercel",
        headers: &["x-vercel-signature"],
        algorithm: HashAlgorithm::Sha1,
        id: &[Field("id")],
        event_type: &[Field("type")],
        status: 200,
        ..PLAIN
    },
    SignaturePreset {
        name: "zoom",
        headers: &["x-zm-signature"],
        prefix: V0_PREFIX,
        signed: V0_SIGNED,
        time: SignedTime::Header("x-zm-request-timestamp"),
        id: &[Digest],
        event_type: &[Field("event")],
        challenge: Challenge::Zoom,
        status: 200,
        is_swift: true,
        ..PLAIN
    },
];

/// The names of [`PRESETS`], for `signature.preset`.
pub static PRESET_NAMES: [&str; 15] = [
    "basic",
    "github",
    "gitlab",
    "pagerduty",
    "paystack",
    "shopify",
    "slack",
    "sns",
    "standard-webhooks",
    "stripe",
    "svix",
    "twilio",
    "typeform",
    "vercel",
    "zoom",
];

/// The preset of connections that name none.
pub const DEFAULT_PRESET: &str = "github";

/// The presets without a secret.
pub const SECRETLESS_PRESETS: [&str; 1] = ["sns"];

/// The preset of this name.
#[must_use]
pub fn preset(name: &str) -> Option<&'static SignaturePreset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

/// The preset that the settings of a webhook name, explicitly or by default; `None` if the name is
/// unknown.
#[must_use]
pub fn preset_of(config: &JsonObject) -> Option<&'static SignaturePreset> {
    let named = config.get("signature").and_then(|it| it.get("preset"));
    preset(named.map_or(Some(DEFAULT_PRESET), Value::as_str)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conn_3_presets_are_sorted_and_consistent() {
        assert!(PRESET_NAMES.is_sorted());
        assert!(PRESETS.iter().map(|preset| preset.name).eq(PRESET_NAMES));
        assert!(preset(DEFAULT_PRESET).is_some());
        for preset in &PRESETS {
            let is_secretless = preset.secret == SecretFormat::None;
            assert_eq!(
                is_secretless,
                SECRETLESS_PRESETS.contains(&preset.name),
                "{}",
                preset.name
            );
            let signs_time = preset.signed.contains(&SignedPart::Time);
            assert_eq!(
                signs_time,
                preset.time != SignedTime::None,
                "{}",
                preset.name
            );
            let headers = preset.id.iter().chain(preset.event_type);
            let headers = headers.filter_map(|source| match source {
                Header(name) => Some(*name),
                Field(_) | Digest => None,
            });
            for header in headers.chain(preset.headers.iter().copied()) {
                assert_eq!(header, header.to_ascii_lowercase(), "{}", preset.name);
            }
        }
        for name in HashAlgorithm::NAMES {
            assert!(HashAlgorithm::named(name).is_some());
        }
        for name in SignatureEncoding::NAMES {
            assert!(SignatureEncoding::named(name).is_some());
        }
    }

    #[test]
    fn conn_3_secrets_are_decoded_by_their_format() {
        let base64 = SecretFormat::Base64("whsec_");
        assert_eq!(base64.key("whsec_AQID"), Some(vec![1, 2, 3]));
        assert_eq!(base64.key("AQID"), Some(vec![1, 2, 3]));
        for wrong in ["whsec_", "whsec_???", "hunter2"] {
            assert_eq!(base64.key(wrong), None, "{wrong}");
        }
        assert_eq!(SecretFormat::Text.key("whsec_x"), Some(b"whsec_x".to_vec()));
        assert_eq!(SecretFormat::UserAndPassword.key("ada"), None);
        assert!(SecretFormat::UserAndPassword.key("ada:pass:word").is_some());
        assert_eq!(SecretFormat::None.key("x"), None);
    }
}
