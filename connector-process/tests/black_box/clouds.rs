//! Goal: models on Azure, Vertex AI and Bedrock get requests with the URL, the credentials and the
//! body that the platform expects, and their streams and failures are understood (PROV-1).
//!
//! Method: the real binary, and a provider on the loopback that checks each request.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use goondan_protocol::call::CallErrorCode;
use goondan_tests::provider::{
    Provider, ProviderResponse, ReceivedRequest, anthropic_events, anthropic_saying, aws_message,
    bedrock, google_saying, openai_saying, responses_saying,
};
use hmac::{Hmac, Mac as _};
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::model::Model;

const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

/// A key that is used nowhere else.
const PRIVATE_KEY: &str = "\
-----BEGIN PRIVATE KEY-----
MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQCzCmi9jaScbFVK
mF+Zm1J4ztyqA9ptOZZ1PN7WTKPDeO5HrhRVeyaS3EsTGdN6OU1+8sfh8byRfJ3E
IyxYHawN4DG5LBNbJJKRPMnHtOs28/ztP/ux6uqD0w6rkX701nBNxayDVIBXmszj
nNitkpWn2pGdWMInIfM0bLguJSMAZicHWAdJAJ8+oNWmeBDa1zsjkUnhni2e4W/8
ElS3VOlwHxEYqZ+wSWRL1xoFd9Pz3UPtXnhoHD4JqzXVv1FBNyZ538YOgV9qriDD
vs2VobWdBFn28jHCpTxIl/aFmYc+7J89VQHPibUjWU7f8Np4Lq3e1BqevskvC7j0
5uNYJSS1AgMBAAECggEATybB6VLuPA0Uo9a7JOBq1Ge3XB45+WGlJ41SgnD9URRs
WxoVeTjpc7GaKwaW3Ijqvr28KiJBmBv8b1KRbx8nCjdcJB3dLMT9WuIB3p0YA4JY
Bdbsgdp19PNgn+7BrqICog9K1gCMgK45+EJF9G5CZSOWjnZH1x8GMt4Birz2PV0t
u24zz2PNnXcGpjrZFGNd5SAq/gu/Wra7YLshWAXszNmtTa6acaitWitdgCC2QHIV
ylqnv7d2Qzl4jgql1sLZ63F/HccN6JnD/yag72vCv48GxmLuVTGGpM3K6BUcrKcl
TwoZVCevDXYNMbBRyEugxRhzjnsVouv0zfsl5DpXPQKBgQDqmbpZN76F7gSgcoFt
kH+V0y2QRCHUbNeR50GuQHXaf5m7JUMOpqhA+p80xanmwEKPK0g+SsBF1YK6acvU
juon+syoNVjVBY0vM5jBRu/vbvJA4sMNxmLeS0x3SbNYW+1+oDYGgiYGYwcau3hH
SWcn1Q2B65rOUWBGuRbYwynI+wKBgQDDX0anZmUJIBQHfjlatgC3bpJ3KL2NnUBk
epBTKvOe8FJ+PSmvyvJ2cikmxXG2cdT8KlGn4PJqx86SIk/JfCPUtY+7YSqg7e14
P4Qs26wpco8fLAISUk27P58aoWnkVQrBc05tPOSPWPV3TkcLyUCVHVGRuFbUOhHE
cU4aXkS6DwKBgFrSwQ4hQqVfDHOBYRIlyv8aDp23gtFWge5+dTMcyYOZus51Eozt
gF4HqPMpQymObTY4L3PORLnEeyPoKX1VBtoLgofsf0OZLpuDgjPxXpp3fVoZcCI5
F7WvuR7FbaVbkYpgRAopAMegNvPmeB5BEKqfFOejav9NCdTXezzX8alZAoGBAIgV
iDA3+W5WwrzJZgfSOEOMqEaJwSav/tc+K+NSSqlNuhgmYDALi8GHGTThWKh9N56B
l6j43cIU9MUDU1IDvy19XeVl8/xuXfdhPp7EUHH6Usiirbq3S19/HEK/ZfPebIR8
3YbnYEic7TWx93i1MN/ssRFwNkLTQ+byCTYCrZpvAoGAFcid5z0669lu/JLOP4xc
4Uh4ptGMwB/v8hW4jyALY550MJy5cR1KE4kaa++nCN2Z+KV85/TadnKskz1qzIuF
hM1fXYQ+O+9fnNpAlpfsyxFuMG4GJ8VgccXcur1Wz4kbpGYVMlICS4QmEmQ4089f
BHOUiGwkX8m94PQAoaTfct0=
-----END PRIVATE KEY-----
";

