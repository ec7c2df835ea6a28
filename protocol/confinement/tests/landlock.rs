//! The level `landlock` on the running kernel: denied operations and allowed counterparts.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "tests report failures by panicking")]
#![expect(clippy::print_stderr, reason = "skipped tests print a message")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use goondan_confinement::{
    Level, Network, Right, SandboxPath, SandboxPolicy, enforce, plan, probe,
};

/// A forbidden operation and a similar allowed one, both for `sh -c` in the work directory; `$OUT`
/// is a directory next to it, `$VICTIM` a process outside.
struct Case {
    name: &'static str,
    forbidden: &'static str,
    allowed: &'static str,
}

const CASES: &[Case] = &[
    Case {
        name: "reading",
        forbidden: "cat $OUT/secret",
        allowed: "cat own",
    },
    Case {
        name: "a symbolic link",
        forbidden: "ln -sf $OUT/secret a; cat a",
        allowed: "ln -sf own b; cat b",
    },
    Case {
        name: "a hard link",
        forbidden: "ln $OUT/secret c",
        allowed: "ln own d",
    },
    Case {
        name: "the root of a process",
        forbidden: "cat /proc/self/root$OUT/secret",
        allowed: "cat ./own",
    },
    Case {
        name: "the environment of another",
        forbidden: "cat /proc/$VICTIM/environ",
        allowed: "env",
    },
    Case {
        name: "the root of another",
        forbidden: "cat /proc/$VICTIM/root$OUT/secret",
        allowed: "cat /proc/$VICTIM/stat",
    },
    Case {
        name: "the memory of another",
        forbidden: "head -c 0 /proc/$VICTIM/mem",
        allowed: "head -c 0 /proc/self/mem",
    },
    Case {
        name: "the open files of another",
        forbidden: "readlink /proc/$VICTIM/fd/1",
        allowed: "readlink /proc/self/fd/1",
    },
    Case {
        name: "a setting of the kernel",
        forbidden: "read now < /proc/sys/kernel/core_pattern; echo \"$now\" > /proc/sys/kernel/core_pattern",
        allowed: "read now < /proc/sys/kernel/core_pattern; echo \"$now\" > /dev/null",
    },
    Case {
        name: "writing",
        forbidden: "echo x > $OUT/new",
        allowed: "echo x > new",
    },
    Case {
        name: "appending",
        forbidden: "echo x >> $OUT/secret",
        allowed: "echo x >> own",
    },
    Case {
        name: "removing",
        forbidden: "rm -f $OUT/secret",
        allowed: "touch e; rm -f e",
    },
    Case {
        name: "moving out",
        forbidden: "touch f; mv f $OUT/f",
        allowed: "touch g; mv g h",
    },
    Case {
        name: "writing into a system directory",
        forbidden: "touch /usr/goondan",
        allowed: "ls /usr",
    },
    Case {
        name: "a signal",
        forbidden: "kill -0 $VICTIM",
        allowed: "kill -0 $$",
    },
    Case {
        name: "after two forks",
        forbidden: "(setsid sh -c 'cat $OUT/secret')",
        allowed: "(setsid sh -c 'cat own')",
    },
    Case {
        name: "a user namespace",
        forbidden: "unshare -U true",
        allowed: "true",
    },
    Case {
        name: "a mount",
        forbidden: "mount -t tmpfs none .",
        allowed: "mkdir -p m",
    },
    Case {
        name: "another root",
        forbidden: "chroot . true",
        allowed: "cd . && true",
    },
];

struct Dirs {
    _dir: tempfile::TempDir,
    work: PathBuf,
    out: PathBuf,
}

fn dirs() -> Dirs {
    let dir = tempfile::tempdir().unwrap();
    let (work, out) = (dir.path().join("work"), dir.path().join("out"));
    for (at, name) in [(&work, "own"), (&out, "secret")] {
        fs::create_dir(at).unwrap();
        fs::File::create_new(at.join(name)).unwrap();
    }
    Dirs {
        _dir: dir,
        work,
        out,
    }
}

fn paths(names: &[&Path]) -> Vec<SandboxPath> {
    let there = names.iter().filter(|path| path.exists());
    there
        .map(|path| SandboxPath::try_from(path.to_path_buf()).unwrap())
        .collect()
}

fn policy(work: &Path) -> SandboxPolicy {
    let read = ["/usr", "/bin", "/lib", "/lib64", "/etc"].map(Path::new);
    SandboxPolicy {
        require: Level::Landlock,
        read: paths(&read),
        write: paths(&[work]),
        network: Network::None,
    }
}

