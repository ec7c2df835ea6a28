//! Tests of the whole store: against an independent model on a simulated disk with crashes, faults
//! and damage, and against its documentation on a real disk.

#[cfg(test)]
mod answers;
#[cfg(test)]
mod archives;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod damage;
#[cfg(test)]
mod documentation;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod formats;
#[cfg(test)]
mod losses;
#[cfg(test)]
mod mixes;
#[cfg(test)]
mod model;
#[cfg(test)]
mod verified;
#[cfg(test)]
mod world;
