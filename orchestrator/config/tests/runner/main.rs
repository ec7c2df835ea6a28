//! Loads valid and invalid projects from temporary directories.

#[cfg(test)]
mod agreement;
#[cfg(test)]
mod approve;
#[cfg(test)]
mod autofix;
#[cfg(test)]
mod beginners;
#[cfg(test)]
mod budgets;
#[cfg(test)]
mod bundles;
#[cfg(test)]
mod cli_agents;
#[cfg(test)]
mod clouds;
#[cfg(test)]
mod connectors;
#[cfg(test)]
mod documentation;
#[cfg(test)]
mod event_headers;
#[cfg(test)]
mod fallbacks;
#[cfg(test)]
mod files;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod import;
#[cfg(test)]
mod inheritance;
#[cfg(test)]
mod machine;
#[cfg(test)]
mod migration;
#[cfg(test)]
mod oauth;
#[cfg(test)]
mod older_files;
mod older_format;
#[cfg(test)]
mod older_recognition;
#[cfg(test)]
mod packages;
#[cfg(test)]
mod prices;
#[cfg(test)]
mod problems;
#[cfg(test)]
mod short_form;
#[cfg(test)]
mod sources;
#[cfg(test)]
mod successors;
#[cfg(test)]
mod support;
#[cfg(test)]
mod thinking;
#[cfg(test)]
mod tool_connections;
#[cfg(test)]
mod values;
#[cfg(test)]
mod workspace_permissions;
