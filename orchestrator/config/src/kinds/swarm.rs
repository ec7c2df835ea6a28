//! `kind: Swarm`: the agents of a swarm, its entry agent, and their common policy.

use goondan_protocol::budget::Budget;
use goondan_protocol::definition::LoopBreaker;
use goondan_protocol::ids::{InstanceKey, ResourceName};
use goondan_protocol::limits::{
    DEFAULT_GRACE_PERIOD_MS, DEFAULT_MAX_STEPS_PER_TURN, DEFAULT_NO_PROGRESS_STEPS_MAX,
    DEFAULT_OBSERVATION_BYTES, DEFAULT_OBSERVATION_DAYS, DEFAULT_SAME_CALLS_MAX,
};
use goondan_protocol::observe::ObservationBounds;

use super::{Context, budgets, changesets, id, proposals, sandbox};
use crate::document::Document;
use crate::fields::{Fields, LocatedValue};
use crate::kind::ResourceKind;
use crate::limits::{
    DAY_MS, DEFAULT_GC_GRACE_SECONDS, DEFAULT_IDLE_SECONDS, DEFAULT_TASK_CHECKPOINT_SECONDS,
    DEFAULT_TASK_KEEP_DAYS, HOUR_MS, MAX_APPROVAL_TIMEOUT_SECONDS, MAX_GC_GRACE_SECONDS,
    MAX_GRACE_PERIOD_SECONDS, MAX_IDLE_SECONDS, MAX_OBSERVATION_DAYS, MAX_OBSERVATION_MIB,
    MAX_STEPS_PER_TURN, MAX_TASK_CHECKPOINT_SECONDS, MAX_TASK_DRILL_HOURS, MAX_TASK_KEEP_DAYS,
    MAX_TTL_SECONDS,
};
use crate::reference::Reference;
use crate::report::ProblemReport;
use crate::shape::{Field, FieldDefault, FieldType, Shape};
use crate::{ApprovalPolicy, ChangesetPolicy, Lifecycle, TaskPolicy};

/// Bytes of a MiB.
const BYTES_PER_MIB: u64 = 1024 * 1024;

impl ResourceKind {
    pub(crate) const SWARM: Self = Self::named("Swarm");
}

/// Shape of a Swarm's `spec`.
pub(crate) static SPEC: Shape = Shape::of(
    "SwarmSpec",
    "A group of agents with an entry agent and a common policy.",
    &[
        Field::required(
            "entryAgent",
            FieldType::Reference(ResourceKind::AGENT),
            "The Agent that receives every event that no rule routes to another agent.",
        ),
        Field::optional(
            "agents",
            FieldType::List(&FieldType::Listed(&LISTED_AGENT)),
            "The Agents of the swarm.",
        )
        .or(FieldDefault::Meaning("every Agent of the project")),
        Field::optional(
            "instanceKey",
            FieldType::Text,
            "Key of the default conversation.",
        )
        .or(FieldDefault::Meaning("`main`")),
        POLICY,
    ],
);

/// The policy that holds for a project without a Swarm too.
pub(crate) const POLICY: Field = Field::optional(
    "policy",
    FieldType::Mapping(&POLICY_SHAPE),
    "Policy for every agent of the swarm.",
);

static LISTED_AGENT: Shape = Shape::of(
    "ListedAgent",
    "An agent of the swarm.",
    &[Field::required(
        "ref",
        FieldType::Reference(ResourceKind::AGENT),
        "The Agent.",
    )],
);

static POLICY_SHAPE: Shape = Shape::of(
    "Policy",
    "Policy for every agent of the swarm.",
    &[
        Field::optional(
            "maxStepsPerTurn",
            FieldType::Number(1, MAX_STEPS_PER_TURN as u64),
            "Maximum number of model calls in one turn.",
        )
        .or(FieldDefault::Number(DEFAULT_MAX_STEPS_PER_TURN as u64)),
        Field::optional(
            "loopBreaker",
            FieldType::Mapping(&LOOP_BREAKER),
            "Limits that end a turn that repeats itself.",
        ),
        Field::optional(
            "lifecycle",
            FieldType::Mapping(&LIFECYCLE),
            "Retention of unused conversations and processes.",
        ),
        Field::optional(
            "shutdown",
            FieldType::Mapping(&SHUTDOWN),
            "Stopping of processes.",
        ),
        Field::optional(
            "observation",
            FieldType::Mapping(&OBSERVATION),
            "Retention of observation logs.",
        ),
        Field::optional(
            "tasks",
            FieldType::Mapping(&TASKS),
            "Retention, drills and checkpoints of command-line agents' tasks.",
        ),
        Field::optional(
            "approvals",
            FieldType::Mapping(&APPROVALS),
            "Tool calls that wait for a person.",
        ),
        changesets::OF_SWARM,
        proposals::OF_SWARM,
        budgets::OF_SWARM,
        sandbox::OF_SWARM,
    ],
);

