use serde_json::json;

use super::*;

const PEM: &[u8] = include_bytes!("../../tests/fixtures/sns.pem");
const TOPIC: &str = "arn:aws:sns:eu-west-1:123456789012:orders";

/// A notification of each version, and a confirmation, signed with the key of [`PEM`].
fn messages() -> Vec<Value> {
    serde_json::from_str(include_str!("../../tests/fixtures/sns.json")).unwrap()
}

/// A verifier that has already requested the certificate.
fn sns(topics: &[&str]) -> Sns {
    http::install_cryptography();
    let sns = Sns::new(topics.iter().map(|topic| (*topic).to_owned()).collect()).unwrap();
    let certificate = CertificateDer::from_pem_slice(PEM).unwrap();
    for message in messages() {
        let address = amazon_address(field(&message, "SigningCertURL").unwrap()).unwrap();
        sns.remember(address.as_str(), &certificate);
    }
    sns
}

#[tokio::test]
async fn conn_3_sns_messages_of_both_versions_are_verified() {
    for message in messages() {
        let found = sns(&[TOPIC]).authenticate(&message).await;
        assert!(found.is_ok(), "{message}: {found:?}");
        let names = message.as_object().unwrap().keys();
        for name in names.filter(|name| *name != "SigningCertURL") {
            let mut altered = message.clone();
            altered[name] = json!("other");
            let found = sns(&[TOPIC, "other"]).authenticate(&altered).await;
            let found = found.unwrap_err().to_string();
            assert_eq!(found, "`Signature` does not fit the message", "{name}");
        }
    }
}

#[tokio::test]
async fn conn_3_sns_only_takes_listed_topics() {
    for topics in [&[][..], &["arn:aws:sns:eu-west-1:123456789012:other"]] {
        for message in messages() {
            let refused = sns(topics).authenticate(&message).await.unwrap_err();
            assert!(
                refused.to_string().contains("`signature.topics`"),
                "{refused}"
            );
        }
    }
    let raw = json!({"order": 7});
    let refused = sns(&[TOPIC]).authenticate(&raw).await.unwrap_err();
    assert!(
        refused.to_string().contains("raw message delivery"),
        "{refused}"
    );
}

#[tokio::test]
async fn conn_3_sns_only_requests_addresses_of_amazon() {
    for good in [
        "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-0.pem",
        "https://sns.cn-north-1.amazonaws.com.cn/x.pem",
        "https://sns.us-gov-west-1.amazonaws.com:443/x.pem",
    ] {
        assert!(amazon_address(good).is_some(), "{good}");
    }
    for bad in [
        "http://sns.us-east-1.amazonaws.com/x.pem",
        "https://sns.us-east-1.amazonaws.com.evil.com/x.pem",
        "https://sns.us-east-1.amazonaws.com@evil.com/x.pem",
        "https://evil.com/sns.us-east-1.amazonaws.com/x.pem",
        "https://evil.com#sns.us-east-1.amazonaws.com/x.pem",
        "https://bucket.s3.amazonaws.com/x.pem",
        "https://sns.evil.com.amazonaws.com/x.pem",
        "https://sns.s3.amazonaws.com/x.pem",
        "https://sns..amazonaws.com/x.pem",
        "https://xsns.us-east-1.amazonaws.com/x.pem",
        "https://user@sns.us-east-1.amazonaws.com/x.pem",
        "https://sns.us-east-1.amazonaws.com:8443/x.pem",
        "sns.us-east-1.amazonaws.com/x.pem",
        "",
    ] {
        assert_eq!(amazon_address(bad), None, "{bad}");
        let mut message = messages().remove(0);
        message["SigningCertURL"] = json!(bad);
        let refused = sns(&[TOPIC]).authenticate(&message).await.unwrap_err();
        assert!(
            refused.to_string().contains("`SigningCertURL`"),
            "{refused}"
        );
        let refused = sns(&[TOPIC]).confirm(bad).await.unwrap_err();
        assert!(refused.to_string().contains("`SubscribeURL`"), "{refused}");
    }
    // Only a certificate is requested for a message.
    let mut message = messages().remove(0);
    message["SigningCertURL"] = json!("https://sns.us-east-1.amazonaws.com/?Action=Subscribe");
    assert!(sns(&[TOPIC]).authenticate(&message).await.is_err());
}

#[test]
fn conn_3_sns_messages_have_their_meaning() {
    let found: Vec<_> = messages()
        .iter()
        .map(|message| answer_to(message).unwrap())
        .collect();
    assert_eq!(found[0], None);
    assert_eq!(found[1], None);
    let address = field(&messages()[2], "SubscribeURL").unwrap().to_owned();
    assert_eq!(found[2], Some(InboundRequest::Confirmation(address)));
    let end = answer_to(&json!({"Type": "UnsubscribeConfirmation"})).unwrap();
    assert!(matches!(end, Some(InboundRequest::Answer(_))), "{end:?}");
    assert!(answer_to(&json!({})).is_err());
}

#[test]
fn conn_3_sns_keeps_few_certificates() {
    let sns = sns(&[TOPIC]);
    let certificate = CertificateDer::from_pem_slice(PEM).unwrap();
    for number in 0..100 {
        sns.remember(&format!("https://sns.{number}"), &certificate);
    }
    assert!(sns.certificates.lock().unwrap().len() <= CERTIFICATES_MAX);
    assert!(sns.known("https://sns.99").is_some());
}
