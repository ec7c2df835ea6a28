use std::io::Write as _;

use axum::http::HeaderName;
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use goondan_protocol::lone_surrogates::without_lone_surrogates;
use serde_json::json;

use super::*;

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let pairs = pairs.iter().map(|(name, value)| {
        let name: HeaderName = name.parse().unwrap();
        (name, value.parse().unwrap())
    });
    pairs.collect()
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn conn_3_compressed_bodies_are_read_up_to_the_limit() {
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
    zlib.write_all(b"hi").unwrap();
    let zlib = zlib.finish().unwrap();
    let mut raw = DeflateEncoder::new(Vec::new(), Compression::default());
    raw.write_all(b"hi").unwrap();
    let raw = raw.finish().unwrap();
    for (encoding, body) in [
        ("deflate", raw),
        ("gzip", gzip(b"hi")),
        ("X-GZIP", gzip(b"hi")),
        ("deflate", zlib),
        ("identity", b"hi".to_vec()),
    ] {
        let headers = headers(&[("content-encoding", encoding)]);
        let plain = decompressed(&headers, &body, 2).unwrap();
        assert_eq!(&*plain, b"hi", "{encoding}");
    }
    let encoded = headers(&[("content-encoding", "gzip")]);
    let bomb = gzip(&vec![0; 5_000_000]);
    let refused = decompressed(&encoded, &bomb, 1_000).unwrap_err();
    assert!(matches!(refused, RequestRejection::TooLarge { max: 1_000 }));
    let refused = decompressed(&encoded, b"plain", 1_000).unwrap_err();
    assert_eq!(refused.status().1, "bad_encoding");
    for unknown in ["br", "zstd", "gzip, gzip"] {
        let headers = headers(&[("content-encoding", unknown)]);
        let refused = decompressed(&headers, b"x", 1_000).unwrap_err();
        assert_eq!(refused.status().0, 415, "{unknown}");
        assert!(
            refused.to_string().contains("content-encoding"),
            "{refused}"
        );
    }
}

#[test]
fn conn_3_byte_order_marks_are_no_text() {
    for content_type in ["application/json", "text/plain"] {
        let headers = headers(&[("content-type", content_type)]);
        let parsed = ParsedBody::parse(&headers, "\u{feff}{\"text\":\"x\"}".as_bytes()).unwrap();
        assert_eq!(parsed.json, Some(json!({"text": "x"})));
        assert_eq!(parsed.text, "{\"text\":\"x\"}");
    }
}

#[test]
fn conn_3_lone_surrogates_are_replaced() {
    let json_type = headers(&[("content-type", "application/json")]);
    for (body, text) in [
        (r#"{"text":"cut \ud83d"}"#, "cut \u{fffd}"),
        (
            r#"{"text":"\ude00 \uD83D\uDE00 \ud83dx"}"#,
            "\u{fffd} \u{1f600} \u{fffd}x",
        ),
        (r#"{"text":"\ud83d\ud83d\ude00"}"#, "\u{fffd}\u{1f600}"),
        (r#"{"text":"\\ud83d \ud83d"}"#, "\\ud83d \u{fffd}"),
        (r#"{"text":"\ud83d\n\u00e9\u0041"}"#, "\u{fffd}\n\u{e9}A"),
    ] {
        let parsed = ParsedBody::parse(&json_type, body.as_bytes()).unwrap();
        assert_eq!(parsed.json.unwrap()["text"], text, "{body}");
        let parsed = ParsedBody::parse(&HeaderMap::new(), body.as_bytes()).unwrap();
        assert_eq!(parsed.json.unwrap()["text"], text, "{body}");
    }
    for body in [
        r#"{"text":"\ud83"}"#,
        r#"{"text":"\ud83d"#,
        r#"{"text":"\u+123"}"#,
        "\\",
    ] {
        let error = ParsedBody::parse(&json_type, body.as_bytes()).unwrap_err();
        assert_eq!(error.code(), "bad_json", "{body}");
    }
}

#[test]
fn conn_3_multipart_fields_are_read() {
    let body = "--b\r\nContent-Disposition: form-data; name=\"text\"\r\n\r\nhi\r\n\
        --b\r\nContent-Disposition: form-data; name=\"sender\"\r\n\r\nada\r\n\
        --b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.png\"\r\n\
        Content-Type: image/png\r\n\r\n\u{0}\u{1}\r\n--b--\r\n";
    let form = headers(&[("content-type", "multipart/form-data; boundary=b")]);
    let parsed = ParsedBody::parse(&form, body.as_bytes()).unwrap();
    let expected = json!({"text": "hi", "sender": "ada",
        "file": {"fileName": "a.png", "contentType": "image/png", "bytes": 2}});
    assert_eq!(parsed.json, Some(expected.clone()));
    assert_eq!(parsed.text, expected.to_string());
    // A file is not text.
    let binary = [
        body.split('\u{0}').next().unwrap().as_bytes(),
        b"\xff\r\n--b--\r\n",
    ]
    .concat();
    let parsed = ParsedBody::parse(&form, &binary).unwrap();
    assert_eq!(parsed.json.unwrap()["file"]["bytes"], 1);

    let nameless = headers(&[("content-type", "multipart/form-data")]);
    let cut = body.split("hi").next().unwrap();
    for (headers, body) in [(&form, cut), (&form, "x"), (&nameless, body)] {
        let error = ParsedBody::parse(headers, body.as_bytes()).unwrap_err();
        assert_eq!(error.code(), "bad_body", "{body}: {error}");
    }
}

proptest::proptest! {
    #[test]
    fn conn_3_no_body_disturbs_the_parser(
        body in proptest::collection::vec(proptest::num::u8::ANY, 0..200),
        kind in 0_usize..6,
    ) {
        let content_type = [
            "application/json",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=b",
            "application/cloudevents+json",
            "text/plain",
            "",
        ][kind];
        let headers = headers(&[("content-type", content_type)]);
        let framed = [b"--b\r\n".as_slice(), &body].concat();
        for body in [&body, &framed] {
            match ParsedBody::parse(&headers, body) {
                Ok(parsed) => drop(parsed),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
    }

    #[test]
    fn conn_3_repaired_json_keeps_all_other_text(text in "\\PC*") {
        let valid = json!({ "text": text }).to_string();
        assert_eq!(without_lone_surrogates(&valid), None);
        let broken = format!("{{\"text\":{},\"cut\":\"\\ud83d\"}}", json!(text));
        let repaired = from_json(&broken).unwrap();
        assert_eq!(repaired, json!({"text": text, "cut": "\u{fffd}"}));
    }
}