fn model(fields: &Value) -> Model {
    let mut whole = json!({"name": "m"});
    let fields = fields.as_object().unwrap().clone();
    whole.as_object_mut().unwrap().extend(fields);
    Model::with(&whole)
}

#[test]
fn prov_1_azure_gets_its_key_at_the_url_of_a_deployment() {
    let provider = Provider::start(|received| match received.path.contains("/responses") {
        true => ProviderResponse::stream(&responses_saying("Yes.")),
        false => ProviderResponse::stream(&openai_saying(&["Yes."])),
    });
    for (number, (base, api, azure, path)) in [
        (
            "",
            "chat",
            json!({"apiVersion": "2024-10-21"}),
            "/openai/deployments/big-1/chat/completions?api-version=2024-10-21",
        ),
        (
            "/openai/v1",
            "chat",
            json!({}),
            "/openai/v1/chat/completions",
        ),
        ("/openai/v1", "responses", json!({}), "/openai/v1/responses"),
        (
            "",
            "responses",
            json!({"apiVersion": "2025-04-01-preview"}),
            "/openai/responses?api-version=2025-04-01-preview",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let mut model = model(&json!({"provider": "openai", "model": "big-1", "api": api,
            "endpoint": format!("{}{base}", provider.root()), "apiKey": "azure-key",
            "platform": {"azure": azure}}));
        assert_eq!(model.hi().content().to_text(), "Yes.");
        let received = &provider.received()[number];
        assert_eq!(received.path, path);
        assert_eq!(received.header("api-key"), Some("azure-key"));
        assert_eq!(received.header("authorization"), None);
        assert_eq!(received.body["model"], "big-1");
    }
}

/// Checks the signature of a token that a service account exchanges, and returns its claims.
fn claims_of(received: &ReceivedRequest) -> Value {
    let form = received.body.as_str().unwrap();
    let (grant, assertion) = form.split_once("&assertion=").unwrap();
    assert_eq!(
        grant,
        "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer"
    );
    let der = PrivatePkcs8KeyDer::from_pem_slice(PRIVATE_KEY.as_bytes()).unwrap();
    let pair = RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).unwrap();
    let (signed, signature) = assertion.rsplit_once('.').unwrap();
    let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, pair.public());
    let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
    public.verify(signed.as_bytes(), &signature).unwrap();
    let (head, claims) = signed.split_once('.').unwrap();
    let read = |part: &str| -> Value {
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
    };
    assert_eq!(
        read(head),
        json!({"alg": "RS256", "typ": "JWT", "kid": "key-1"})
    );
    read(claims)
}

#[test]
fn prov_1_service_account_token_is_reused_until_it_is_refused() {
    let provider = Provider::start(|received| match received.path.as_str() {
        "/token" => {
            ProviderResponse::json(&json!({"access_token": format!("ya29.{}", received.number),
            "expires_in": 3_599, "token_type": "Bearer"}))
        }
        _ if received.header("authorization") == Some("Bearer ya29.0") && received.number > 2 => {
            ProviderResponse::error(
                401,
                &json!({"error": {"code": 401, "status": "UNAUTHENTICATED",
                    "message": "Request had invalid credential ya29.0."}}),
            )
        }
        _ => ProviderResponse::stream(&google_saying("Yes.")),
    });
    let key = json!({"type": "service_account", "client_email": "bot@shop.iam.gserviceaccount.com",
        "private_key_id": "key-1", "private_key": PRIVATE_KEY,
        "token_uri": format!("{}/token", provider.root())});
    let mut model = model(&json!({"provider": "google", "model": "gemini-2.5-pro",
        "endpoint": format!("{}/v1", provider.root()),
        "platform": {"vertex": {"project": "shop", "location": "us-central1",
            "serviceAccount": key.to_string()}}}));
    assert_eq!(model.hi().content().to_text(), "Yes.");
    assert_eq!(model.hi().content().to_text(), "Yes.");
    let refused = model.hi();
    assert_eq!(refused.error().code, CallErrorCode::Unauthorized);
    let message = &refused.error().message;
    assert!(!message.contains("ya29"), "{message}");
    assert_eq!(model.hi().content().to_text(), "Yes.");

    let received = provider.received();
    let paths: Vec<_> = received.iter().map(|it| it.path.as_str()).collect();
    let call = "/v1/projects/shop/locations/us-central1/publishers/google/models/gemini-2.5-pro:streamGenerateContent?alt=sse";
    assert_eq!(paths, ["/token", call, call, call, "/token", call]);
    assert_eq!(received[5].header("authorization"), Some("Bearer ya29.4"));
    let claims = claims_of(&received[0]);
    assert_eq!(claims["iss"], "bot@shop.iam.gserviceaccount.com");
    assert_eq!(
        claims["scope"],
        "https://www.googleapis.com/auth/cloud-platform"
    );
    assert_eq!(claims["aud"], format!("{}/token", provider.root()));
    let seconds = claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap();
    assert_eq!(seconds, 3_600);
}

