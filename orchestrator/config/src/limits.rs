//! Every limit of loading a project, with its name and its one home.

/// Largest YAML file that is read (`goondan.yaml`, a resource file, a script), in bytes.
pub const MAX_YAML_BYTES: usize = 4 * 1024 * 1024;

/// Largest prompt file, in bytes. An agent's whole assignment travels in one frame.
pub const MAX_PROMPT_BYTES: usize = 1024 * 1024;

/// Largest environment file (`.env.local`, `.env`), in bytes.
pub const MAX_ENV_FILE_BYTES: usize = 256 * 1024;

/// Maximum number of bytes of a file that are compared to detect a change.
pub const MAX_COMPARED_BYTES: u64 = 64 * 1024 * 1024;

/// Largest file whose text is searched for imports, in bytes.
pub const MAX_IMPORTING_BYTES: usize = 1024 * 1024;

/// Most places looked at for the files that one module imports, those of the files it imports included.
pub const MAX_IMPORT_PLACES: usize = 4_000;

/// Most files read from `resources/`, and most directories looked into.
pub const MAX_RESOURCE_FILES: usize = 256;

/// Deepest directory within `resources/`, or of a project of 0.0.3, that is read.
pub const MAX_RESOURCE_DEPTH: usize = 8;

/// Most directories of a project of 0.0.3 that are looked into for resource files.
pub const MAX_PROJECT_DIRECTORIES: usize = 4_096;

/// Most problems that one `gdn validate --fix` mends.
pub const MAX_FIXES: usize = 500;

/// Deepest nesting of lists and mappings in one YAML file.
pub const MAX_YAML_DEPTH: usize = 48;

/// Most lists, mappings and scalars in one YAML file, those repeated by aliases included.
pub const MAX_YAML_NODES: usize = 100_000;

/// Most Agents that an Agent inherits from, one through the other.
pub const MAX_ANCESTORS: usize = 8;

/// Most lists, mappings and scalars of all Agents with `inherit`, those inherited included.
pub const MAX_INHERITED_NODES: usize = 100_000;

/// Most text in one YAML file, in bytes, that repeated by aliases included.
pub const MAX_YAML_TEXT_BYTES: usize = 2 * MAX_YAML_BYTES;

/// Most documents in one YAML file.
pub const MAX_YAML_DOCUMENTS: usize = 1_024;

/// Most problems one load reports. A file with more is broken in one place, not in a thousand.
pub const MAX_DIAGNOSTICS: usize = 100;

/// Longest source line shown with a problem, in characters; the rest is cut off.
pub const MAX_SOURCE_LINE_CHARS: usize = 200;

/// Longest message and longest suggestion of a problem, in characters; the rest is cut off. Both may
/// quote a file.
pub const MAX_MESSAGE_CHARS: usize = 600;

/// Longest package name, in bytes.
pub const MAX_PACKAGE_NAME_BYTES: usize = 128;

/// Longest name of a Tool resource, in bytes. It is the first half of `tool__export`, and the whole
/// must fit [`goondan_protocol::limits::MAX_NAME_BYTES`].
pub const MAX_TOOL_NAME_BYTES: usize = 64;

/// Default of a Tool's `timeoutSeconds`: maximum duration of a call of a module.
pub const DEFAULT_TOOL_TIMEOUT_SECONDS: u64 = 120;

/// Largest `timeoutSeconds` of a Tool.
pub const MAX_TOOL_TIMEOUT_SECONDS: u64 = 3_600;

/// Default of a Tool's `errorMessageLimit`: longest error text for a model, in characters.
pub const DEFAULT_ERROR_MESSAGE_LIMIT_CHARS: usize = 1_000;

/// Largest `errorMessageLimit`, in characters.
pub const MAX_ERROR_MESSAGE_LIMIT_CHARS: usize = 100_000;

/// Most parts of a join.
pub const MAX_JOIN_PARTS: usize = 16;

/// Default of a join's `timeoutSeconds`.
pub const DEFAULT_JOIN_TIMEOUT_SECONDS: u64 = 3_600;

/// Largest `timeoutSeconds` of a join.
pub const MAX_JOIN_TIMEOUT_SECONDS: u64 = 30 * 24 * 3_600;

/// Largest `maxStepsPerTurn`.
pub const MAX_STEPS_PER_TURN: u32 = 10_000;

/// Largest `gracePeriodSeconds`: one day.
pub const MAX_GRACE_PERIOD_SECONDS: u64 = 24 * 60 * 60;

/// Memory that the process of a conversation and its tools may take when an Agent names no
/// `limits.memoryMiB`, in units of 1048576 bytes.
pub const DEFAULT_AGENT_MEMORY_MIB: u64 = 4_096;

/// Memory that the process of a connection or a model may take when it names no `limits.memoryMiB`, in
/// units of 1048576 bytes.
pub const DEFAULT_CONNECTOR_MEMORY_MIB: u64 = 2_048;

/// Default of a Swarm's `idleSeconds`: an idle agent process is stopped after this time.
pub const DEFAULT_IDLE_SECONDS: u64 = 10 * 60;

/// Largest `idleSeconds`: one week.
pub const MAX_IDLE_SECONDS: u64 = 7 * 24 * 60 * 60;

/// Largest `ttlSeconds`: ten years.
pub const MAX_TTL_SECONDS: u64 = 10 * 365 * 24 * 60 * 60;

/// Default of a Swarm's `gcGraceSeconds`: a conversation is kept for this time after its
/// `ttlSeconds`: one day.
pub const DEFAULT_GC_GRACE_SECONDS: u64 = 24 * 60 * 60;

