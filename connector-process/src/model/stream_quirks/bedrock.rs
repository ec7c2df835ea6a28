//! Replies of Anthropic's models on Bedrock: the events of Anthropic in the encoding of AWS.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::super::anthropic::AnthropicReader;
use super::super::aws_frames::{MEDIA_TYPE, written};
use super::{Random, Reply, anthropic, check_encoded};

fn stream(random: &mut Random, reply: &Reply) -> Vec<u8> {
    let mut body = Vec::new();
    for event in anthropic::events(random, reply) {
        let mut event = random.shuffled(event);
        if event["type"] == "message_stop" && random.chance(2) {
            event["amazon-bedrock-invocationMetrics"] =
                json!({"inputTokenCount": 1, "outputTokenCount": 1, "firstByteLatency": 5});
        }
        let mut payload = json!({"bytes": STANDARD.encode(event.to_string())});
        if random.chance(2) {
            payload["p"] = json!("abcdefghij");
        }
        let payload = random.shuffled(payload).to_string();
        let mut headers = vec![
            (":event-type", "chunk"),
            (":content-type", "application/json"),
            (":message-type", "event"),
        ];
        let at = random.below(headers.len());
        headers.rotate_left(at);
        if random.chance(6) {
            body.extend(written(
                &[
                    (":event-type", "initial-response"),
                    (":message-type", "event"),
                ],
                b"{}",
            ));
        }
        if random.chance(9) {
            headers.push(("x-extra", ""));
        }
        body.extend(written(&headers, payload.as_bytes()));
    }
    body
}

#[test]
fn prov_1_bedrock_replies_mean_the_same_in_all_forms() {
    check_encoded(
        "anthropic",
        MEDIA_TYPE,
        || Box::<AnthropicReader>::default(),
        stream,
    );
}
