//! Tables of processes.

use anstyle::Style;
use goondan_protocol::control::{
    Confinement, ProcessInfo, ProcessState, Readiness, SandboxRefusals,
};
use goondan_protocol::sandbox::{Facts, Level, OwnSandbox, Right};
use goondan_protocol::time::Timestamp;

use crate::output::style;
use crate::output::table::{Cell, Column, Table};
use crate::output::text;

/// Confinement of a process on a kernel that supports only system call filters.
const SYSTEM_CALLS: &str = "system-calls";

/// One row for each process; with `all`, including its workspace.
pub(super) fn table(processes: &[ProcessInfo], all: bool, now: Timestamp) -> Table {
    let workspace = all.then_some(Column::new("WORKSPACE").cut());
    let titles = [
        Column::new("KIND"),
        Column::new("NAME").cut(),
        Column::new("CONVERSATION").cut(),
        Column::new("STATE"),
        Column::new("PID").below(1, "pid"),
        Column::new("UP").below(2, "up"),
        Column::new("MEMORY").below(4, "memory"),
        Column::new("SANDBOX").below(5, "sandbox"),
        Column::new("PENDING").below(3, "pending"),
        Column::new("CRASHES").below(3, "crashes"),
        Column::new("DETAIL").below(6, ""),
    ];
    let mut table = Table::new(workspace.into_iter().chain(titles));
    for process in processes {
        let cells = [
            process.role.as_str().into(),
            Cell::from(&process.name),
            or_dash(process.instance_key.as_ref()),
            state_of(process),
            or_dash(process.pid.map(|pid| pid.to_string())),
            or_dash(process.started_at.map(|at| text::age(at, now))),
            or_dash(memory(process)),
            sandbox(process),
            process.pending_events.to_string().into(),
            process.consecutive_crashes.to_string().into(),
            detail(process, now).into(),
        ];
        let workspace = all.then(|| Cell::from(&process.workspace_id));
        table.row(workspace.into_iter().chain(cells));
    }
    table
}

fn or_dash(value: Option<impl AsRef<str>>) -> Cell {
    value.map_or_else(|| Cell::styled("-", style::FAINT), Cell::from)
}

/// Memory of the process and its children, and the limit if there is one. Memory that counts against the limit may be
/// much lower: without a control group, each process is limited on its own.
pub(crate) fn memory(process: &ProcessInfo) -> Option<String> {
    let taken = process.memory_bytes.or(process.counted_memory_bytes);
    let taken = taken.map(text::bytes);
    let most = process.limits.memory_bytes.map(text::bytes);
    match (taken, most) {
        (taken, None) => taken,
        (None, Some(most)) => Some(format!("of {most}")),
        (Some(taken), Some(most)) => Some(format!("{taken} of {most}")),
    }
}

/// Confinement of the programs that the process starts, or of the process itself if it starts none.
fn sandbox(process: &ProcessInfo) -> Cell {
    let Some(confinement) = &process.confinement else {
        return or_dash(None::<&str>);
    };
    let (word, look) = sandbox_words(confinement);
    Cell::styled(word, look)
}

fn has(rights: &Facts, sandbox: OwnSandbox) -> bool {
    sandbox.rights().iter().all(|right| rights.contains(right))
}

fn sandbox_words(confinement: &Confinement) -> (String, Style) {
    let level = confinement.programs.as_ref().map(|programs| programs.level);
    match level {
        Some(level @ Level::Off) => (level.to_string(), style::WARN),
        Some(level) => (level.to_string(), style::PLAIN),
        None if has(&confinement.own, OwnSandbox::Landlock) => {
            (OwnSandbox::Landlock.to_string(), style::PLAIN)
        }
        None if confinement.own.contains(&Right::SystemCalls) => {
            (SYSTEM_CALLS.to_owned(), style::WARN)
        }
        None => (OwnSandbox::None.to_string(), style::WARN),
    }
}

/// Cell in the column STATE: for a process that serves others, its readiness.
fn state_of(process: &ProcessInfo) -> Cell {
    let (word, look) = state_words(process);
    Cell::styled(word, look)
}

/// State as a word, with its style.
pub(crate) fn state_words(process: &ProcessInfo) -> (&'static str, Style) {
    use ProcessState as State;
    match (process.state, process.readiness) {
        (State::Idle | State::Processing, Some(readiness @ Readiness::NotReady)) => {
            (readiness.as_str(), style::BAD)
        }
        (State::Idle, Some(readiness @ Readiness::Starting)) => (readiness.as_str(), style::WARN),
        (State::Idle, Some(readiness @ Readiness::Ready)) => (readiness.as_str(), style::GOOD),
        (state, _) => (state.as_str(), look_of(state)),
    }
}

