//! goondan as its users experience it: the real binaries, real processes, real files, real signals.
//!
//! Each file is one topic. The harness is this package's library; it builds the binaries if needed.

#[cfg(test)]
mod agent_tool;
#[cfg(test)]
mod alerts;
#[cfg(test)]
mod approval_buttons;
#[cfg(test)]
mod approvals;
#[cfg(test)]
mod ask;
#[cfg(test)]
mod authority;
#[cfg(test)]
mod backups;
#[cfg(test)]
mod bundles;
#[cfg(test)]
mod cancellation;
#[cfg(test)]
mod ceilings;
#[cfg(test)]
mod cgroups;
#[cfg(test)]
mod chat;
#[cfg(test)]
mod chat_decisions;
#[cfg(test)]
mod children;
#[cfg(test)]
mod clouds;
#[cfg(test)]
mod command_line;
#[cfg(test)]
mod compaction;
#[cfg(test)]
mod comparison;
#[cfg(test)]
mod confined;
#[cfg(test)]
mod connectors;
#[cfg(test)]
mod consent;
#[cfg(test)]
mod control;
#[cfg(test)]
mod conversation;
#[cfg(test)]
mod coordinator;
#[cfg(test)]
mod crashes;
#[cfg(test)]
mod damage;
#[cfg(test)]
mod demo_kill;
#[cfg(test)]
mod demo_nodes;
#[cfg(test)]
mod denials;
#[cfg(test)]
mod durable_files;
#[cfg(test)]
mod egress;
#[cfg(test)]
mod email;
#[cfg(test)]
mod escapes;
#[cfg(test)]
mod event_headers;
#[cfg(test)]
mod extension_modules;
#[cfg(test)]
mod extensions;
#[cfg(test)]
mod fallbacks;
#[cfg(test)]
mod file_kinds;
#[cfg(test)]
mod forget;
#[cfg(test)]
mod full_disk;
#[cfg(test)]
mod git_packages;
#[cfg(test)]
mod gitlab;
#[cfg(test)]
mod inbox;
#[cfg(test)]
mod incidents;
#[cfg(test)]
mod joins;
#[cfg(test)]
mod keys;
#[cfg(test)]
mod last_good;
#[cfg(test)]
mod lifecycle;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod log_keys;
#[cfg(test)]
mod long_lines;
#[cfg(test)]
mod looking_back;
#[cfg(test)]
mod manual;
#[cfg(test)]
mod matrix;
#[cfg(test)]
mod mcp;
#[cfg(test)]
mod mcp_login;
#[cfg(test)]
mod mcp_packages;
#[cfg(test)]
mod mcp_quirks;
#[cfg(test)]
mod mcp_sdk;
#[cfg(test)]
mod mcp_servers;
#[cfg(test)]
mod mcp_start;
#[cfg(test)]
mod merge_queue;
#[cfg(test)]
mod metrics;
#[cfg(test)]
mod metrics_outlets;
#[cfg(test)]
mod mistakes;
#[cfg(test)]
mod model_failures;
#[cfg(test)]
mod models;
#[cfg(test)]
mod namespaces;
#[cfg(test)]
mod nothing_left;
#[cfg(test)]
mod oauth;
#[cfg(test)]
mod older_bundles;
#[cfg(test)]
mod older_commands;
#[cfg(test)]
mod older_events;
#[cfg(test)]
mod older_modules;
#[cfg(test)]
mod older_services;
#[cfg(test)]
mod older_tools;
#[cfg(test)]
mod orderly_stop;
#[cfg(test)]
mod ordinary;
#[cfg(test)]
mod otlp;
#[cfg(test)]
mod outside_effects;
#[cfg(test)]
mod owners;
#[cfg(test)]
mod packages;
#[cfg(test)]
mod pages;
#[cfg(test)]
mod parked_events;
#[cfg(test)]
mod partitions;
#[cfg(test)]
mod pauses;
#[cfg(test)]
mod people;
#[cfg(test)]
mod permissions;
#[cfg(test)]
mod persons;
#[cfg(test)]
mod planted_files;
#[cfg(test)]
mod project_root;
#[cfg(test)]
mod proposals;
#[cfg(test)]
mod proxies;
#[cfg(test)]
mod public_callback;
#[cfg(test)]
mod publication;
#[cfg(test)]
mod questions;
#[cfg(test)]
mod queue_control;
#[cfg(test)]
mod records;
#[cfg(test)]
mod registered_tools;
#[cfg(test)]
mod registries;
#[cfg(test)]
mod rehearsal;
#[cfg(test)]
mod relay;
#[cfg(test)]
mod release_packages;
#[cfg(test)]
mod remote;
#[cfg(test)]
mod replicated_work;
#[cfg(test)]
mod replication;
#[cfg(test)]
mod replication_moves;
#[cfg(test)]
mod replication_outage;
#[cfg(test)]
mod replies;
#[cfg(test)]
mod rewind;
#[cfg(test)]
mod room;
#[cfg(test)]
mod runtimes;
#[cfg(test)]
mod schedules;
#[cfg(test)]
mod secret_search;
#[cfg(test)]
mod secrets;
#[cfg(test)]
mod self_restart;
#[cfg(test)]
mod service;
#[cfg(test)]
mod services;
#[cfg(test)]
mod skills;
#[cfg(test)]
mod slack_chats;
#[cfg(test)]
mod slack_sdk;
#[cfg(test)]
mod studio;
#[cfg(test)]
mod studio_pages;
#[cfg(test)]
mod supervision;
#[cfg(test)]
mod swarms;
#[cfg(test)]
mod system_documents;
#[cfg(test)]
mod taken_elsewhere;
#[cfg(test)]
mod task_areas;
#[cfg(test)]
mod task_budgets;
#[cfg(test)]
mod task_conversations;
#[cfg(test)]
mod task_kills;
#[cfg(test)]
mod task_manners;
#[cfg(test)]
mod task_notify;
#[cfg(test)]
mod task_secrets;
#[cfg(test)]
mod task_sources;
#[cfg(test)]
mod task_streams;
#[cfg(test)]
mod task_tools;
#[cfg(test)]
mod tasks;
#[cfg(test)]
mod telegram;
mod telegram_sdk;
#[cfg(test)]
mod templates;
#[cfg(test)]
mod together;
#[cfg(test)]
mod tool_calls;
#[cfg(test)]
mod tool_search;
#[cfg(test)]
mod top;
#[cfg(test)]
mod two_people;
#[cfg(test)]
mod types;
#[cfg(test)]
mod units;
#[cfg(test)]
mod unknown_calls;
#[cfg(test)]
mod upgrade;
#[cfg(test)]
mod usage;
#[cfg(test)]
mod verdaccio;
#[cfg(test)]
mod versions;
#[cfg(test)]
mod watch;
#[cfg(test)]
mod watched_files;
#[cfg(test)]
mod watchers;
#[cfg(test)]
mod webhook;
#[cfg(test)]
mod webhook_replies;
#[cfg(test)]
mod workspace_permissions;