static OBSERVATION: Shape = Shape::of(
    "Observation",
    "Retention of each of a conversation's two observation logs: its runtime events, and its model messages.",
    &[
        Field::optional(
            "maxMiB",
            FieldType::Number(0, MAX_OBSERVATION_MIB),
            "Maximum size of compressed segments in MiB.",
        )
        .or(FieldDefault::Number(
            DEFAULT_OBSERVATION_BYTES / BYTES_PER_MIB,
        )),
        Field::optional(
            "maxDays",
            FieldType::Number(0, MAX_OBSERVATION_DAYS as u64),
            "Maximum age of a full segment in days.",
        )
        .or(FieldDefault::Number(DEFAULT_OBSERVATION_DAYS as u64)),
    ],
);

static TASKS: Shape = Shape::of(
    "Tasks",
    "Retention, drills and checkpoints of command-line agents' tasks.",
    &[
        Field::optional(
            "keepDays",
            FieldType::Number(0, MAX_TASK_KEEP_DAYS),
            "Days after which an ended task is backed up and removed; 0 for never.",
        )
        .or(FieldDefault::Number(DEFAULT_TASK_KEEP_DAYS)),
        Field::optional(
            "drillHours",
            FieldType::Number(0, MAX_TASK_DRILL_HOURS),
            "Hours between trial restores of each task's newest checkpoint; 0 for never.",
        )
        .or(FieldDefault::Number(0)),
        Field::optional(
            "checkpointSeconds",
            FieldType::Number(0, MAX_TASK_CHECKPOINT_SECONDS),
            "Seconds between checkpoints of a task while its agent works; 0 for never.",
        )
        .or(FieldDefault::Number(DEFAULT_TASK_CHECKPOINT_SECONDS)),
    ],
);

static APPROVALS: Shape = Shape::of(
    "Approvals",
    "Tool calls that wait for a person.",
    &[Field::optional(
        "timeoutSeconds",
        FieldType::Number(1, MAX_APPROVAL_TIMEOUT_SECONDS),
        "Time after which an undecided call is denied.",
    )
    .or(FieldDefault::Meaning("never"))],
);

static LOOP_BREAKER: Shape = Shape::of(
    "LoopBreaker",
    "Limits that end a turn that repeats itself.",
    &[
        Field::optional(
            "sameCallsMax",
            FieldType::Number(2, MAX_STEPS_PER_TURN as u64),
            "Maximum number of consecutive steps with the same calls and the same results.",
        )
        .or(FieldDefault::Number(DEFAULT_SAME_CALLS_MAX as u64)),
        Field::optional(
            "noProgressStepsMax",
            FieldType::Number(2, MAX_STEPS_PER_TURN as u64),
            "Maximum number of consecutive steps without progress: each call failed or returned an earlier result.",
        )
        .or(FieldDefault::Number(DEFAULT_NO_PROGRESS_STEPS_MAX as u64)),
    ],
);

static LIFECYCLE: Shape = Shape::of(
    "Lifecycle",
    "Retention of unused conversations and processes.",
    &[
        Field::optional(
            "ttlSeconds",
            FieldType::Number(1, MAX_TTL_SECONDS),
            "Time after the last message when a conversation expires.",
        )
        .or(FieldDefault::Meaning("never")),
        Field::optional(
            "gcGraceSeconds",
            FieldType::Number(0, MAX_GC_GRACE_SECONDS),
            "Time after expiry when a conversation is deleted.",
        )
        .or(FieldDefault::Number(DEFAULT_GC_GRACE_SECONDS)),
        Field::optional(
            "idleSeconds",
            FieldType::Number(1, MAX_IDLE_SECONDS),
            "Idle time after which an agent process stops; the next event starts it again.",
        )
        .or(FieldDefault::Number(DEFAULT_IDLE_SECONDS)),
    ],
);

static SHUTDOWN: Shape = Shape::of(
    "Shutdown",
    "Stopping of processes.",
    &[Field::optional(
        "gracePeriodSeconds",
        FieldType::Number(0, MAX_GRACE_PERIOD_SECONDS),
        "Time that a stop waits for the turn in progress.",
    )
    .or(FieldDefault::Number(DEFAULT_GRACE_PERIOD_MS / 1_000))],
);

#[derive(Debug)]
pub(crate) struct SwarmSpec {
    pub(crate) name: ResourceName,
    pub(crate) entry_agent: Option<Reference>,
    /// Its members; `None` means every Agent of the project.
    pub(crate) agents: Option<Vec<Reference>>,
    pub(crate) conversation_key: Option<InstanceKey>,
    pub(crate) policy: Policy,
    pub(crate) budgets: Vec<LocatedValue<Budget>>,
}