fn look_of(state: ProcessState) -> Style {
    match state {
        ProcessState::Idle | ProcessState::Processing => style::GOOD,
        ProcessState::Spawning | ProcessState::Draining => style::WARN,
        ProcessState::Crashed | ProcessState::CrashLoopBackOff => style::BAD,
        ProcessState::Terminated => style::FAINT,
    }
}

/// Current activity; in back-off, the time of the next start.
pub(crate) fn detail(process: &ProcessInfo, now: Timestamp) -> String {
    let next = process.next_start_at.map(|at| {
        // The wait is the age of `now` as seen at the start time.
        format!("starts again in {}", text::age(now, at))
    });
    let others = &process.waiting_for;
    let others: Vec<&str> = others.iter().map(AsRef::as_ref).collect();
    let waiting = (!others.is_empty()).then(|| format!("waiting for {}", others.join(", ")));
    let questions: Vec<&str> = process.questions.iter().map(AsRef::as_ref).collect();
    let questions = (!questions.is_empty())
        .then(|| format!("waits for a person's answer: {}", questions.join(", ")));
    let consents = (!process.consents.is_empty())
        .then(|| format!("waits for consent: {}", process.consents.join(", ")));
    let approvals: Vec<String> = process
        .approvals
        .iter()
        .map(|id| format!("gdn inbox approve {id}"))
        .collect();
    let approvals = (!approvals.is_empty())
        .then(|| format!("waits for a person's approval: {}", approvals.join(", ")));
    let ignored = ignored(process);
    let refused = process.refused.as_ref();
    let refused = refused.map(|refused| refused_words(refused, now));
    let detail = process.detail.clone();
    let parts: Vec<String> = [
        next, consents, approvals, questions, waiting, detail, ignored, refused,
    ]
    .into_iter()
    .flatten()
    .collect();
    parts.join("; ")
}

/// Accesses that the sandbox refused: `sandbox refused 3, last 5.0s ago: …`.
fn refused_words(refused: &SandboxRefusals, now: Timestamp) -> String {
    let SandboxRefusals { count, last, at } = refused;
    let last = text::one_line(last);
    format!(
        "sandbox refused {count}, last {} ago: {last}",
        text::age(*at, now)
    )
}

