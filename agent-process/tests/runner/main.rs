//! The scripted model as its documentation shows it, the tools on real files and processes, and the
//! real binary opposite a small orchestrator.

#[cfg(test)]
mod bash;
#[cfg(test)]
mod bookshop;
#[cfg(test)]
mod documentation;
#[cfg(test)]
mod files;
#[cfg(test)]
mod lifecycle;
#[cfg(test)]
mod modules;
#[cfg(target_os = "linux")]
#[cfg(test)]
mod sandbox;
#[cfg(test)]
mod service_tools;
#[cfg(test)]
mod sessions;
#[cfg(test)]
mod small_tools;
#[cfg(test)]
mod support;
#[cfg(target_os = "linux")]
#[cfg(test)]
mod tasks;
