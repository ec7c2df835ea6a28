//! The tool supervisor within a sandbox: the real binary, spoken to as the agent speaks to it.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use goondan_confinement::{
    Level, Network, Right, SandboxPath, SandboxPolicy, probe, probe_namespaces,
};
use goondan_tests::wait_for;

use crate::support::{BINARY, TestProject, is_alive, kill, put};

/// Directories of programs and their dependencies.
const SYSTEM: [&str; 6] = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc"];

fn policy(require: Level, site: &TestProject) -> SandboxPolicy {
    let path = |path: &Path| SandboxPath::try_from(path.to_owned()).unwrap();
    let system = SYSTEM
        .map(Path::new)
        .into_iter()
        .filter(|path| path.exists());
    SandboxPolicy {
        require,
        read: system.chain([&*site.project]).map(path).collect(),
        write: vec![path(&site.work)],
        network: Network::None,
    }
}

/// A site with a file in each of its directories, and one outside.
fn site() -> TestProject {
    let site = TestProject::new();
    std::fs::create_dir(site.outside()).unwrap();
    put(site.outside().join("secret"), "secret");
    put(site.project.join("input"), "input");
    put(site.work.join("own"), "own");
    site
}

/// A supervisor with these arguments after its policy, which inherits an open file that it should
/// not have.
fn supervisor(policy: &SandboxPolicy, site: &TestProject, arguments: &[&str]) -> Command {
    let mut supervisor = Command::new("bash");
    supervisor.args(["-c", r#"exec 9<"$OUT/secret"; exec "$@""#, "bash", BINARY]);
    if policy.require != Level::Off {
        let json = serde_json::to_string(policy).unwrap();
        supervisor.args(["--sandbox", &json]);
    }
    supervisor
        .args(arguments)
        .current_dir(&site.work)
        .env("PATH", "/usr/bin:/bin")
        .env("OUT", site.outside())
        .env("VICTIM", std::process::id().to_string())
        .env("GOONDAN_PROJECT_ROOT", &site.project)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    supervisor
}

/// Runs a command to its end with its standard input held open.
fn run(policy: &SandboxPolicy, site: &TestProject, command: &str) -> Output {
    let mut child = supervisor(policy, site, &["--enclose", command])
        .spawn()
        .unwrap();
    let held = child.stdin.take();
    let output = child.wait_with_output().unwrap();
    drop(held);
    output
}

/// True if this machine supports a level; prints a note if not.
fn is_had(level: Level) -> bool {
    let mut held = probe();
    held.extend(probe_namespaces(|| Command::new(BINARY)));
    let missing: Vec<_> = Right::of(level)
        .iter()
        .filter(|right| !held.contains(right))
        .collect();
    if !missing.is_empty() {
        eprintln!("skipped at the level `{level}`: this kernel does not confine {missing:?}");
    }
    missing.is_empty()
}

/// A forbidden act and a similar allowed one, both for `bash -c` in the work directory; `$OUT` is a
/// directory outside, `$VICTIM` a process outside.
struct Case {
    name: &'static str,
    forbidden: &'static str,
    allowed: &'static str,
}

const CASES: &[Case] = &[
    Case {
        name: "reading",
        forbidden: "cat $OUT/secret",
        allowed: "cat own && cat $GOONDAN_PROJECT_ROOT/input",
    },
    Case {
        name: "writing",
        forbidden: "echo x >> $OUT/secret",
        allowed: "echo x >> own && echo x > new",
    },
    Case {
        name: "writing into the project",
        forbidden: "echo x > $GOONDAN_PROJECT_ROOT/input",
        allowed: "cat $GOONDAN_PROJECT_ROOT/input",
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
        name: "the root of the first process",
        forbidden: "cat /proc/1/root$OUT/secret",
        allowed: "cat ./own",
    },
    Case {
        name: "the root of a process outside",
        forbidden: "cat /proc/$VICTIM/root$OUT/secret",
        allowed: "cat /proc/self/stat",
    },
    Case {
        name: "the environment of a process outside",
        forbidden: "cat /proc/$VICTIM/environ",
        allowed: "cat /proc/self/environ",
    },
    Case {
        name: "a signal",
        forbidden: "kill -0 $VICTIM",
        allowed: "sleep 60 & kill $!",
    },
    Case {
        name: "a device",
        forbidden: "mknod m b 254 0 && head -c1 m",
        allowed: "echo x > /dev/null && head -c1 /dev/urandom",
    },
    Case {
        name: "a setting of the kernel",
        forbidden: "read now < /proc/sys/kernel/core_pattern; echo \"$now\" > /proc/sys/kernel/core_pattern",
        allowed: "cat /proc/meminfo",
    },
    Case {
        name: "an owner",
        forbidden: "touch e && chown 1234 e",
        allowed: "touch f && chmod 600 f",
    },
    Case {
        name: "a mount",
        forbidden: "mount -t tmpfs none .",
        allowed: "mkdir -p m",
    },
    Case {
        name: "a namespace",
        forbidden: "unshare -U true",
        allowed: "true",
    },
    Case {
        name: "another root",
        forbidden: "chroot . true",
        allowed: "cd . && true",
    },
    Case {
        name: "capabilities",
        forbidden: "grep -E 'Cap(Prm|Eff|Bnd|Amb):.*[1-9a-f]' /proc/self/status",
        allowed: "grep -E 'NoNewPrivs:.1' /proc/self/status",
    },
    Case {
        name: "open files that were inherited",
        forbidden: "cat <&9",
        allowed: "cat < own",
    },
    Case {
        name: "after two forks",
        forbidden: "(setsid bash -c 'cat $OUT/secret' &) | grep .",
        allowed: "(setsid bash -c 'echo x' &) | grep x",
    },
];

/// Sockets and system calls without a shell command; each line is an errno, 0 for success.
const CALLS: &str = r"
import ctypes, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
level = sys.argv[1]
def call(name, *args):
    ctypes.set_errno(0)
    return getattr(libc, name)(*args) == -1 and ctypes.get_errno()
def sock(make):
    try: make(); return 0
    except OSError as e: return e.errno
s = socket
EPERM, ENOSYS, ENETUNREACH, ECONNREFUSED = 1, 38, 101, 111
own = {
    'unix': sock(lambda: s.socket(s.AF_UNIX)),
    'datagram pair': sock(lambda: s.socketpair(s.AF_UNIX, s.SOCK_DGRAM)),
    'shared memory': call('shmget', 0, 4096, 0o600),
    'message queue': call('msgget', 0, 0o600),
    'semaphore': call('semget', 0, 1, 0o600),
}
refused = {
    'raw': sock(lambda: s.socket(s.AF_INET, s.SOCK_RAW, 1)),
    'packet': sock(lambda: s.socket(s.AF_PACKET, s.SOCK_RAW)),
    'vsock': sock(lambda: s.socket(s.AF_VSOCK)),
    'ptrace': call('ptrace', 16, os.getppid(), 0, 0),
    'unshare': call('unshare', 0x10000000),
    'setns': call('setns', 0, 0),
    'mount': call('mount', b'none', b'/', b'tmpfs', 0, 0),
    'vm': call('process_vm_readv', os.getppid(), 0, 0, 0, 0, 0),
    'typing': call('ioctl', 0, 0x5412, 0),
    'fanotify': call('fanotify_init', 0, 0),
    'io_uring_setup': call('syscall', 425, 1, 0),
    'bpf': call('syscall', 321, 0, 0, 0),
    'userfaultfd': call('syscall', 323, 0),
    'perf': call('syscall', 298, 0, 0, 0, 0, 0),
    'keyctl': call('syscall', 250, 0, 0),
    'clone a namespace': call('syscall', 56, 0x10000000 | 17, 0, 0, 0, 0),
    'setuid': call('setresuid', 1234, 1234, 1234),
}
allowed = {
    'stream pair': sock(lambda: s.socketpair(s.AF_UNIX, s.SOCK_STREAM)),
    'setuid to itself': call('setresuid', os.getuid(), os.getuid(), os.getuid()),
}
out = sock(lambda: s.create_connection(('192.0.2.1', 80), 5))
assert all(e in (EPERM, 22 if n == 'setuid' else EPERM) for n, e in refused.items()), refused
assert not any(allowed.values()), allowed
# What others could find is its own in namespaces of its own, and refused elsewhere.
assert set(own.values()) == {0 if level == 'full' else EPERM}, own
abstract = sock(lambda: s.socket(s.AF_UNIX).connect('\0goondan-test-of-the-sandbox'))
assert abstract in (EPERM, ECONNREFUSED), abstract
assert out in (EPERM, ENETUNREACH), out
if level == 'full':
    server = s.create_server(('127.0.0.1', 0))
    s.create_connection(server.getsockname()).close()
else:
    assert sock(lambda: s.socket(s.AF_INET)) == EPERM
";

fn levels() -> impl Iterator<Item = Level> {
    [Level::Landlock, Level::Full]
        .into_iter()
        .filter(|level| is_had(*level))
}

fn output_text(output: &Output) -> String {
    format!(
        "{}: {}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[test]
fn sec_6_each_forbidden_act_fails_and_its_counterpart_works() {
    for level in levels() {
        let mut wrong = Vec::new();
        for case in CASES {
            let site = site();
            let policy = policy(level, &site);
            let forbidden = run(&policy, &site, case.forbidden);
            if forbidden.status.success() {
                wrong.push(format!("{}: `{}` succeeded", case.name, case.forbidden));
            }
            let allowed = run(&policy, &site, case.allowed);
            if !allowed.status.success() {
                wrong.push(format!("{}: {}", case.name, output_text(&allowed)));
            }
        }
        assert!(wrong.is_empty(), "{level}: {wrong:#?}");
    }
}

/// Acts that fail for another reason would prove nothing. Acts that need root are not included.
#[test]
fn sec_6_the_forbidden_acts_work_without_a_sandbox() {
    let of_root = [
        "a device",
        "a setting of the kernel",
        "an owner",
        "the root of the first process",
        "a mount",
        "a namespace",
        "another root",
        "capabilities",
    ];
    for case in CASES.iter().filter(|case| !of_root.contains(&case.name)) {
        let site = site();
        let output = run(&SandboxPolicy::off(), &site, case.forbidden);
        assert!(
            output.status.success(),
            "{}: {}",
            case.name,
            output_text(&output)
        );
    }
}

#[test]
fn sec_6_sockets_and_dangerous_system_calls_are_refused() {
    for level in levels() {
        let site = site();
        put(site.work.join("calls.py"), CALLS);
        let output = run(
            &policy(level, &site),
            &site,
            &format!("python3 calls.py {level}"),
        );
        assert!(output.status.success(), "{level}: {}", output_text(&output));
    }
}

#[test]
fn sec_6_the_three_forms_are_confined_alike() {
    let reads = "cat own; cat $OUT/secret";
    for level in levels() {
        let site = site();
        let policy = policy(level, &site);
        let program = ["--enclose-program", "-", "-", "bash", "-c", reads];
        let mut child = supervisor(&policy, &site, &program).spawn().unwrap();
        let held = child.stdin.take();
        let of_program = child.wait_with_output().unwrap();
        drop(held);
        let of_command = run(&policy, &site, reads);
        let of_session = in_session(&policy, &site, reads);
        for output in [of_program, of_command, of_session] {
            assert_eq!(output.stdout, b"own", "{level}: {}", output_text(&output));
        }
    }
}

/// Runs a command in a session, which ends then.
fn in_session(policy: &SandboxPolicy, site: &TestProject, command: &str) -> Output {
    use std::io::{Read as _, Write as _};
    let (mut own, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let child = supervisor(policy, site, &["--enclose-session"])
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)))
        .spawn()
        .unwrap();
    own.write_all(format!("{command}\0").as_bytes()).unwrap();
    // The exit code, and the end of the record.
    own.read_exact(&mut [0; 2]).unwrap();
    drop(own);
    child.wait_with_output().unwrap()
}

#[test]
fn sec_6_without_sandbox_nothing_starts_and_the_reason_is_given() {
    let site = site();
    let mut impossible = policy(Level::Landlock, &site);
    let missing = site.work.join("missing");
    impossible.read.push(missing.try_into().unwrap());
    for (arguments, named) in [
        (serde_json::to_string(&impossible).unwrap(), "missing"),
        (r#"{"require":"some"}"#.to_owned(), "policy"),
        (String::new(), "policy"),
    ] {
        let output = Command::new(BINARY)
            .args(["--sandbox", &arguments, "--enclose", "echo started"])
            .current_dir(&site.work)
            .output()
            .unwrap();
        let text = output_text(&output);
        assert_eq!(output.status.code(), Some(125), "{text}");
        assert!(output.stdout.is_empty(), "{text}");
        assert!(text.contains("goondan: nothing was started: "), "{text}");
        assert!(text.contains(named), "{text}");
    }
}

#[test]
fn sec_6_listed_path_replaced_by_a_link_is_not_followed() {
    for level in levels() {
        let site = site();
        let mut policy = policy(level, &site);
        let input = site.work.join("input");
        std::fs::create_dir(&input).unwrap();
        policy.read.push(input.clone().try_into().unwrap());
        let output = run(&policy, &site, "rmdir input && ln -s $OUT input");
        // At the level `full`, mount points cannot be replaced at all.
        assert_eq!(
            output.status.success(),
            level == Level::Landlock,
            "{}",
            output_text(&output)
        );
        if level == Level::Full {
            std::fs::remove_dir(&input).unwrap();
            std::os::unix::fs::symlink(site.outside(), &input).unwrap();
        }
        let output = run(&policy, &site, "cat input/secret");
        let text = output_text(&output);
        assert_eq!(output.status.code(), Some(125), "{level}: {text}");
        assert!(text.contains("input"), "{level}: {text}");
    }
}

#[test]
fn sec_6_at_the_level_full_nothing_else_is_there() {
    if !is_had(Level::Full) {
        return;
    }
    let site = site();
    let mut policy = policy(Level::Full, &site);
    let input = site.work.join("input");
    std::fs::create_dir(&input).unwrap();
    policy.read.push(input.try_into().unwrap());
    for (forbidden, allowed) in [
        ("echo x > input/new", "ls input && echo x > new"),
        ("ls -d $OUT", "ls -d $PWD"),
        ("ls -d /proc/$VICTIM", "ls -d /proc/self"),
        (
            "ls -d /home /root /var /sys /srv",
            "ls -d /tmp /run /proc /dev",
        ),
        (
            "echo x > /new",
            "echo x > /tmp/new && echo x > /run/new && echo x > /dev/shm/new",
        ),
        ("cat <> /dev/kmsg", "cat < /dev/null"),
        (
            "grep -v -e lo: -e '|' /proc/net/dev",
            "grep lo: /proc/net/dev",
        ),
        ("mount -o remount,rw /usr", "ls /usr"),
    ] {
        let output = run(&policy, &site, forbidden);
        assert!(
            !output.status.success(),
            "{forbidden}: {}",
            output_text(&output)
        );
        let output = run(&policy, &site, allowed);
        assert!(
            output.status.success(),
            "{allowed}: {}",
            output_text(&output)
        );
    }
}

/// Within a sandbox, no nested sandbox with namespaces can be created; this simulates a kernel
/// without them.
#[test]
fn sec_6_without_namespaces_the_level_full_starts_nothing() {
    if !is_had(Level::Landlock) {
        return;
    }
    let site = site();
    let mut outer = policy(Level::Landlock, &site);
    let programs = Path::new(BINARY).parent().unwrap();
    outer.read.push(programs.to_owned().try_into().unwrap());
    let inner = serde_json::to_string(&policy(Level::Full, &site)).unwrap();
    let command = format!("{BINARY} --sandbox '{inner}' --enclose 'echo started'");
    let output = run(&outer, &site, &command);
    let text = output_text(&output);
    assert_eq!(output.status.code(), Some(125), "{text}");
    assert!(output.stdout.is_empty(), "{text}");
    assert!(text.contains("the kernel grants no namespaces"), "{text}");
    assert!(text.contains("`require: landlock`"), "{text}");
}

/// Starts a process that leaves its group and its parents, and prints its number outside of the
/// sandbox.
const STRAY: &str =
    r"(setsid bash -c 'echo $$ > pid; exec sleep 4242' &) ; until [ -s pid ]; do :; done";

#[test]
fn sec_6_a_stray_ends_with_its_call() {
    for level in levels() {
        let site = site();
        let output = run(&policy(level, &site), &site, STRAY);
        assert!(output.status.success(), "{level}: {}", output_text(&output));
        assert_eq!(in_directory(&site), Vec::<i32>::new(), "{level}");
    }
}

/// Process to end from outside while a command and its stray process run.
#[derive(Debug, Clone, Copy)]
enum KilledProcess {
    /// The agent: its end of the pipe is closed.
    Agent,
    /// The process it has started.
    Supervisor,
    First,
}

#[test]
fn sec_6_no_process_remains_after_a_kill_of_any_participant() {
    for level in levels() {
        let ended: &[KilledProcess] = match level {
            Level::Full => &[
                KilledProcess::Agent,
                KilledProcess::Supervisor,
                KilledProcess::First,
            ],
            Level::Landlock | Level::Seatbelt | Level::Off => &[KilledProcess::Agent],
        };
        for ended in ended {
            let site = site();
            let before = mounts();
            let command = format!("{STRAY}; sleep 4242");
            let mut child = supervisor(&policy(level, &site), &site, &["--enclose", &command])
                .spawn()
                .unwrap();
            let held = child.stdin.take();
            site.pid_in("pid");
            assert!(in_directory(&site).len() >= 3, "{level}: {ended:?}");
            let supervisor = i32::try_from(child.id()).unwrap();
            match ended {
                KilledProcess::Agent => drop(held),
                KilledProcess::Supervisor => kill(supervisor),
                KilledProcess::First => kill(child_of(supervisor)),
            }
            child.wait().unwrap();
            wait_for("everything is gone", || {
                in_directory(&site).is_empty().then_some(())
            });
            assert_eq!(mounts(), before, "{level}: {ended:?}");
            let entries = std::fs::read_dir(&site.work).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            assert_eq!(names, ["own", "pid"], "{level}: {ended:?}");
        }
    }
}

fn child_of(pid: i32) -> i32 {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    children.unwrap().trim().parse().unwrap()
}

fn mounts() -> String {
    std::fs::read_to_string("/proc/self/mountinfo").unwrap()
}

/// Processes whose working directory is the site's, with any root.
fn in_directory(site: &TestProject) -> Vec<i32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_there = |pid: &i32| {
        let at = std::fs::read_link(format!("/proc/{pid}/cwd"));
        at.is_ok_and(|at| at.ends_with(site.work.strip_prefix("/").unwrap()))
    };
    numbers
        .filter(is_there)
        .filter(|pid| is_alive(*pid))
        .collect()
}
