//! The tool `wait`: lets time pass.

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use super::export::{Export, Output};
use crate::tool_call::ToolOutcome;

/// Longest wait of one call, in seconds.
const MAX_SECONDS: u64 = 600;

pub(crate) fn exports() -> Vec<Export> {
    vec![Export {
        name: "for".into(),
        description: "Waits before the next step, for instance until something outside is done."
            .into(),
        parameters: json!({
            "type": "object",
            "required": ["seconds"],
            "additionalProperties": false,
            "properties": {
                "seconds": {"type": "number", "minimum": 0, "maximum": MAX_SECONDS},
            },
        }),
        is_idempotent: true,
        output: Output::BoundedByTool,
        run: Box::new(|_, call| {
            Box::pin(async move {
                match call.args::<Args>() {
                    Ok(args) => {
                        tokio::time::sleep(Duration::from_secs_f64(args.seconds)).await;
                        ToolOutcome::ok(format!("waited {} s", args.seconds))
                    }
                    Err(fault) => fault.into(),
                }
            })
        }),
    }]
}

#[derive(Deserialize)]
struct Args {
    seconds: f64,
}