/// Events that a connection passed over, such as `ignored 3: 2 no rule, 1 ping`.
fn ignored(process: &ProcessInfo) -> Option<String> {
    let counts = process.ignored.iter();
    let words: Vec<String> = counts
        .map(|(reason, count)| format!("{count} {}", reason.words()))
        .collect();
    let all: u64 = process.ignored.values().sum();
    (all > 0).then(|| format!("ignored {all}: {}", words.join(", ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::output::table::at_three_widths;

    fn process(state: &str, more: &serde_json::Value) -> ProcessInfo {
        let mut process = json!({
            "workspaceId": "w",
            "role": "agent",
            "name": "clerk",
            "instanceKey": "main",
            "state": state,
            "consecutiveCrashes": 0,
            "pendingEvents": 1,
        });
        let fields = more.as_object().unwrap().clone();
        process.as_object_mut().unwrap().extend(fields);
        serde_json::from_value(process).unwrap()
    }

    #[test]
    fn back_off_shows_the_time_of_the_next_start() {
        let now = Timestamp::from_unix_millis(1_000_000);
        let next = Timestamp::from_unix_millis(1_032_000);
        let waiting = process(
            "crashLoopBackOff",
            &json!({"nextStartAt": next, "detail": "exit code 1"}),
        );
        assert_eq!(detail(&waiting, now), "starts again in 32.0s; exit code 1");
    }

    #[test]
    fn agent_that_asked_shows_the_other_agent_or_question() {
        let now = Timestamp::from_unix_millis(1_000_000);
        let asking = process("processing", &json!({"waitingFor": ["helper:main"]}));
        assert_eq!(detail(&asking, now), "waiting for helper:main");
        let asking = process("processing", &json!({"questions": ["q-1", "q-2"]}));
        assert_eq!(
            detail(&asking, now),
            "waits for a person's answer: q-1, q-2"
        );
    }

    #[test]
    fn conn_1_connection_shows_what_it_ignored() {
        let now = Timestamp::from_unix_millis(1_000_000);
        let hook = process(
            "idle",
            &json!({"detail": "listening on http://h/", "ignored": {"noRule": 2, "ping": 1}}),
        );
        assert_eq!(
            detail(&hook, now),
            "listening on http://h/; ignored 3: 2 no rule, 1 ping"
        );
    }

    #[test]
    fn sec_10_agent_shows_what_the_sandbox_refused() {
        let now = Timestamp::from_unix_millis(1_000_000);
        let at = Timestamp::from_unix_millis(995_000);
        let refused = json!({"count": 3, "last": "[sandbox `full`: no `/srv`]", "at": at});
        let agent = process("idle", &json!({ "refused": refused }));
        assert_eq!(
            detail(&agent, now),
            "sandbox refused 3, last 5.0s ago: [sandbox `full`: no `/srv`]"
        );
    }

    #[test]
    fn process_row_shows_the_known_values() {
        let now = Timestamp::from_unix_millis(1_000_000);
        let started = Timestamp::from_unix_millis(940_000);
        let busy = process(
            "processing",
            &json!({
                "pid": 12, "startedAt": started, "memoryBytes": 3_250_586,
                "confinement": {"own": ["system-calls"], "programs": {"level": "full", "rights": ["files"]}},
            }),
        );
        assert_eq!(
            table(&[busy], true, now).render(style::Palette::new(false)),
            "WORKSPACE  KIND   NAME   CONVERSATION  STATE       PID  UP      MEMORY   SANDBOX  PENDING  CRASHES  \
             DETAIL\n\
             w          agent  clerk  main          processing  12   1m 00s  3.1 MiB  full     1        0\n"
        );
    }

    #[test]
    fn sec_3_ps_distinguishes_confined_from_unconfined_processes() {
        let shown = |confinement| sandbox_words(&serde_json::from_value(confinement).unwrap());
        let level = |level| json!({"own": [], "programs": {"level": level, "rights": []}});
        assert_eq!(shown(level("off")), ("off".to_owned(), style::WARN));
        assert_eq!(
            shown(level("landlock")),
            ("landlock".to_owned(), style::PLAIN)
        );
        let own = |rights: &[Right]| shown(json!({"own": rights}));
        assert_eq!(own(&Right::LANDLOCK), ("landlock".to_owned(), style::PLAIN));
        assert_eq!(
            own(&[Right::SystemCalls]),
            ("system-calls".to_owned(), style::WARN)
        );
        assert_eq!(own(&[]), ("none".to_owned(), style::WARN));
    }

    #[test]
    fn ctl_1_memory_taken_is_shown_beside_its_limit() {
        let told = |more| memory(&process("idle", &more)).unwrap_or_default();
        let limited = json!({
            "memoryBytes": 188_743_680, "countedMemoryBytes": 675_840,
            "limits": {"memoryBytes": 2_147_483_648_u64},
        });
        assert_eq!(told(limited), "180.0 MiB of 2.0 GiB");
        assert_eq!(told(json!({"memoryBytes": 3_250_586})), "3.1 MiB");
        assert_eq!(told(json!({})), "");
    }

    #[test]
    fn narrow_terminal_shows_all_of_the_process_table() {
        let now = Timestamp::from_unix_millis(1_000_000);
        let started = Timestamp::from_unix_millis(940_000);
        let hook = process(
            "idle",
            &json!({
                "role": "connector", "name": "hook", "instanceKey": null, "readiness": "notReady",
                "pid": 41, "startedAt": started, "memoryBytes": 6_291_456, "pendingEvents": 0,
                "detail": "cannot listen on 127.0.0.1:8787: Address already in use (os error 98); trying again",
            }),
        );
        let key = format!("telegram:{}", "7".repeat(1_015));
        let busy = process(
            "processing",
            &json!({"instanceKey": key, "pid": 42, "startedAt": started, "memoryBytes": 3_250_586}),
        );
        let next = Timestamp::from_unix_millis(1_032_000);
        let waiting = process(
            "crashLoopBackOff",
            &json!({"nextStartAt": next, "detail": "exit code 1", "consecutiveCrashes": 6}),
        );
        let all = [hook, busy, waiting];
        let shown = at_three_widths(|canvas| table(&all, false, now).render(canvas));
        assert_eq!(shown, include_str!("../narrow/ps.txt"));
    }
}
