//! Tests of the store as a whole: against an independent model on a simulated disk that stops, fails
//! and is damaged, and against its documentation on a real one.

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
