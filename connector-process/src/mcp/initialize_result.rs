//! Completes the result of `initialize` (pure), because the library ends the session if a field is
//! missing that it only shows.

use serde_json::{Value, json};

/// The message with all required fields, if it is the result of `initialize`.
pub(super) fn completed(message: &[u8]) -> Option<Vec<u8>> {
    let mut message: Value = serde_json::from_slice(message).ok()?;
    let result = message.get_mut("result")?.as_object_mut()?;
    result.get("protocolVersion")?.as_str()?;
    for name in ["serverInfo", "capabilities"] {
        if !result.get(name).is_some_and(Value::is_object) {
            result.insert(name.to_owned(), json!({}));
        }
    }
    let server = result.get_mut("serverInfo")?.as_object_mut()?;
    for name in ["name", "version"] {
        if !server.get(name).is_some_and(Value::is_string) {
            server.insert(name.to_owned(), json!(""));
        }
    }
    serde_json::to_vec(&message).ok()
}

#[cfg(test)]
mod tests {
    use rmcp::model::ServerJsonRpcMessage;

    use super::*;

    #[test]
    fn prov_1_an_incomplete_initialize_result_is_completed() {
        let version = "2025-06-18";
        for result in [
            json!({"protocolVersion": version}),
            json!({"protocolVersion": version, "serverInfo": null, "capabilities": null}),
            json!({"protocolVersion": version, "serverInfo": {"name": "a"}, "capabilities": {}}),
            json!({"protocolVersion": version, "capabilities": {"tools": {}},
                "serverInfo": {"name": "a", "version": 1}, "instructions": null}),
        ] {
            let message = json!({"jsonrpc": "2.0", "id": 0, "result": result});
            let found = completed(message.to_string().as_bytes()).unwrap();
            let read: ServerJsonRpcMessage = serde_json::from_slice(&found).unwrap();
            let shown = format!("{read:?}");
            assert!(shown.contains("InitializeResult"), "{message}: {shown}");
        }
    }

    #[test]
    fn prov_1_other_messages_are_no_initialize_result() {
        for message in [
            r#"{"jsonrpc": "2.0", "id": 1, "result": {"tools": []}}"#,
            r#"{"jsonrpc": "2.0", "method": "notifications/message", "params": {}}"#,
            r#"{"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "no"}}"#,
            "[]",
        ] {
            assert_eq!(completed(message.as_bytes()), None, "{message}");
        }
    }
}
