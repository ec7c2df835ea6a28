// Types for the modules of tools, extensions and connectors (`COMPAT-3`). The package contains no code.

export type JsonPrimitive = string | number | boolean | null;
export type JsonValue = JsonPrimitive | JsonArray | JsonObject;
export type JsonArray = JsonValue[];
export interface JsonObject {
  [name: string]: JsonValue;
}

/** Writes lines of goondan's log, with the trace of the module's current work. */
export type Logger = Console;

/** Origin of a turn, a step or a call. */
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
  /** A `Date` under the contract of 0.0.3, a text under the current one. Both are accepted. */
  readonly createdAt: any;
  readonly source: MessageSource;
}

/** A new message. Missing fields get their defaults. */
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
  /** A `Date` under the contract of 0.0.3, a text under the current one. */
  readonly createdAt: any;
  readonly traceId?: string;
  readonly input?: string;
  /** The line above the input in the message for the model. */
  readonly header?: string;
  /** Properties of the event, from its connector. */
  readonly properties?: JsonObject;
  readonly instanceKey?: string;
  readonly metadata?: JsonObject;
  /** If the input has the texts of several events: the join, and the other events. */
  readonly join?: { readonly role: "whole"; readonly name: string; readonly parts: string[] };
  readonly source: { readonly kind: "agent" | "connector"; readonly name: string; readonly [name: string]: any };
}

/** An event for another agent. */
export interface OutgoingEvent {
  input?: string;
  instanceKey?: string;
  [name: string]: any;
}

/** Metadata of a message with an answer that arrives after the request has returned. */
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

/** Requests to other agents. */
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
  /** Aborted when the result is no longer needed. */
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
  /** The returned value of the tool under the contract of 0.0.3, its text under the current one. */
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
    /** `Date`s in the metadata become texts. */
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

/** Context of a turn, under the contract of 0.0.3. */
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
  /** Returns the id of an appended message. */
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

/** A returned value replaces the result; without one, the result stays unchanged. */
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
  /** Id from the outside: a repeated id is the same event. Without an id, each event is new. */
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

/** Runs until goondan stops the connector. */
export type ConnectorEntry = (ctx: ConnectorContext) => Promise<void>;
