//! The tool `schedule`: inputs that the agent's own conversation gets later.
//!
//! The orchestrator stores the schedules and submits their inputs; this tool only sends requests. A
//! call repeated after a crash refers to the same schedule.

use goondan_protocol::agents::AgentQuestion;
use goondan_protocol::ids::ScheduleId;
use goondan_protocol::limits::{
    MAX_CRON_BYTES, MAX_SCHEDULE_DELAY_SECONDS, MAX_SCHEDULED_INPUT_BYTES,
};
use goondan_protocol::schedule::{DEFAULT_TIME_ZONE, RequestedTime, ScheduleCatchUp};
use goondan_protocol::time::Timestamp;
use serde::Deserialize;
use serde_json::json;

use super::agents::export;
use super::export::Export;
use super::fault::ToolFault;
use super::invocation::ToolInvocation;

pub(crate) fn exports() -> Vec<Export> {
    let input = json!({
        "type": "string", "minLength": 1, "maxLength": MAX_SCHEDULED_INPUT_BYTES,
        "description": "Text that you get as a message of this conversation at that time",
    });
    let catch_up = json!({
        "type": "string", "enum": ["none", "latest", "all"],
        "description": "Times that were missed because nothing ran: `none` skips those more than a minute old, `latest` (default) runs the last one, `all` runs each, at most the latest 10",
    });
    vec![
        export(
            "once",
            "Sends you a message in this conversation at one time, with `at` or `inSeconds`. Survives restarts.",
            &json!({
                "input": input,
                "at": {"type": "string", "minLength": 1, "description": "The time, with an offset, such as 2026-03-01T09:30:00+01:00"},
                "inSeconds": {
                    "type": "integer", "minimum": 1, "maximum": MAX_SCHEDULE_DELAY_SECONDS,
                    "description": "Seconds from now",
                },
                "catchUp": catch_up,
            }),
            &["input"],
            once,
        ),
        export(
            "cron",
            "Sends you a message in this conversation at recurring times, until the schedule is removed. Survives restarts.",
            &json!({
                "input": input,
                "cron": {
                    "type": "string", "minLength": 1, "maxLength": MAX_CRON_BYTES,
                    "description": "Minute, hour, day of month, month, day of week, such as `30 2 * * MON-FRI`; or @hourly, @daily, @weekly, @monthly, @yearly",
                },
                "timeZone": {"type": "string", "minLength": 1, "description": "IANA time zone name, such as Europe/Berlin; default: UTC"},
                "catchUp": catch_up,
            }),
            &["input", "cron"],
            cron,
        ),
        export(
            "list",
            "Lists the schedules of this conversation, with their next times.",
            &json!({}),
            &[],
            |_| Ok(AgentQuestion::ListSchedules {}),
        ),
        export(
            "remove",
            "Removes a schedule of this conversation.",
            &json!({"scheduleId": {"type": "string", "minLength": 1, "description": "The schedule, as `once`, `cron` and `list` name it"}}),
            &["scheduleId"],
            remove,
        ),
    ]
}

fn invalid(message: impl Into<String>) -> ToolFault {
    ToolFault::new("E_INVALID_REQUEST", message)
}

fn once(call: &ToolInvocation) -> Result<AgentQuestion, ToolFault> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct OnceArgs {
        input: String,
        #[serde(default)]
        at: Option<String>,
        #[serde(default)]
        in_seconds: Option<u64>,
        #[serde(default)]
        catch_up: ScheduleCatchUp,
    }
    let args: OnceArgs = call.args()?;
    let time = match (args.at, args.in_seconds) {
        (Some(at), None) => {
            let at = at.parse::<Timestamp>().map_err(|error| {
                invalid(format!(
                    "`at` is not a time such as 2026-03-01T09:30:00+01:00: {error}"
                ))
            })?;
            RequestedTime::At { at }
        }
        (None, Some(seconds)) => RequestedTime::In { seconds },
        (None, None) | (Some(_), Some(_)) => {
            return Err(invalid("set exactly one of `at` and `inSeconds`"));
        }
    };
    Ok(AgentQuestion::CreateSchedule {
        time,
        input: args.input,
        catch_up: args.catch_up,
    })
}

fn cron(call: &ToolInvocation) -> Result<AgentQuestion, ToolFault> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct CronArgs {
        input: String,
        cron: String,
        #[serde(default)]
        time_zone: Option<String>,
        #[serde(default)]
        catch_up: ScheduleCatchUp,
    }
    let args: CronArgs = call.args()?;
    Ok(AgentQuestion::CreateSchedule {
        time: RequestedTime::Cron {
            cron: args.cron,
            time_zone: args
                .time_zone
                .unwrap_or_else(|| DEFAULT_TIME_ZONE.to_owned()),
        },
        input: args.input,
        catch_up: args.catch_up,
    })
}

fn remove(call: &ToolInvocation) -> Result<AgentQuestion, ToolFault> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct RemoveArgs {
        schedule_id: String,
    }
    let RemoveArgs { schedule_id } = call.args()?;
    let schedule_id = ScheduleId::new(schedule_id);
    let schedule_id =
        schedule_id.map_err(|error| ToolFault::new("E_NO_SCHEDULE", error.to_string()))?;
    Ok(AgentQuestion::RemoveSchedule { schedule_id })
}
