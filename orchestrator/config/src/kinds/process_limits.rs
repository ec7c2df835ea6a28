//! `limits`: resource limits of the processes of an Agent, a Model, a Connection or a Tool.

use goondan_protocol::process_limits::ProcessLimits;

use super::Context;
use crate::fields::Fields;
use crate::limits::{
    MAX_LIMIT_MEMORY_MIB, MAX_LIMIT_OPEN_FILES, MAX_LIMIT_PROCESSES, MIN_LIMIT_MEMORY_MIB,
    MIN_LIMIT_OPEN_FILES, MIN_LIMIT_PROCESSES,
};
use crate::shape::{Field, FieldType, Shape};

pub(super) const BYTES_PER_MIB: u64 = 1 << 20;

const MEMORY: Field = Field::optional(
    "memoryMiB",
    FieldType::Number(MIN_LIMIT_MEMORY_MIB, MAX_LIMIT_MEMORY_MIB),
    "Memory in MiB.",
);

const OPEN_FILES: Field = Field::optional(
    "openFiles",
    FieldType::Number(MIN_LIMIT_OPEN_FILES, MAX_LIMIT_OPEN_FILES),
    "Open files, sockets and pipes of each process.",
);

/// Limits of a process and its descendants.
pub(crate) static LIMITS: Shape = Shape::of(
    "ProcessLimits",
    "Limits of the process, including all processes it starts.",
    &[
        MEMORY,
        OPEN_FILES,
        Field::optional(
            "processes",
            FieldType::Number(MIN_LIMIT_PROCESSES, MAX_LIMIT_PROCESSES),
            "Total number of processes and threads. Enforced only where goondan can use control groups.",
        ),
    ],
);

/// Limits of each process of a tool module host.
pub(crate) static HOST_LIMITS: Shape = Shape::of(
    "HostLimits",
    "Limits of each process of the module's host.",
    &[MEMORY, OPEN_FILES],
);

/// Reads the field `limits`. Memory defaults to a limit of `memory_mib` (`SEC-8`).
pub(crate) fn read(
    fields: &mut Fields<'_>,
    memory_mib: u64,
    cx: &mut Context<'_>,
) -> ProcessLimits {
    let default = of_memory(memory_mib);
    let Some(mut limits) = fields.nested("limits", &mut cx.report) else {
        return default;
    };
    let processes = limits.number("processes", &mut cx.report);
    let read = read_of_each(&mut limits, cx);
    limits.close();
    ProcessLimits {
        memory_bytes: read.memory_bytes.or(default.memory_bytes),
        processes,
        ..read
    }
}

/// Default limits of a process.
pub(crate) fn of_memory(memory_mib: u64) -> ProcessLimits {
    ProcessLimits {
        memory_bytes: Some(memory_mib.saturating_mul(BYTES_PER_MIB)),
        ..ProcessLimits::default()
    }
}

/// Reads the field `limits` of a module.
pub(crate) fn read_of_host(fields: &mut Fields<'_>, cx: &mut Context<'_>) -> ProcessLimits {
    let Some(mut limits) = fields.nested("limits", &mut cx.report) else {
        return ProcessLimits::default();
    };
    let read = read_of_each(&mut limits, cx);
    limits.close();
    read
}

fn read_of_each(limits: &mut Fields<'_>, cx: &mut Context<'_>) -> ProcessLimits {
    let memory = limits.number("memoryMiB", &mut cx.report);
    ProcessLimits {
        memory_bytes: memory.map(|mib| mib.saturating_mul(BYTES_PER_MIB)),
        open_files: limits.number("openFiles", &mut cx.report),
        processes: None,
    }
}