/// Largest `gcGraceSeconds`: one year.
pub const MAX_GC_GRACE_SECONDS: u64 = 365 * 24 * 60 * 60;

/// Largest `observation.maxMiB`: a tebibyte.
pub const MAX_OBSERVATION_MIB: u64 = 1 << 20;

/// Largest `observation.maxDays`: ten years.
pub const MAX_OBSERVATION_DAYS: u32 = 10 * 365;

/// Largest `delayMs` of a script's rule, in milliseconds: ten minutes, what `agent-process` plays.
pub const MAX_SCRIPT_DELAY_MS: u64 = 10 * 60 * 1_000;

/// Smallest `memoryMiB` of a process, which any program needs to start.
pub const MIN_LIMIT_MEMORY_MIB: u64 = 16;

/// Default of `policy.tasks.checkpointSeconds`: interval of a task's checkpoints during a run
/// (`CKPT-5`).
pub const DEFAULT_TASK_CHECKPOINT_SECONDS: u64 = 600;

/// Largest `policy.tasks.checkpointSeconds`: a week.
pub const MAX_TASK_CHECKPOINT_SECONDS: u64 = 604_800;

/// Largest `policy.approvals.timeoutSeconds`: a year.
pub const MAX_APPROVAL_TIMEOUT_SECONDS: u64 = 31_536_000;

/// Days for which a task is kept after it ended, if `policy.tasks.keepDays` does not say so (`TASK-10`).
pub const DEFAULT_TASK_KEEP_DAYS: u64 = 30;

/// Largest `policy.tasks.keepDays`: a century.
pub const MAX_TASK_KEEP_DAYS: u64 = 36_500;

/// Largest `policy.tasks.drillHours`: a year.
pub const MAX_TASK_DRILL_HOURS: u64 = 8_760;

/// Milliseconds of a day.
pub(crate) const DAY_MS: u64 = 86_400_000;

/// Milliseconds of an hour.
pub(crate) const HOUR_MS: u64 = 3_600_000;

/// Largest `diskMiB` of an agent for tasks: sixteen tebibytes.
pub const MAX_TASK_DISK_MIB: u64 = 1 << 24;

/// Largest `memoryMiB` of a process: a tebibyte.
pub const MAX_LIMIT_MEMORY_MIB: u64 = 1 << 20;

/// Least `openFiles` of a process.
pub const MIN_LIMIT_OPEN_FILES: u64 = 64;

/// Largest `openFiles` of a process.
pub const MAX_LIMIT_OPEN_FILES: u64 = 1 << 20;

/// Least `processes`: an agent's own threads and a command of its tools.
pub const MIN_LIMIT_PROCESSES: u64 = 16;

/// Largest `processes`: the most a kernel counts.
pub const MAX_LIMIT_PROCESSES: u64 = 1 << 22;

/// Most words of the command of an Agent of `runtime.kind: cli`.
pub const MAX_COMMAND_WORDS: usize = 256;

/// Most bytes of the text that such an Agent gives to its program on how to work.
pub const MAX_PREAMBLE_BYTES: usize = 64 << 10;

/// Most variables that such an Agent sets.
pub const MAX_ENVIRONMENT_VARIABLES: usize = 256;

/// Most models that are asked after the first.
pub const MAX_FALLBACK_MODELS: usize = 8;

/// Most agents that continue a task after the first.
pub const MAX_FALLBACK_AGENTS: usize = goondan_protocol::limits::MAX_FALLBACK_AGENTS;

/// Most entries of the `notify` of such an Agent.
pub const MAX_NOTIFY_ENTRIES: usize = 16;

/// Most paths in each list of a `sandbox`.
pub const MAX_SANDBOX_PATHS: usize = 64;

/// Most hosts that the programs of a sandbox may reach.
pub const MAX_SANDBOX_HOSTS: usize = 64;

/// Longest description of a skill for a model, in characters.
pub const MAX_SKILL_DESCRIPTION_CHARS: usize = 1_024;

/// Most entries of each list of a Package's `permissions`.
pub const MAX_PERMISSIONS: usize = 64;

/// Longest `instanceKeyPrefix`, in bytes. Leaves the key itself most of its own limit.
pub const MAX_KEY_PREFIX_BYTES: usize = 256;

const _: () = assert!(MAX_TOOL_NAME_BYTES * 2 <= goondan_protocol::limits::MAX_NAME_BYTES);
const _: () = assert!(MAX_KEY_PREFIX_BYTES < goondan_protocol::limits::MAX_INSTANCE_KEY_BYTES);
// An agent's prompt and script together must fit one frame.
const _: () =
    assert!(MAX_YAML_TEXT_BYTES + MAX_PROMPT_BYTES < goondan_protocol::limits::MAX_FRAME_BYTES);
const _: () = assert!(
    DEFAULT_ERROR_MESSAGE_LIMIT_CHARS <= MAX_ERROR_MESSAGE_LIMIT_CHARS
        && goondan_protocol::limits::DEFAULT_MAX_STEPS_PER_TURN <= MAX_STEPS_PER_TURN
        && goondan_protocol::limits::DEFAULT_GRACE_PERIOD_MS <= MAX_GRACE_PERIOD_SECONDS * 1_000
        && DEFAULT_IDLE_SECONDS <= MAX_IDLE_SECONDS
        && DEFAULT_GC_GRACE_SECONDS <= MAX_GC_GRACE_SECONDS
);
