//! System calls that are denied to confined processes.

use std::collections::BTreeMap;

use nix::libc;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule,
};

use goondan_protocol::sandbox::{Level, Network};

use crate::error::EnforceError;

/// Kind of the filtered process.
#[derive(Debug, Clone)]
pub(crate) enum Caller {
    /// A program in its sandbox.
    Program(Level, Network),
    /// A goondan process and its descendants, without namespaces.
    Process(Network),
    /// A goondan process that starts sandboxes of the level `full`.
    Supervisor,
}

/// Always denied, except to processes that create sandboxes of the level `full`.
const MAKING_A_SANDBOX: &[libc::c_long] = &[
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
];

const DENIED: &[libc::c_long] = &[
    // The file tree, and bypasses of path checks.
    libc::SYS_chroot,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_quotactl,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    // Namespaces, and other processes.
    libc::SYS_setns,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Large attack surfaces of the kernel. Operations through `io_uring` bypass this filter.
    libc::SYS_bpf,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_userfaultfd,
    libc::SYS_perf_event_open,
    libc::SYS_add_key,
    libc::SYS_keyctl,
    libc::SYS_request_key,
    // The machine.
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
];

/// Denied without an IPC namespace: memory, queues and semaphores that all processes of the user
/// find by number or name. Landlock does not restrict them.
const SHARED_BY_KEY: &[libc::c_long] = &[
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmdt,
    libc::SYS_shmctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];

/// The newer `fchmodat`; its number is the same on all architectures.
const FCHMODAT2: libc::c_long = 452;

/// Flags of the namespaces that `clone` could create.
const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// The bits of a socket's type without flags.
const SOCKET_TYPE: u64 = 0xf;

/// Marks calls of the x32 ABI, which seccomp reports as the same architecture.
#[cfg(target_arch = "x86_64")]
const X32: libc::c_long = 0x4000_0000;

/// The programs to apply, in order.
///
/// # Errors
///
/// The architecture is not supported by `seccompiler`.
fn filters(caller: Caller) -> Result<Vec<BpfProgram>, BackendError> {
    let refused = |calls: &[libc::c_long]| calls.iter().map(|call| (*call, Vec::new())).collect();
    let mut denied: SeccompRules = refused(DENIED);
    denied.insert(libc::SYS_ioctl, typing()?);
    // The arguments of `clone3`, such as namespace flags, are in memory, which a filter cannot
    // read. C libraries fall back to `clone`.
    let mut unknown: SeccompRules = refused(&[libc::SYS_clone3]);
    let (level, network) = match caller {
        // This process creates namespaces by flags, and raises their loopback through a socket.
        Caller::Supervisor => return Ok(vec![program(denied, libc::EPERM)?]),
        Caller::Program(level, network) => {
            denied.extend(setuid_files()?);
            // Runtimes fall back to `openat`, as on older kernels.
            unknown.extend::<SeccompRules>(refused(&[libc::SYS_openat2]));
            (level, network)
        }
        Caller::Process(network) => (Level::Landlock, network),
    };
    denied.extend::<SeccompRules>(refused(MAKING_A_SANDBOX));
    denied.insert(libc::SYS_socket, sockets(level, &network)?);
    denied.insert(libc::SYS_clone, namespaces()?);
    if level == Level::Landlock {
        denied.extend(of_other_processes()?);
        denied.extend::<SeccompRules>(refused(SHARED_BY_KEY));
    }
    denied.insert(libc::SYS_socketpair, pairs(level)?);
    Ok(vec![
        program(denied, libc::EPERM)?,
        program(unknown, libc::ENOSYS)?,
    ])
}

/// Restricts the calling thread and its descendants.
pub(crate) fn apply(caller: Caller) -> Result<(), EnforceError> {
    for filter in filters(caller)? {
        seccompiler::apply_filter(&filter)?;
    }
    Ok(())
}

type SeccompRules = BTreeMap<libc::c_long, Vec<SeccompRule>>;

