//! Validates arguments against a JSON Schema and reports the exact location of each fault.

use jsonschema::Validator;
use jsonschema::error::ValidationErrorKind;
use serde_json::Value;

/// Maximum number of faults reported to the model.
const FAULTS_TOLD: usize = 5;

/// A compiled schema of one export's arguments.
#[derive(Debug)]
pub(crate) struct ArgumentSchema(Validator);

impl ArgumentSchema {
    pub(crate) fn new(schema: &Value) -> Result<Self, String> {
        jsonschema::draft202012::new(schema)
            .map(Self)
            .map_err(|error| error.to_string())
    }

    /// Checks arguments.
    ///
    /// # Errors
    ///
    /// Every fault as `at <JSON pointer>: <what>`, joined by `; `. A missing or surplus field is
    /// named by its own pointer, not by that of the object around it.
    pub(crate) fn check(&self, args: &Value) -> Result<(), String> {
        let mut faults = Vec::new();
        for error in self.0.iter_errors(args) {
            let at = error.instance_path().as_str().to_owned();
            match error.kind() {
                ValidationErrorKind::Required { property } => {
                    let name = property.as_str().unwrap_or_default();
                    faults.push(format!("at `{at}/{}`: is missing", escaped(name)));
                }
                ValidationErrorKind::AdditionalProperties { unexpected } => {
                    for name in unexpected {
                        faults.push(format!("at `{at}/{}`: is not known", escaped(name)));
                    }
                }
                _ => {
                    let at = if at.is_empty() { "/" } else { &at };
                    faults.push(format!("at `{at}`: {}", error.masked_with("the value")));
                }
            }
            if faults.len() >= FAULTS_TOLD {
                break;
            }
        }
        faults.truncate(FAULTS_TOLD);
        if faults.is_empty() {
            Ok(())
        } else {
            Err(faults.join("; "))
        }
    }
}

/// A name as a part of a JSON pointer.
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_fault_has_its_exact_place() {
        let schema = ArgumentSchema::new(&json!({
            "type": "object",
            "required": ["command"],
            "additionalProperties": false,
            "properties": {
                "command": {"type": "string"},
                "list": {"type": "array", "items": {"type": "integer"}},
            },
        }))
        .unwrap();
        let check = |args: Value| schema.check(&args);
        assert_eq!(check(json!({"command": "ls"})), Ok(()));
        assert_eq!(check(json!({})).unwrap_err(), "at `/command`: is missing");
        assert_eq!(
            check(json!({"command": "ls", "a/b": 1})).unwrap_err(),
            "at `/a~1b`: is not known"
        );
        assert_eq!(
            check(json!({"command": "ls", "list": [1, "x"]})).unwrap_err(),
            "at `/list/1`: the value is not of type \"integer\""
        );
        assert_eq!(
            check(json!("ls")).unwrap_err(),
            "at `/`: the value is not of type \"object\""
        );
        let many = check(json!({"command": 1, "list": ["a", "b", "c", "d", "e", "f"]}));
        assert_eq!(many.unwrap_err().matches("at `").count(), FAULTS_TOLD);
    }
}
