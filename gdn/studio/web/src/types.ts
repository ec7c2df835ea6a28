// Types of the control API (docs/control-api.md), with the fields that pages use. The daemon omits optional fields that
// have no value.

/** An RFC 3339 time in UTC. */
export type Time = string;

/** A JSON value. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** A workspace, as `daemon.status` tells it. */
export interface Workspace {
  workspaceId: string;
  projectRoot: string;
  package?: string;
  entryAgent?: string;
  conversationKey?: string;
  agents: string[];
  connections: string[];
  runningAgents: number;
  pendingEvents: number;
  pausedEvents?: number;
  parkedEvents?: number;
  approvals?: number;
  questions?: number;
  consents?: string[];
  failedDrills?: string[];
  taskAgents?: string[];
  bundleProblems?: Record<string, string>;
  configDigest?: string;
  configSince?: Time;
  lastKnownGood?: boolean;
  watch?: string;
  watchedFiles?: string[];
  watchedFilesTotal?: number;
  envFiles?: string[];
  problem?: { message: string; suggestion?: string };
  unhealthy?: { role: string; name: string; state: string; readiness?: string; detail?: string }[];
  unhealthyTotal?: number;
}

/** A process, as `daemon.processes` tells it. */
export interface Process {
  workspaceId: string;
  role: string;
  name: string;
  instanceKey?: string;
  taskId?: string;
  state: string;
  readiness?: string;
  pid?: number;
  startedAt?: Time;
  consecutiveCrashes: number;
  nextStartAt?: Time;
  pendingEvents: number;
  turnId?: string;
  traceId?: string;
  waitingFor?: string[];
  questions?: string[];
  consents?: string[];
  approvals?: string[];
  detail?: string;
  memoryBytes?: number;
  limits?: { memoryBytes?: number; openFiles?: number; processes?: number };
}

/** What tells a process from all others. */
export interface ProcessKey {
  workspaceId: string;
  role: string;
  name: string;
  instanceKey?: string;
  taskId?: string;
}

/** Something that happened in a workspace. */
export interface LifecycleEvent {
  type: string;
  instanceKey?: string;
  eventId?: string;
  turnId?: string;
  agentName?: string;
  taskId?: string;
  [field: string]: unknown;
}

/** The parameters of `workspace.change`, without the request's id. */
export interface WorkspaceChange {
  workspaceId?: string;
  cursor: string;
  at: Time;
  snapshot?: { workspace: Workspace; processes: Process[]; more?: boolean };
  event?: LifecycleEvent;
}

/** The parameters of `process.change`. */
export interface ProcessChange {
  at: Time;
  processes: Process[];
  gone: ProcessKey[];
  more?: boolean;
}

/** A conversation, as `instance.list` tells it. */
export interface Instance {
  workspaceId: string;
  instanceKey: string;
  agentName: string;
  status: string;
  createdAt: Time;
  updatedAt: Time;
}

/** A part of a message. */
export type Part =
  | { type: 'text'; text: string }
  | { type: 'tool-call'; toolCallId: string; toolName: string; input: Json }
  | { type: 'tool-result'; toolCallId: string; toolName: string; output: { type: string; value: Json } }
  | { type: string; [field: string]: Json };

/** One entry of a conversation. */
export interface Message {
  id: string;
  data: { role: string; content: string | Part[] };
  metadata: Record<string, Json>;
  createdAt: Time;
  source: { type: string; stepId?: string; toolName?: string; extensionName?: string };
}

/** The end of a conversation, or a page before it. */
export interface MessagePage {
  messages: Message[];
  pending: Message[];
  next?: number;
  previous?: number;
  total: number;
  /** The messages of which a text was cut. */
  cut?: CutMessage[];
}

/** A tool call that was cut short, so that nobody knows if it had its effect. */
export interface UnknownCall {
  instanceKey: string;
  agentName: string;
  toolCallId: string;
  toolName: string;
  at: string;
  detail: string;
}

/** A message of which a part is known, and where the whole of it is. */
export interface CutMessage {
  messageId: string;
  offset?: number;
}

/** What happened in a turn. */
export interface RuntimeEvent {
  type: string;
  timestamp: Time;
  traceId: string;
  spanId: string;
  parentSpanId?: string;
  agentName: string;
  instanceKey: string;
  turnId: string;
  stepId?: string;
  toolCallId?: string;
  toolName?: string;
  eventId?: string;
  durationMs?: number;
  detail?: string;
  usage?: Usage;
  costMicroUsd?: number;
}