fn program(rules: SeccompRules, errno: libc::c_int) -> Result<BpfProgram, BackendError> {
    let arch = std::env::consts::ARCH.try_into()?;
    let refuse = SeccompAction::Errno(errno.unsigned_abs());
    SeccompFilter::new(with_other_abi(rules), SeccompAction::Allow, refuse, arch)?.try_into()
}

/// Adds the calls of the x32 ABI: each number with the mark, and the calls that have separate
/// numbers.
#[cfg(target_arch = "x86_64")]
fn with_other_abi(rules: SeccompRules) -> SeccompRules {
    let own = (512..=547).map(|call| (call | X32, Vec::new()));
    let marked = rules
        .iter()
        .map(|(call, rules)| (call | X32, rules.clone()));
    let other: SeccompRules = marked.chain(own).collect();
    rules.into_iter().chain(other).collect()
}

#[cfg(not(target_arch = "x86_64"))]
fn with_other_abi(rules: SeccompRules) -> SeccompRules {
    rules
}

fn namespaces() -> Result<Vec<SeccompRule>, BackendError> {
    let makes = |flag: libc::c_int| {
        let flag = u64::from(flag.unsigned_abs());
        rule(
            0,
            SeccompCmpArgLen::Qword,
            SeccompCmpOp::MaskedEq(flag),
            flag,
        )
    };
    NAMESPACES.into_iter().map(makes).collect()
}

/// Limits and priorities of other processes. Landlock does not restrict them, and a PID namespace
/// contains no processes of others.
fn of_other_processes() -> Result<SeccompRules, BackendError> {
    let other = |argument| rule(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, 0);
    Ok(SeccompRules::from([
        (libc::SYS_prlimit64, vec![other(0)?]),
        (libc::SYS_setpriority, vec![other(1)?]),
        (libc::SYS_ioprio_set, vec![other(1)?]),
    ]))
}

/// Input inserted into a terminal as if it was typed.
fn typing() -> Result<Vec<SeccompRule>, BackendError> {
    let is = |request| rule(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, request);
    [libc::TIOCSTI, libc::TIOCLINUX]
        .into_iter()
        .map(is)
        .collect()
}

/// Files with the set-user-id bit. They would let any user of the machine run a copied program as
/// this user after the sandbox has ended. The set-group-id bit is denied for new files only:
/// `chmod` may set it, because it has another meaning for directories and a filter cannot
/// distinguish those from files.
fn setuid_files() -> Result<SeccompRules, BackendError> {
    const USER: u32 = libc::S_ISUID;
    const GROUP: u32 = libc::S_ISGID;
    let has = |argument, bit: u32| {
        let bit = u64::from(bit);
        SeccompCondition::new(
            argument,
            SeccompCmpArgLen::Dword,
            SeccompCmpOp::MaskedEq(bit),
            bit,
        )
    };
    let changed = |mode| Ok(vec![SeccompRule::new(vec![has(mode, USER)?])?]);
    let made = |mode| {
        let rules = [USER, GROUP].map(|bit| SeccompRule::new(vec![has(mode, bit)?]));
        rules.into_iter().collect::<Result<Vec<_>, BackendError>>()
    };
    // The mode is only used when a file is created and may otherwise be any register content.
    const MAKES: [libc::c_int; 2] = [libc::O_CREAT, libc::O_TMPFILE & !libc::O_DIRECTORY];
    let opened = |flags: u8| {
        let mut rules = Vec::new();
        for makes in MAKES {
            for bit in [USER, GROUP] {
                let makes = has(flags, makes.unsigned_abs())?;
                rules.push(SeccompRule::new(vec![makes, has(flags + 1, bit)?])?);
            }
        }
        Ok::<_, BackendError>(rules)
    };
    let mut rules = SeccompRules::from([
        (libc::SYS_fchmod, changed(1)?),
        (libc::SYS_fchmodat, changed(2)?),
        (FCHMODAT2, changed(2)?),
        (libc::SYS_mknodat, made(2)?),
        (libc::SYS_openat, opened(2)?),
    ]);
    // Newer architectures only have these calls.
    #[cfg(target_arch = "x86_64")]
    rules.extend([
        (libc::SYS_chmod, changed(1)?),
        (libc::SYS_mknod, made(1)?),
        (libc::SYS_creat, made(1)?),
        (libc::SYS_open, opened(1)?),
    ]);
    Ok(rules)
}

