// Types of the modules that goondan runs (`COMPAT-3`). Nothing of it is there at run time.

export type JsonPrimitive = string | number | boolean | null;
export type JsonValue = JsonPrimitive | JsonArray | JsonObject;
export type JsonArray = JsonValue[];
export interface JsonObject {
  [name: string]: JsonValue;
}

/** What modules log with: lines of goondan's log, under the trace of what they work on. */
export type Logger = Console;

/** Where a turn, a step or a call belongs. */
export interface ExecutionContext {
  readonly agentName: string;
  readonly instanceKey: string;
  readonly turnId: string;
  readonly traceId: string;
}

export type MessageSource =
  | { type: "user" }
  | { type: "assistant"; stepId: string }
  | { type: "tool"; toolCallId: string; toolName: string }
  | { type: "system" }
  | { type: "extension"; extensionName: string };

export interface MessageData {
  role: string;
  content: string | any[];
}

export interface Message {
  readonly id: string;
  readonly data: MessageData;
  metadata: Record<string, any>;
  /** A `Date` under the contract of 0.0.3, a text under today's. Both are taken. */
  readonly createdAt: any;
  readonly source: MessageSource;
}

/** A message that is made: what is left out is filled in. */
export type NewMessage = Partial<Message> & { data: MessageData };

export type MessageEvent =
  | { type: "append"; message: NewMessage }
  | { type: "replace"; targetId: string; message: NewMessage }
  | { type: "remove"; targetId: string }
  | { type: "truncate" };

export interface ConversationState {
  readonly baseMessages: Message[];
  readonly events: MessageEvent[];
  readonly nextMessages: Message[];
  toLlmMessages(): MessageData[];
}

export interface AgentEvent {
  readonly id: string;
  readonly type: string;
  /** A `Date` under the contract of 0.0.3, a text under today's. */
  readonly createdAt: any;
  readonly traceId?: string;
  readonly input?: string;
  /** The line above the input in the message for the model. */
  readonly header?: string;
  /** What the connector reported about the event. */
  readonly properties?: JsonObject;
  readonly instanceKey?: string;
  readonly metadata?: JsonObject;
  /** If the input has the texts of several events: the join, and the other events. */
  readonly join?: { readonly role: "whole"; readonly name: string; readonly parts: string[] };
  readonly source: { readonly kind: "agent" | "connector"; readonly name: string; readonly [name: string]: any };
}

/** What an event needs that is sent to another agent. */
export interface OutgoingEvent {
  input?: string;
  instanceKey?: string;
  [name: string]: any;
}

/** What the message says that brings an answer for which nobody waited. */
export interface InterAgentResponseMetadata {
  kind: "inter_agent_response";
  version: 1;
  requestId: string;
  requestEventId: string;
  responseEventId?: string;
  fromAgentId: string;
  toAgentId: string;
  async: true;
  status: "ok" | "error" | "timeout";
  receivedAt: string;
  traceId?: string;
  requestEventType?: string;
  requestMetadata?: JsonObject;
  errorCode?: string;
  errorMessage?: string;
}

// Tools

export interface AgentRuntimeRequestResult {
  eventId: string;
  target: string;
  response?: JsonValue;
  correlationId: string;
  accepted?: boolean;
  async?: boolean;
}

export interface AgentRuntimeCatalogResult {
  swarmName?: string;
  entryAgent?: string;
  selfAgent: string;
  availableAgents: string[];
  callableAgents: string[];
}

export interface SpawnedAgentInfo {
  target: string;
  instanceKey: string;
  ownerAgent: string;
  ownerInstanceKey: string;
}

/** The way to other agents. */
export interface AgentToolRuntime {
  request(
    target: string,
    event: OutgoingEvent | string,
    options?: { timeoutMs?: number; async?: boolean },
  ): Promise<AgentRuntimeRequestResult>;
  send(
    target: string,
    event: OutgoingEvent | string,
  ): Promise<{ eventId: string; target: string; accepted: boolean }>;
  spawn(
    target: string,
    options?: { instanceKey?: string; cwd?: string },
  ): Promise<{ target: string; instanceKey: string; spawned: boolean; cwd?: string }>;
  list(options?: { includeAll?: boolean }): Promise<{ agents: SpawnedAgentInfo[] }>;
  catalog(): Promise<AgentRuntimeCatalogResult>;
}

export interface ToolContext extends ExecutionContext {
  readonly toolCallId: string;
  /** The message that makes the call. */
  readonly message: Message;
  readonly workdir: string;
  readonly logger: Logger;
  /** Other agents, if the agent may reach them. */
  readonly runtime?: AgentToolRuntime;
  /** The same as the second argument. */
  readonly input: any;
  /** The Tool's `config`. */
  readonly config: any;
  readonly workDir: string;
  readonly projectRoot: string;
  /** Nobody waits for the result any more. */
  readonly signal: AbortSignal;
}

export type ToolHandler = (ctx: ToolContext, input: any) => unknown;

// Extensions

export interface ToolCatalogItem {
  name: string;
  description?: string;
  parameters?: JsonObject;
}