#[test]
fn prov_1_a_refused_service_account_is_named() {
    let provider = Provider::start(|_| {
        ProviderResponse::error(
            400,
            &json!({"error": "invalid_grant",
            "error_description": "Invalid JWT Signature."}),
        )
    });
    let mut key = json!({"client_email": "bot@shop", "private_key": PRIVATE_KEY,
        "token_uri": format!("{}/token", provider.root())});
    let with = |key: &Value| {
        model(
            &json!({"provider": "anthropic", "model": "claude-sonnet-4-5",
            "platform": {"vertex": {"project": "shop", "location": "global",
                "serviceAccount": key.to_string()}}}),
        )
    };
    let refused = with(&key).hi();
    let error = refused.error();
    assert_eq!(error.code, CallErrorCode::Unauthorized);
    assert!(error.message.contains("Invalid JWT Signature"), "{error:?}");
    key["private_key"] = json!("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n");
    let refused = with(&key).hi();
    let error = refused.error();
    assert_eq!(error.code, CallErrorCode::Unauthorized);
    assert!(error.message.contains("`private_key`"), "{error:?}");
    assert_eq!(provider.received().len(), 1);
}

#[test]
fn prov_1_anthropic_on_vertex_gets_a_token_and_its_version() {
    let provider = Provider::start(|_| ProviderResponse::stream(&anthropic_saying("Yes.")));
    let mut model = model(
        &json!({"provider": "anthropic", "model": "claude-sonnet-4-5@20250929",
        "endpoint": format!("{}/v1", provider.root()), "apiKey": "ya29.token",
        "platform": {"vertex": {"project": "shop", "location": "us-east5"}}}),
    );
    assert_eq!(model.hi().content().to_text(), "Yes.");
    let received = &provider.received()[0];
    assert_eq!(
        received.path,
        "/v1/projects/shop/locations/us-east5/publishers/anthropic/models/claude-sonnet-4-5@20250929:streamRawPredict"
    );
    assert_eq!(received.header("authorization"), Some("Bearer ya29.token"));
    assert_eq!(received.header("x-api-key"), None);
    assert_eq!(received.body["anthropic_version"], "vertex-2023-10-16");
    assert_eq!(
        (received.body.get("model"), &received.body["stream"]),
        (None, &json!(true))
    );
}

fn bedrock_model(provider: &Provider) -> Model {
    model(
        &json!({"provider": "anthropic", "model": "us.anthropic.claude-sonnet-4-5-v1:0",
        "endpoint": provider.root(),
        "platform": {"bedrock": {"region": "us-east-1", "accessKey": {"id": "AKIDEXAMPLE",
            "secret": SECRET, "sessionToken": "session-token"}}}}),
    )
}

/// The signature of a request, as AWS computes it from what it receives.
fn signature_of(received: &ReceivedRequest) -> String {
    let mac = |key: &[u8], text: &str| {
        let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
        mac.update(text.as_bytes());
        mac.finalize().into_bytes().to_vec()
    };
    let header = |name: &str| received.header(name).unwrap();
    let names = "content-type;host;x-amz-date;x-amz-security-token";
    let lines: String = names
        .split(';')
        .map(|name| format!("{name}:{}\n", header(name)))
        .collect();
    let path = received.path.replace('%', "%25");
    let body = hex::encode(Sha256::digest(received.body.to_string()));
    let canonical = format!("POST\n{path}\n\n{lines}\n{names}\n{body}");
    let time = header("x-amz-date");
    let (date, _) = time.split_at(8);
    let scope = format!("{date}/us-east-1/bedrock/aws4_request");
    let digest = hex::encode(Sha256::digest(canonical));
    let mut key = mac(format!("AWS4{SECRET}").as_bytes(), date);
    for part in ["us-east-1", "bedrock", "aws4_request"] {
        key = mac(&key, part);
    }
    let signature = mac(
        &key,
        &format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{digest}"),
    );
    format!(
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/{scope}, SignedHeaders={names}, Signature={}",
        hex::encode(signature)
    )
}