/// Without network access in a shared network namespace, all sockets are denied; pairs use a
/// separate call. In a private network, or with full network access, TCP, UDP and interface lists
/// are allowed. The level `full` also allows Unix sockets: the root contains none of the machine's,
/// and abstract ones are limited by their scope.
fn sockets(level: Level, network: &Network) -> Result<Vec<SeccompRule>, BackendError> {
    if level != Level::Full && *network != Network::Any {
        return Ok(Vec::new());
    }
    let is = |argument, value: libc::c_int| condition(argument, SeccompCmpOp::Eq, value);
    let is_not = |argument, value: libc::c_int| condition(argument, SeccompCmpOp::Ne, value);
    let is_kind = |kind: libc::c_int| condition(1, SeccompCmpOp::MaskedEq(SOCKET_TYPE), kind);
    let mut other_families = vec![
        is_not(0, libc::AF_INET)?,
        is_not(0, libc::AF_INET6)?,
        is_not(0, libc::AF_NETLINK)?,
    ];
    if level == Level::Full {
        other_families.push(is_not(0, libc::AF_UNIX)?);
    }
    let mut rules = vec![
        SeccompRule::new(other_families)?,
        SeccompRule::new(vec![
            is_not(0, libc::AF_NETLINK)?,
            is_not(2, 0)?,
            is_not(2, libc::IPPROTO_TCP)?,
            is_not(2, libc::IPPROTO_UDP)?,
        ])?,
        SeccompRule::new(vec![
            is(0, libc::AF_NETLINK)?,
            is_not(2, libc::NETLINK_ROUTE)?,
        ])?,
    ];
    for kind in [
        libc::SOCK_RAW,
        libc::SOCK_RDM,
        libc::SOCK_SEQPACKET,
        libc::SOCK_DCCP,
    ] {
        let mut of_that_kind = vec![is_not(0, libc::AF_NETLINK)?, is_kind(kind)?];
        // Chromium's processes communicate over these.
        if kind == libc::SOCK_SEQPACKET {
            of_that_kind.push(is_not(0, libc::AF_UNIX)?);
        }
        rules.push(SeccompRule::new(of_that_kind)?);
    }
    Ok(rules)
}

/// Pairs of other families. Where Unix sockets cannot be created, also pairs of datagram sockets,
/// because one of them can send to any path.
fn pairs(level: Level) -> Result<Vec<SeccompRule>, BackendError> {
    let kind = |kind: libc::c_int| {
        rule(
            1,
            SeccompCmpArgLen::Dword,
            SeccompCmpOp::MaskedEq(SOCKET_TYPE),
            u64::from(kind.unsigned_abs()),
        )
    };
    let unix = u64::from(libc::AF_UNIX.unsigned_abs());
    let mut rules = vec![
        rule(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, unix)?,
        kind(libc::SOCK_RAW)?,
    ];
    if level != Level::Full {
        rules.push(kind(libc::SOCK_DGRAM)?);
    }
    Ok(rules)
}

fn condition(
    argument: u8,
    is: SeccompCmpOp,
    value: libc::c_int,
) -> Result<SeccompCondition, BackendError> {
    let value = u64::from(value.unsigned_abs());
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, is, value)
}

fn rule(
    argument: u8,
    length: SeccompCmpArgLen,
    is: SeccompCmpOp,
    value: u64,
) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![SeccompCondition::new(argument, length, is, value)?])
}