/// True if the script succeeds, confined or unconfined.
fn succeeds(dirs: &Dirs, script: &str, is_confined: bool) -> bool {
    let command = || {
        if is_confined {
            let plan = plan(policy(&dirs.work), &probe()).unwrap();
            let report = enforce(&plan).unwrap();
            assert_eq!(report.rights.len(), 4);
        }
        let mut command = Command::new("sh");
        command
            .args(["-c", script])
            .current_dir(&dirs.work)
            .env("OUT", &dirs.out);
        command.env("VICTIM", std::process::id().to_string());
        command.output().unwrap().status.success()
    };
    thread::scope(|scope| scope.spawn(command).join().unwrap())
}

/// True if this kernel supports the level; prints a message if not.
fn is_supported() -> bool {
    let facts = probe();
    let is_supported = facts.len() == 4;
    if !is_supported {
        eprintln!(
            "skipped {} cases: this kernel holds only {facts:?}",
            CASES.len()
        );
    }
    is_supported
}

#[test]
fn sec_3_each_forbidden_act_fails_and_its_counterpart_works() {
    if !is_supported() {
        return;
    }
    let mut wrong = Vec::new();
    for case in CASES {
        if succeeds(&dirs(), case.forbidden, true) {
            wrong.push(format!("{}: `{}` succeeded", case.name, case.forbidden));
        }
        if !succeeds(&dirs(), case.allowed, true) {
            wrong.push(format!("{}: `{}` failed", case.name, case.allowed));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Operations that fail for another reason would prove nothing. Operations reserved for root are
/// excluded.
#[test]
fn sec_3_the_forbidden_acts_work_without_a_sandbox() {
    let of_root = [
        "writing into a system directory",
        "a user namespace",
        "a mount",
        "another root",
    ];
    for case in CASES.iter().filter(|case| !of_root.contains(&case.name)) {
        assert!(
            succeeds(&dirs(), case.forbidden, false),
            "{}: `{}`",
            case.name,
            case.forbidden
        );
    }
}

/// Sockets and system calls that a shell cannot use; each line is an errno, 0 for success.
const CALLS: &str = r"
import ctypes, socket
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *args):
    ctypes.set_errno(0)
    return getattr(libc, name)(*args) == -1 and ctypes.get_errno()
def sock(make):
    try: make(); return 0
    except OSError as e: return e.errno
s = socket
forbidden = [
    sock(lambda: s.socket(s.AF_INET, s.SOCK_STREAM)), sock(lambda: s.socket(s.AF_INET6, s.SOCK_DGRAM)),
    sock(lambda: s.socket(s.AF_UNIX)), sock(lambda: s.socket(s.AF_NETLINK, s.SOCK_RAW)),
    sock(lambda: s.socketpair(s.AF_UNIX, s.SOCK_DGRAM)),
    call('ptrace', 0, 0, 0, 0), call('unshare', 0x10000000), call('setns', 0, 0),
    call('process_vm_readv', 1, 0, 0, 0, 0, 0), call('ioctl', 0, 0x5412, 0), call('fanotify_init', 0, 0),
]
allowed = [sock(lambda: s.socketpair(s.AF_UNIX, s.SOCK_STREAM)), sock(lambda: s.socketpair())]
assert forbidden == [1] * len(forbidden), forbidden
assert allowed == [0] * len(allowed), allowed
";

#[test]
fn sec_6_sockets_and_dangerous_system_calls_are_refused() {
    if !is_supported() {
        return;
    }
    let dirs = dirs();
    let result = thread::scope(|scope| {
        let run = || {
            enforce(&plan(policy(&dirs.work), &probe()).unwrap()).unwrap();
            Command::new("python3")
                .args(["-c", CALLS])
                .current_dir(&dirs.work)
                .output()
                .unwrap()
        };
        scope.spawn(run).join().unwrap()
    });
    assert!(
        result.status.success(),
        "{}",
        String::from_utf8_lossy(&result.stderr)
    );
}

#[test]
fn sec_3_a_path_that_is_not_there_is_an_error() {
    if !is_supported() {
        return;
    }
    let missing = SandboxPath::try_from(PathBuf::from("/nonexistent/path")).unwrap();
    let policy = SandboxPolicy {
        require: Level::Landlock,
        read: vec![missing],
        write: Vec::new(),
        network: Network::None,
    };
    let plan = plan(
        policy,
        &[
            Right::Files,
            Right::Signals,
            Right::AbstractSockets,
            Right::SystemCalls,
        ]
        .into(),
    );
    let fault = thread::spawn(move || enforce(&plan.unwrap()).unwrap_err())
        .join()
        .unwrap();
    assert!(fault.to_string().contains("/nonexistent/path"), "{fault}");
}
