//! Resource limits of a supervised program.
//!
//! The supervisor applies the limits to itself, and every process it starts inherits them. They
//! therefore hold from the program's first instruction, without code between `fork` and `exec`.

use std::ffi::OsString;

use goondan_protocol::process_limits::ProcessLimits;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Encoding of no limit.
const NONE: &str = "-";

/// Number of arguments that encode the limits.
const WORDS: usize = 2;

/// Encodes the limits as arguments of the binary: bytes of memory, then open files.
pub(in super::super) fn in_words(limits: &ProcessLimits) -> [OsString; WORDS] {
    [limits.memory_bytes, limits.open_files]
        .map(|limit| limit.map_or_else(|| NONE.into(), |limit| limit.to_string().into()))
}

/// Parses the limits at the start of `words` and returns the rest; `None` if they are invalid.
pub(super) fn out_of_words(words: &[OsString]) -> Option<(ProcessLimits, &[OsString])> {
    let (limits, rest) = words.split_first_chunk::<WORDS>()?;
    let mut read = limits.iter().map(|word| match word.to_str()? {
        NONE => Some(None),
        number => number.parse().ok().map(Some),
    });
    let limits = ProcessLimits {
        memory_bytes: read.next()??,
        open_files: read.next()??,
        processes: None,
    };
    Some((limits, rest))
}

/// Limits this process and every process it starts from now on. A limit that is already lower
/// stays.
pub(super) fn apply(limits: &ProcessLimits) -> std::io::Result<()> {
    // The address space is not a useful limit, because JavaScript engines reserve gigabytes but use
    // little.
    lower(Resource::RLIMIT_DATA, limits.memory_bytes)?;
    lower(Resource::RLIMIT_NOFILE, limits.open_files)
}

fn lower(resource: Resource, limit: Option<u64>) -> std::io::Result<()> {
    let Some(limit) = limit else {
        return Ok(());
    };
    let (_, most) = getrlimit(resource)?;
    let limit = limit.min(most);
    setrlimit(resource, limit, limit)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_they_are_written() {
        let program = OsString::from("python3");
        for limits in [
            ProcessLimits::default(),
            ProcessLimits {
                memory_bytes: Some(1 << 30),
                open_files: Some(64),
                processes: None,
            },
        ] {
            let mut words = in_words(&limits).to_vec();
            words.push(program.clone());
            let (read, rest) = out_of_words(&words).unwrap();
            assert_eq!((read, rest), (limits, std::slice::from_ref(&program)));
        }
        assert_eq!(out_of_words(&["python3".into()]), None);
        assert_eq!(out_of_words(&["much".into(), "-".into()]), None);
    }
}