/** Tokens. */
export interface Usage {
  inputTokens: number;
  outputTokens: number;
  cacheReadTokens: number;
  cacheWriteTokens: number;
}

/** A tool call that waits for a person. */
export interface Approval {
  workspaceId: string;
  approvalId: string;
  instanceKey: string;
  agentName: string;
  toolCallId?: string;
  toolName: string;
  summary: string;
  askedAt: Time;
  mayHaveBegun?: boolean;
  /** Time at which it is denied if it is still undecided. */
  deniedAt?: Time;
  /** True if two different people must approve it. */
  needsTwo?: boolean;
  /** The approval of the first of two people. */
  firstApproval?: { by?: string; at: Time };
}

/** A question to a person. */
export interface Question {
  workspaceId: string;
  questionId: string;
  source: { kind: string; connection?: string; tool?: string };
  instanceKey: string;
  agentName: string;
  message: string;
  askedAt: Time;
  expiresAt?: Time;
}

/** What a field of an answer takes. */
export interface Takes {
  type: 'string' | 'choice' | 'choices' | 'number' | 'integer' | 'boolean';
  format?: string;
  minLength?: number;
  maxLength?: number;
  minItems?: number;
  maxItems?: number;
  minimum?: number;
  maximum?: number;
  choices?: { value: string; title?: string }[];
}

/** A field of an answer. */
export interface FormField {
  name: string;
  title?: string;
  description?: string;
  required: boolean;
  takes: Takes;
  default?: Json;
}

/** An event that waits. */
export interface WaitingEvent {
  instanceKey: string;
  agentName: string;
  eventId: string;
  standing: 'waiting' | 'processing' | 'paused' | 'parked';
  crashes: number;
  reason?: string;
  since: Time;
  source?: { kind: string; name: string };
  input: string;
}

/** An input of a conversation that becomes due later. */
export interface Schedule {
  workspaceId: string;
  instanceKey: string;
  agentName: string;
  /** True if a person created it, not its agent. */
  byPerson?: boolean;
  scheduleId: string;
  time: ScheduleTime;
  input: string;
  createdAt: Time;
  /** Absent if none is left. */
  next?: Time;
  /** Reason why its inputs cannot be sent. */
  problem?: string;
}

/** Times of a schedule. */
export type ScheduleTime = { kind: 'once'; at: Time } | { kind: 'cron'; cron: string; timeZone: string };

/** Who made a proposal: the run and the worker. */
export interface Sandbox {
  runId: string;
  agentId: string;
}

/** What a worker handed in. */
export interface Proposal extends Sandbox {
  state: string;
  createdAt: Time;
  changedFiles: number;
  digest: string;
  notes?: string;
  problem?: string;
  summary?: string;
  testLog?: string;
  files?: { path: string; status: string; renamedFrom?: string; oldBytes?: number; newBytes?: number }[];
  history?: { type: string; at: Time; detail?: string }[];
  comments?: ProposalComment[];
}

/** A person's comment on a file of a proposal, or on one of its lines. */
export interface ProposalComment {
  number: number;
  at: Time;
  /** Digest of the proposal that it is about. */
  digest: string;
  path: string;
  /** Absent for the whole file. */
  line?: number;
  /** True if the line is one of the file before the change. */
  old?: boolean;
  lineText?: string;
  text: string;
  state: 'open' | 'sent';
  sentAt?: Time;
  /** Digest of the first proposal after it was sent. */
  addressedBy?: string;
}

/** Whether a proposal can be applied. */
export interface ProposalCheck {
  canApply: boolean;
  refusals: { kind: string; path?: string; reason: string }[];
}

/** A piece of work for a command-line agent. */
export interface Task {
  workspaceId: string;
  taskId: string;
  title: string;
  type: string;
  agent: string;
  status: string;
  blockedBy?: string;
  /** Reason why the merge queue keeps its proposal without landing it. */
  held?: string;
  currentPhase: number;
  totalPhases: number;
  progress: number;
  tokens: number;
  cost: number;
  /** None if its work area was never readable; nor the next. */
  createdAt?: Time;
  updatedAt?: Time;
  createdBy?: string;
  warning?: string;
  damaged?: string;
}

