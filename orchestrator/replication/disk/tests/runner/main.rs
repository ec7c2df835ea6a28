//! Tests of the replicated disk and the replica: on simulated disks that fail and stop, and under a
//! real store.

#[cfg(test)]
mod non_replicated;
#[cfg(test)]
mod ownership;
#[cfg(test)]
mod replay;
#[cfg(test)]
mod snapshots;
#[cfg(test)]
mod stored;
#[cfg(test)]
mod taking_down;
#[cfg(test)]
mod workload;
#[cfg(test)]
mod world;
