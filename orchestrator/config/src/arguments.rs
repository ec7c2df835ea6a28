//! Arguments of a tool call that a person sets, checked against the tool's schema.

use serde_json::Value;

/// Maximum number of faults reported.
const FAULTS_MAX: usize = 5;

/// Checks arguments against a JSON Schema. A schema that is not valid accepts every object; the
/// tool checks its arguments itself.
///
/// # Errors
///
/// The faults, each with its place as a JSON pointer.
pub fn check_arguments(schema: &Value, arguments: &Value) -> Result<(), String> {
    if !arguments.is_object() {
        return Err("expected an object".to_owned());
    }
    let Ok(validator) = jsonschema::draft202012::new(schema) else {
        return Ok(());
    };
    let faults = validator.iter_errors(arguments).take(FAULTS_MAX);
    let faults: Vec<String> = faults
        .map(|fault| {
            let at = fault.instance_path().to_string();
            let at = if at.is_empty() { "/" } else { at.as_str() };
            // Values can be long or secret.
            format!("at `{at}`: {}", fault.masked_with("the value"))
        })
        .collect();
    match faults.is_empty() {
        true => Ok(()),
        false => Err(faults.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn steer_3_faults_of_set_arguments_have_places_and_no_values() {
        let schema = json!({
            "type": "object", "required": ["command"], "additionalProperties": false,
            "properties": {"command": {"type": "string"}, "timeoutMs": {"type": "integer"}},
        });
        assert_eq!(check_arguments(&schema, &json!({"command": "ls"})), Ok(()));
        let faults = |arguments: Value| check_arguments(&schema, &arguments).unwrap_err();
        let fault = faults(json!({"command": "ls", "timeoutMs": "sk-secret"}));
        assert!(fault.starts_with("at `/timeoutMs`: "), "{fault}");
        assert!(!fault.contains("sk-secret"), "{fault}");
        assert!(faults(json!({})).contains("command"));
        assert!(faults(json!({"command": "ls", "cwd": "/"})).contains("cwd"));
        assert_eq!(faults(json!([])), "expected an object");
        // The schema of a server can be invalid.
        assert_eq!(check_arguments(&json!({"type": 5}), &json!({})), Ok(()));
    }
}
