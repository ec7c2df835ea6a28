//! The logs of a task. Each has a size limit and is read in parts.

use std::path::Path;

use goondan_cli_agents::blocks::Block;
use goondan_durable::disk::{Disk, read_full};
use goondan_protocol::control::{ControlError, ErrorCode, TaskLog, TaskLogPart};
use goondan_protocol::task::OutputStream;
use goondan_protocol::time::Timestamp;
use goondan_tasks::display::{LogLevel, LogLine};
use goondan_tasks::work_area::{HISTORY, Log, WorkArea, WorkAreaError, json_line};

use super::stream;
use crate::limits::{TASK_LOG_BYTES_MAX, TASK_LOG_PART_BYTES};

/// Known sizes of a work area's logs.
#[derive(Debug, Default)]
pub(super) struct Sizes {
    agent: Option<u64>,
    stdout: Option<u64>,
    stderr: Option<u64>,
    protocols: Option<u64>,
    pub(super) stream: Option<stream::Size>,
}

impl Sizes {
    fn of(&mut self, disk: &dyn Disk, area: &WorkArea, log: Log) -> &mut u64 {
        let known = match log {
            Log::Agent => &mut self.agent,
            Log::Stdout => &mut self.stdout,
            Log::Stderr => &mut self.stderr,
            // The stream has separate files.
            Log::Protocols | Log::Stream => &mut self.protocols,
        };
        known.get_or_insert_with(|| {
            let stat = disk.stat(&area.log_path(log));
            // If this fails, the write reports the error.
            stat.ok().flatten().map_or(0, |stat| stat.len)
        })
    }
}

pub(super) fn of_stream(stream: OutputStream) -> Log {
    match stream {
        OutputStream::Stdout => Log::Stdout,
        OutputStream::Stderr => Log::Stderr,
    }
}

/// Appends to a log up to its limit. The last line reports that the limit was reached.
pub(super) fn append(
    disk: &dyn Disk,
    area: &WorkArea,
    sizes: &mut Sizes,
    log: Log,
    bytes: &[u8],
) -> Result<(), WorkAreaError> {
    let size = sizes.of(disk, area, log);
    if *size > TASK_LOG_BYTES_MAX {
        return Ok(());
    }
    let added = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    if size.saturating_add(added) <= TASK_LOG_BYTES_MAX {
        *size += added;
        return area.log(disk, log, bytes);
    }
    *size = TASK_LOG_BYTES_MAX + 1;
    let mib = TASK_LOG_BYTES_MAX >> 20;
    let end = format!("\n[the log ends here: it has reached its limit of {mib} MiB]\n");
    area.log(disk, log, end.as_bytes())
}

/// Appends a line to `agent.log` up to its limit. The last line, in the same form, reports that the
/// limit was reached.
pub(super) fn append_line(
    disk: &dyn Disk,
    area: &WorkArea,
    sizes: &mut Sizes,
    mut line: LogLine,
) -> Result<(), WorkAreaError> {
    let size = sizes.of(disk, area, Log::Agent);
    if *size > TASK_LOG_BYTES_MAX {
        return Ok(());
    }
    let bytes = json_line(&line)?;
    let added = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    if size.saturating_add(added) <= TASK_LOG_BYTES_MAX {
        *size += added;
        return area.log(disk, Log::Agent, &bytes);
    }
    *size = TASK_LOG_BYTES_MAX + 1;
    let mib = TASK_LOG_BYTES_MAX >> 20;
    line.level = LogLevel::Warn;
    line.message = format!("The log ends here: it has reached its limit of {mib} MiB");
    area.log(disk, Log::Agent, &json_line(&line)?)
}

/// Appends a protocol block up to the limit.
pub(super) fn append_block(
    disk: &dyn Disk,
    area: &WorkArea,
    sizes: &mut Sizes,
    block: &Block,
    at: Timestamp,
) -> Result<(), WorkAreaError> {
    let size = sizes.of(disk, area, Log::Protocols);
    if *size > TASK_LOG_BYTES_MAX {
        return Ok(());
    }
    area.log_block(disk, block, at)?;
    // Its size is read again before the next append.
    sizes.protocols = None;
    Ok(())
}

/// Reads a part of a log.
pub(super) fn read(
    disk: &dyn Disk,
    work_area: &Path,
    log: TaskLog,
    offset: i64,
) -> Result<TaskLogPart, ControlError> {
    let name = match log {
        TaskLog::Agent => Log::Agent.path(),
        TaskLog::Stdout => Log::Stdout.path(),
        TaskLog::Stderr => Log::Stderr.path(),
        TaskLog::Protocols => Log::Protocols.path(),
        TaskLog::History => HISTORY,
    };
    let path = work_area.join(name);
    read_part(disk, &path, offset).map_err(|error| {
        let text = format!("failed to read `{}`: {error}", path.display());
        ControlError::new(ErrorCode::Storage, text)
    })
}

fn read_part(disk: &dyn Disk, path: &Path, offset: i64) -> std::io::Result<TaskLogPart> {
    let Some(stat) = disk.stat(path)? else {
        return Ok(TaskLogPart {
            text: String::new(),
            next: 0,
            is_end: true,
            is_over: false,
        });
    };
    let magnitude = offset.unsigned_abs();
    let start = if offset < 0 {
        stat.len.saturating_sub(magnitude)
    } else {
        magnitude.min(stat.len)
    };
    let mut file = disk.open_read(path)?;
    let mut bytes = vec![0; TASK_LOG_PART_BYTES];
    let read = read_full(file.as_mut(), &mut bytes, start)?;
    bytes.truncate(read);
    // A character split at the end of the part belongs to the next part.
    if read == TASK_LOG_PART_BYTES
        && let Err(error) = std::str::from_utf8(&bytes)
        && error.error_len().is_none()
    {
        bytes.truncate(error.valid_up_to().max(1));
    }
    let next = start.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    Ok(TaskLogPart {
        text: String::from_utf8_lossy(&bytes).into_owned(),
        next,
        is_end: next >= stat.len,
        is_over: false,
    })
}

#[cfg(test)]
mod tests {
    use goondan_durable::disk::{SimulatedDisk, append_all};

    use super::*;

    #[test]
    fn task_2_a_log_is_read_in_parts_that_cut_no_character() {
        let disk = SimulatedDisk::new();
        let path = Path::new("/log");
        let text = "ä".repeat(TASK_LOG_PART_BYTES);
        let mut file = disk.create(path).unwrap();
        append_all(file.as_mut(), b"x").unwrap();
        append_all(file.as_mut(), text.as_bytes()).unwrap();
        let mut all = String::new();
        let mut offset = 0;
        loop {
            let part = read_part(&disk, path, offset).unwrap();
            all.push_str(&part.text);
            offset = i64::try_from(part.next).unwrap();
            if part.is_end {
                break;
            }
        }
        assert_eq!(all, format!("x{text}"));
        assert_eq!(read_part(&disk, path, -4).unwrap().text, "ää");
        assert!(read_part(&disk, path, i64::MAX).unwrap().is_end);
        assert!(
            read_part(&disk, path, i64::MIN)
                .unwrap()
                .text
                .starts_with('x')
        );
    }
}