/** What a task waits for a person with. */
export interface TaskAsk {
  id: string;
  kind: 'question' | 'permission' | 'secret' | 'dependency';
  text: string;
  description?: string;
  options?: string[];
  default?: string;
  until?: Time;
}

/** A changeset of an agent's own configuration. */
export interface Changeset {
  changesetId: string;
  state: string;
  revision?: string;
  message?: string;
  summary?: string[];
  detail?: string;
  openedAt: Time;
}

/** One that waits for a person, and whose it is. */
export interface WaitingChangeset {
  instanceKey: string;
  agentName: string;
  changeset: Changeset;
}

/** What a task may take; what is missing has no bound of its own. */
export interface TaskBudget {
  tokens?: number;
  microUsd?: number;
  diskBytes?: number;
}

/** All that is known of a task. */
export interface TaskDetail {
  info: Task;
  description: string;
  workArea: string;
  sandbox?: { at: { runId: string; agentId: string }; workDir: string };
  proposal?: TaskProposal;
  proposalProblem?: string;
  verified?: { passed: boolean; why?: string; output?: string };
  asks?: TaskAsk[];
  approvals?: string[];
  documents?: string[];
  missingDocuments?: string[];
  step?: string;
  plan?: { title: string; state: string }[];
  review?: number;
  failure?: string;
  runs?: number;
  run?: { number: number };
  notBefore?: Time;
  agents?: { name: string; isCurrent?: boolean; limitedUntil?: Time }[];
  lastRun?: { number: number; isOk: boolean; outcome: string; lastWords?: string; stderr?: string };
  messages?: string[];
  budget?: TaskBudget;
  disk?: { bytes: number; quotaBytes: number; freeBytes: number };
  drill?: { checkpointId: string; at: Time; problem?: string };
  recent?: { at: Time; event: string; detail?: string }[];
}

/** State of a call in a task's stream. */
export type CallState = 'started' | 'completed' | 'failed';

/** Content of an item of a task's stream. */
export type TaskItemContent =
  | { type: 'text' | 'thinking' | 'output' | 'problem'; text: string }
  | { type: 'plan'; steps: { title: string; state: string }[] }
  | { type: 'command'; id?: string; state: CallState; command: string; exit?: number; output?: string }
  | { type: 'fileChange'; id?: string; state: CallState; files: { path: string; diff?: string }[] }
  | { type: 'tool'; id?: string; name: string; state: CallState; input?: string; output?: string }
  | { type: 'usage'; usage: Usage; cost?: number }
  | { type: 'result'; isOk: boolean; text: string; denied?: string[] }
  | { type: 'event'; event: string; detail?: string }
  | { type: 'gap'; items: number };

/** An item of a task's stream. */
export type TaskItem = { at: Time; run?: number } & TaskItemContent;

/** A part of a task's stream. `after` is the position at which it begins; absent at the start of the latest run. */
export interface TaskPart {
  after?: number;
  items: TaskItem[];
  next: number;
  skippedBytes?: number;
  /** False if items follow at once. */
  isEnd?: boolean;
  isOver?: boolean;
}

/** What a task would change of the project. */
export interface TaskProposal {
  digest: string;
  files: { path: string; status: string }[];
  moreFiles?: number;
  isDelivered?: boolean;
  branch?: string;
}

/** A checkpoint of a conversation or of a task. */
export interface Checkpoint {
  checkpointId: string;
  type: string;
  name?: string;
  phase?: number;
  /** None if its description is unreadable. */
  createdAt?: Time;
  snapshotSize: number;
  damaged?: string;
}

/** A budget and how it stands. */
export interface Budget {
  workspaceId: string;
  scope: string;
  agentName?: string;
  instanceKey?: string;
  period: string;
  limit: Spent;
  spent: Spent;
  reserved: Spent;
}

/** Tokens and millionths of a dollar. */
export interface Spent {
  tokens?: number;
  microUsd?: number;
}

/** What replies took. */
export interface Spending {
  replies: number;
  usage: Usage;
  costMicroUsd: number;
  unpriced?: number;
  unmetered?: number;
}

/** The answer to `workspace.usage`. */
export interface UsageReport {
  rows: { workspaceId: string; key: string; agentName?: string; spending: Spending }[];
  leftOut: number;
  total: Spending;
  unreadable: number;
  budgets: Budget[];
}