/// Policy for every agent of a swarm.
#[derive(Debug, Clone)]
pub(crate) struct Policy {
    pub(crate) max_steps_per_turn: u32,
    pub(crate) loop_breaker: LoopBreaker,
    pub(crate) grace_period_ms: u64,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) observation: ObservationBounds,
    pub(crate) tasks: TaskPolicy,
    pub(crate) approvals: ApprovalPolicy,
    pub(crate) changesets: Option<ChangesetPolicy>,
    /// Agents that may apply proposals.
    pub(crate) appliers: Vec<proposals::ApplyRuleSpec>,
    pub(crate) sandbox: sandbox::SandboxSpec,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_steps_per_turn: DEFAULT_MAX_STEPS_PER_TURN,
            loop_breaker: LoopBreaker::default(),
            grace_period_ms: DEFAULT_GRACE_PERIOD_MS,
            lifecycle: Lifecycle::default(),
            observation: ObservationBounds::default(),
            tasks: TaskPolicy::default(),
            approvals: ApprovalPolicy::default(),
            changesets: None,
            appliers: Vec::new(),
            sandbox: sandbox::SandboxSpec::default(),
        }
    }
}

pub(crate) fn read(document: &Document<'_>, cx: &mut Context<'_>) -> Option<SwarmSpec> {
    let report = &mut cx.report;
    let name = id(&document.name, report);
    let mut spec = document.spec(report)?;
    let entry_agent = spec.reference("entryAgent", report);
    let names_agents = spec.has("agents");
    let agents = spec.references("agents", report);
    let conversation_key = spec
        .text("instanceKey", report)
        .and_then(|key| id::<InstanceKey>(&key, report));
    let (policy, budgets) = spec
        .nested("policy", report)
        .map(|policy| read_policy(policy, cx))
        .unwrap_or_default();
    spec.close();
    Some(SwarmSpec {
        name: name?,
        entry_agent,
        agents: names_agents.then_some(agents),
        conversation_key,
        policy,
        budgets,
    })
}

fn read_policy(
    mut fields: Fields<'_>,
    cx: &mut Context<'_>,
) -> (Policy, Vec<LocatedValue<Budget>>) {
    let report = &mut cx.report;
    let mut policy = Policy::default();
    let steps = fields.number("maxStepsPerTurn", report);
    if let Some(steps) = steps.and_then(|steps| u32::try_from(steps).ok()) {
        policy.max_steps_per_turn = steps;
    }
    if let Some(mut breaker) = fields.nested("loopBreaker", report) {
        let mut number = |name| {
            let number = breaker.number(name, report)?;
            u32::try_from(number).ok()
        };
        let default = policy.loop_breaker;
        policy.loop_breaker = LoopBreaker {
            same_calls_max: number("sameCallsMax").unwrap_or(default.same_calls_max),
            no_progress_steps_max: number("noProgressStepsMax")
                .unwrap_or(default.no_progress_steps_max),
        };
        breaker.close();
    }
    if let Some(mut shutdown) = fields.nested("shutdown", report) {
        if let Some(seconds) = shutdown.number("gracePeriodSeconds", report) {
            policy.grace_period_ms = seconds * 1_000;
        }
        shutdown.close();
    }
    if let Some(lifecycle) = fields.nested("lifecycle", report) {
        policy.lifecycle = read_lifecycle(lifecycle, report);
    }
    if let Some(mut observation) = fields.nested("observation", report) {
        if let Some(mib) = observation.number("maxMiB", report) {
            policy.observation.bytes = mib.saturating_mul(BYTES_PER_MIB);
        }
        let days = observation.number("maxDays", report);
        if let Some(days) = days.and_then(|days| u32::try_from(days).ok()) {
            policy.observation.days = days;
        }
        observation.close();
    }
    if let Some(mut tasks) = fields.nested("tasks", report) {
        let mut often = |name, unit_ms: u64| {
            let number = tasks.number(name, report)?;
            Some((number > 0).then(|| number.saturating_mul(unit_ms)))
        };
        let default = policy.tasks;
        policy.tasks = TaskPolicy {
            keep_ms: often("keepDays", DAY_MS).unwrap_or(default.keep_ms),
            drill_ms: often("drillHours", HOUR_MS).unwrap_or(default.drill_ms),
            checkpoint_ms: often("checkpointSeconds", 1_000).unwrap_or(default.checkpoint_ms),
        };
        tasks.close();
    }
    if let Some(mut approvals) = fields.nested("approvals", report) {
        let seconds = approvals.number("timeoutSeconds", report);
        policy.approvals.timeout_ms = seconds.map(|seconds| seconds.saturating_mul(1_000));
        approvals.close();
    }
    policy.changesets = changesets::read(&mut fields, report);
    policy.appliers = proposals::read(&mut fields, report);
    let budgets = budgets::read(&mut fields, None, report);
    policy.sandbox = sandbox::read(&mut fields, cx);
    fields.close();
    (policy, budgets)
}

fn read_lifecycle(mut fields: Fields<'_>, report: &mut ProblemReport) -> Lifecycle {
    let mut milliseconds = |name| {
        let seconds = fields.number(name, report)?;
        Some(seconds * 1_000)
    };
    let default = Lifecycle::default();
    let lifecycle = Lifecycle {
        ttl_ms: milliseconds("ttlSeconds"),
        gc_grace_ms: milliseconds("gcGraceSeconds").unwrap_or(default.gc_grace_ms),
        idle_ms: milliseconds("idleSeconds").unwrap_or(default.idle_ms),
    };
    fields.close();
    lifecycle
}