#[test]
fn prov_1_bedrock_gets_signed_requests_and_its_frames_are_read() {
    let provider = Provider::start(|_| {
        let stream = bedrock(&anthropic_events("고양이 Yes."));
        ProviderResponse::aws_stream(&stream).in_parts_of(13)
    });
    let mut model = bedrock_model(&provider);
    let made = model.hi();
    assert_eq!(made.content().to_text(), "고양이 Yes.");
    assert_eq!(made.streamed().0, "고양이 Yes.");
    assert_eq!(made.answer().metadata["usage"]["outputTokens"], 7);
    let received = &provider.received()[0];
    assert_eq!(
        received.path,
        "/model/us.anthropic.claude-sonnet-4-5-v1%3A0/invoke-with-response-stream"
    );
    assert_eq!(
        received.header("authorization"),
        Some(signature_of(received).as_str())
    );
    assert_eq!(
        received.header("x-amz-security-token"),
        Some("session-token")
    );
    assert_eq!(received.body["anthropic_version"], "bedrock-2023-05-31");
    assert_eq!(
        (received.body.get("model"), received.body.get("stream")),
        (None, None)
    );
}

#[test]
fn prov_1_a_bedrock_key_is_sent_as_it_is() {
    let provider =
        Provider::start(|_| ProviderResponse::aws_stream(&bedrock(&anthropic_events("Yes."))));
    let mut model = model(
        &json!({"provider": "anthropic", "model": "claude", "apiKey": "ABSK-1",
        "endpoint": provider.root(), "platform": {"bedrock": {"region": "us-east-1"}}}),
    );
    assert_eq!(model.hi().content().to_text(), "Yes.");
    let received = &provider.received()[0];
    assert_eq!(received.header("authorization"), Some("Bearer ABSK-1"));
    assert_eq!(received.header("x-amz-date"), None);
}

#[test]
fn prov_1_failures_of_bedrock_are_understood() {
    let begun = || bedrock(&anthropic_events("Yes.")[..3]);
    let exception = |kind: &str| {
        let headers = [(":exception-type", kind), (":message-type", "exception")];
        let payload = json!({"message": format!("{SECRET} says no")}).to_string();
        ProviderResponse::aws_stream(&[begun(), aws_message(&headers, payload.as_bytes())].concat())
    };
    let mut damaged = begun();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    let refused =
        |status, message: &str| ProviderResponse::error(status, &json!({"message": message}));
    for (answer, code, retryable) in [
        (
            exception("throttlingException"),
            CallErrorCode::RateLimited,
            true,
        ),
        (
            exception("modelStreamErrorException"),
            CallErrorCode::Overloaded,
            true,
        ),
        (
            exception("validationException"),
            CallErrorCode::Invalid,
            false,
        ),
        (
            ProviderResponse::aws_stream(&damaged),
            CallErrorCode::Interrupted,
            true,
        ),
        (
            ProviderResponse::aws_stream(&begun()),
            CallErrorCode::Interrupted,
            true,
        ),
        (
            ProviderResponse::aws_stream(&[0, 0, 0, 30, 0]),
            CallErrorCode::Interrupted,
            true,
        ),
        (
            refused(400, "Input is too long for requested model."),
            CallErrorCode::TooLarge,
            false,
        ),
        (
            refused(
                403,
                "The security token included in the request is invalid.",
            ),
            CallErrorCode::Unauthorized,
            false,
        ),
        (
            refused(429, "Too many requests, please wait before trying again."),
            CallErrorCode::RateLimited,
            true,
        ),
    ] {
        let shown = format!("{answer:?}");
        let provider = Provider::start(move |_| answer.clone());
        let made = bedrock_model(&provider).hi();
        let error = made.error();
        assert_eq!(
            (error.code, error.retryable),
            (code, retryable),
            "{error:?} {shown}"
        );
        assert!(!error.message.contains(SECRET), "{error:?}");
        if code == CallErrorCode::Unauthorized {
            assert!(
                format!("{error:?}").contains("bedrock.accessKeyId"),
                "{error:?}"
            );
        }
    }
}