export interface ToolCallResult {
  readonly toolCallId: string;
  readonly toolName: string;
  /** The value that the tool returned under the contract of 0.0.3, its text under today's. */
  readonly output?: any;
  readonly status: "ok" | "error";
  readonly error?: { name?: string; message: string; code?: string; suggestion?: string; helpUrl?: string };
}

export interface TurnResult {
  readonly turnId: string;
  readonly responseMessage?: NewMessage;
  readonly finishReason: "text_response" | "max_steps" | "error";
  readonly error?: { message: string; code?: string };
}

export interface StepResult {
  status: "completed" | "failed";
  hasToolCalls: boolean;
  shouldContinue: boolean;
  toolCalls: { id: string; name: string; args: any }[];
  toolResults: ToolCallResult[];
  metadata: Record<string, any>;
}

export interface MiddlewareAgentsApi {
  request(params: {
    target: string;
    input?: string;
    instanceKey?: string;
    timeoutMs?: number;
    async?: boolean;
    wait?: boolean;
    eventType?: string;
    /** `Date`s in it become texts. */
    metadata?: Record<string, any>;
  }): Promise<{
    target: string;
    response: string;
    eventId: string;
    instanceKey: string;
    correlationId?: string;
    accepted?: boolean;
    async?: boolean;
  }>;
  send(params: {
    target: string;
    input?: string;
    instanceKey?: string;
    metadata?: JsonObject;
  }): Promise<{ accepted: boolean; eventId: string; instanceKey: string }>;
  spawn(params: { target: string; input?: string; instanceKey?: string }): Promise<any>;
  list(params?: { scope?: "conversation" | "workspace" }): Promise<any>;
  catalog(): Promise<any>;
}

/** What surrounds a turn, under the contract of 0.0.3. */
export interface RuntimeContext {
  agent: { name: string; bundleRoot: string; prompt?: { system?: string } };
  swarm: AgentRuntimeCatalogResult;
  inbound: {
    eventId: string;
    eventType: string;
    sourceKind: "agent" | "connector";
    sourceName: string;
    createdAt: string;
    instanceKey?: string;
    eventMetadata?: JsonObject;
  };
  call?: { callerAgent?: string; callerInstanceKey?: string; replyTo?: any };
}

interface Around extends ExecutionContext {
  metadata: Record<string, any>;
  readonly runtime: RuntimeContext;
}

interface AroundMessages extends Around {
  readonly conversationState: ConversationState;
  readonly agents: MiddlewareAgentsApi;
  /** Gives the id of a message that is appended. */
  emitMessageEvent(event: MessageEvent): string | undefined;
}

export interface TurnMiddlewareContext extends AroundMessages {
  readonly inputEvent: AgentEvent;
  next(): Promise<TurnResult>;
}

export interface StepMiddlewareContext extends AroundMessages {
  readonly turn: { readonly id: string; readonly startedAt: Date };
  readonly stepIndex: number;
  toolCatalog: ToolCatalogItem[];
  next(): Promise<StepResult>;
}

export interface ToolCallMiddlewareContext extends Around {
  readonly stepIndex: number;
  readonly toolName: string;
  readonly toolCallId: string;
  args: any;
  next(): Promise<ToolCallResult>;
}

/** What is returned takes the place of what came; nothing leaves it as it is. */
export type TurnMiddleware = (ctx: TurnMiddlewareContext) => Promise<TurnResult | void>;
export type StepMiddleware = (ctx: StepMiddlewareContext) => Promise<StepResult | void>;
export type ToolCallMiddleware = (ctx: ToolCallMiddlewareContext) => Promise<ToolCallResult | void>;

export interface ExtensionApi {
  pipeline: {
    register(type: "turn", fn: TurnMiddleware, options?: { priority?: number }): void;
    register(type: "step", fn: StepMiddleware, options?: { priority?: number }): void;
    register(type: "toolCall", fn: ToolCallMiddleware, options?: { priority?: number }): void;
  };
  tools: {
    /** Offers the model a tool under this name. */
    register(item: ToolCatalogItem, handler: ToolHandler): void;
  };
  state: {
    get(): Promise<any>;
    set(value: JsonValue): Promise<void>;
  };
  events: {
    on(event: string, handler: (...args: any[]) => void): () => void;
    emit(event: string, ...args: unknown[]): void;
  };
  logger: Logger;
}

export type ExtensionRegister = (api: ExtensionApi, config: any) => void | Promise<void>;

// Connectors

export type ConnectorEventMessage =
  | { type: "text"; text: string }
  | { type: "image"; url: string }
  | { type: "file"; url: string; name: string };

export interface ConnectorEvent {
  /** The outside's own id: the same id twice is one turn. Without it each event is a new one. */
  id?: string;
  name: string;
  message: ConnectorEventMessage;
  properties: Record<string, string | number | boolean>;
  instanceKey: string;
}

export interface ConnectorContext {
  /** Resolves when the event is durable. */
  emit(event: ConnectorEvent): Promise<void>;
  config: Record<string, string>;
  secrets: Record<string, string>;
  logger: Logger;
}

/** Runs until it is told to stop. */
export type ConnectorEntry = (ctx: ConnectorContext) => Promise<void>;
