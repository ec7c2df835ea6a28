"""Tries to get out of a sandbox, in each way beside one like it that is allowed.

Usage: escape.py PLAN RESULTS. The plan says where things are outside; each line of the results is a case with what
came of it: null if the act worked, or why it did not.
"""

import ctypes, errno, json, mmap, os, platform, shutil, signal, socket, stat, struct, subprocess, sys, threading, time
import urllib.request

with open(sys.argv[1]) as file:
    at = json.load(file)
LOOT, HOME, STATE, PROJECT, OTHER = (at[name] for name in ("loot", "home", "state", "project", "other"))
victim = at["victim"]
libc = ctypes.CDLL(None, use_errno=True)
X86 = platform.machine() == "x86_64"
OWN = f"own-{os.getpid()}"
CASES = []


def case(name, forbidden, allowed, root=False, full=False):
    """`root`: only root can do it, even without a sandbox. `full`: only the level `full` keeps a program from it."""
    CASES.append((name, forbidden, allowed, root, full))


# What acts are made of. Each raises unless it came off.


def loot(text):
    text = text if isinstance(text, str) else text.decode(errors="replace")
    assert LOOT in text, f"no loot in {text[:80]!r}"


def read(path):
    with open(path, "rb") as file:
        return file.read(1 << 20)


def own(text="own"):
    with open(OWN, "w") as file:
        file.write(text)
    return os.path.abspath(OWN)


def below(name):
    """A free name in a directory beneath the current one."""
    os.makedirs("below", exist_ok=True)
    path = f"below/{name}"
    if os.path.lexists(path):
        os.unlink(path)
    return path


def append(path, text="x"):
    with open(path, "a") as file:
        file.write(text)


def can_open(path, flags):
    os.close(os.open(path, flags))


def changed(path):
    """A file that is there is opened to be changed, and is not."""
    can_open(path, os.O_WRONLY | os.O_APPEND)


def listed(directory, name):
    assert name in os.listdir(directory), f"no {name} in {directory}"


def run(*words, **options):
    done = subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL, timeout=20, **options)
    assert done.returncode == 0, (done.stdout + done.stderr).decode(errors="replace")[-200:]
    return done.stdout


def shell(command):
    return run("sh", "-c", command)


def link(target, name):
    if os.path.lexists(name):
        os.unlink(name)
    os.symlink(target, name)
    return name


def syscall(x86, other, *args):
    """A call by its number, since the C library may have none or another; the errors are the kernel's."""
    ctypes.set_errno(0)
    words = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    result = libc.syscall(ctypes.c_long(x86 if X86 else other), *words)
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def reaches(x86, other, *args):
    """The kernel looks at the call, whatever it says of the arguments, which are such that it does nothing."""
    try:
        syscall(x86, other, *args)
    except OSError as error:
        if error.errno in (errno.EPERM, errno.ENOSYS):
            raise


def connect(family, address, kind=socket.SOCK_STREAM):
    peer = socket.socket(family, kind)
    peer.settimeout(5)
    peer.connect(address)
    return peer


def spoken(family, address):
    peer = connect(family, address)
    said = b""
    while part := peer.recv(1000):
        said += part
    return said


def among_themselves(family=socket.AF_UNIX):
    one, other = socket.socketpair(family)
    one.sendall(b"x")
    assert other.recv(1) == b"x"


def checked(result):
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def shared_memory(number):
    libc.shmat.restype = ctypes.c_ssize_t
    SHM_RDONLY = 0o10000
    return ctypes.string_at(checked(libc.shmat(number, None, SHM_RDONLY)), len(LOOT))


def sent_to(number):
    IPC_NOWAIT = 0o4000
    checked(libc.msgsnd(number, struct.pack("l8s", 1, b"x"), ctypes.c_size_t(8), IPC_NOWAIT))


def value_of(number):
    GETVAL = 12
    checked(libc.semctl(number, 0, GETVAL))


def queue_of(name):
    checked(library("librt.so.1").mq_open(name.encode(), os.O_WRONLY | os.O_NONBLOCK))


def library(name):
    try:
        return ctypes.CDLL(name, use_errno=True)
    except OSError:
        return libc


def copied(program):
    shutil.copyfile(program, "copy")
    return "copy"


def made(mode):
    """A new file that has just that mode."""
    name = f"made-{mode:o}"
    if os.path.exists(name):
        os.unlink(name)
    os.umask(0)
    os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
    assert stat.S_IMODE(os.stat(name).st_mode) == mode


def made_by_openat2(mode):
    how = struct.pack("QQQ", os.O_WRONLY | os.O_CREAT, mode, 0)
    os.close(syscall(437, 437, -100, f"newer-{mode:o}".encode(), how, len(how)))


def handed_over(peer):
    _, descriptors, _, _ = socket.recv_fds(peer, 1000, 1)
    return os.pread(descriptors[0], 1000, 0)


def of_a_pair():
    one, other = socket.socketpair()
    descriptor = os.open(own(LOOT), os.O_RDONLY)
    socket.send_fds(one, [b"x"], [descriptor])
    return handed_over(other)


def child(act):
    """A child process that does something and then waits for its end."""
    pid = os.fork()
    if pid == 0:
        if act:
            act()
        signal.pause()
        os._exit(0)
    return pid


def with_child(act):
    pid = child(None)
    try:
        return act(pid)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def gdn(*words):
    return run(os.path.join(PROJECT, "gdn"), "--state-root", STATE, *words)


def flipped(secret):
    """A link that leads to one's own file when it is looked at, and elsewhere when it is opened."""
    good, name = own(), "flipped"
    link(good, name)
    flipper = child(lambda: [link_over(path, name) for _ in range(4000) for path in (secret, good)])
    try:
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            try:
                text = read(name)
            except OSError:
                continue
            if LOOT.encode() in text:
                return
        raise AssertionError("only the own file was read")
    finally:
        os.kill(flipper, signal.SIGKILL)
        os.waitpid(flipper, 0)


def link_over(target, name):
    beside = f"{name}.{os.getpid()}"
    link(target, beside)
    os.replace(beside, name)


def by_descriptor(path):
    descriptor = os.open(path, os.O_PATH)
    return read(f"/proc/self/fd/{descriptor}")


def from_directory(directory, name):
    descriptor = os.open(directory, os.O_PATH)
    return os.read(os.open(name, os.O_RDONLY, dir_fd=descriptor), 1000)


def by_handle(path):
    handle = ctypes.create_string_buffer(8 + 128)
    struct.pack_into("I", handle, 0, 128)
    mount = ctypes.c_int()
    syscall(303, 264, -100, path.encode(), handle, ctypes.byref(mount), 0)
    where = os.open(os.path.dirname(path), os.O_RDONLY)
    return os.read(syscall(304, 265, where, handle, os.O_RDONLY), 1000)


def a_disk():
    device = os.makedev(254, 0)
    os.mknod("disk", 0o600 | stat.S_IFBLK, device)
    can_open("disk", os.O_RDONLY)


def memory_of(pid, address):
    with open(f"/proc/{pid}/mem", "rb") as memory:
        memory.seek(address)
        return memory.read(len(LOOT))


def peeked(pid, address):
    buffer = ctypes.create_string_buffer(len(LOOT))
    here = struct.pack("PN", ctypes.addressof(buffer), len(LOOT))
    there = struct.pack("PN", address, len(LOOT))
    syscall(310, 270, pid, here, 1, there, 1, 0)
    return buffer.raw


def kept_here():
    buffer = ctypes.create_string_buffer(LOOT.encode())
    with open("/proc/self/mem", "rb") as memory:
        memory.seek(ctypes.addressof(buffer))
        return memory.read(len(LOOT))


def seized(pid):
    PTRACE_SEIZE = 0x4206
    syscall(101, 117, PTRACE_SEIZE, pid, 0, 0)


def stolen(pid, descriptor):
    taken = syscall(438, 438, os.pidfd_open(pid), descriptor, 0)
    return os.pread(taken, 1000, 0)


def signaled(pid):
    signal.pidfd_send_signal(os.pidfd_open(pid), 0)


def slowed(pid):
    os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, pid))


def limited(pid):
    now = (ctypes.c_ulong * 2)()
    syscall(302, 261, pid, 4, None, now)
    syscall(302, 261, pid, 4, now, None)


def joined(pid, namespace):
    syscall(308, 268, os.open(f"/proc/{pid}/ns/{namespace}", os.O_RDONLY), 0)


def asked_by_datagram(port):
    peer = connect(socket.AF_INET, ("127.0.0.1", port), socket.SOCK_DGRAM)
    peer.send(b"x")
    return peer.recv(1000)


def fetched(url):
    return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=5).read()


def named(name, port):
    for family, kind, _, _, address in socket.getaddrinfo(name, port, type=socket.SOCK_STREAM):
        return spoken(family, address)


def unconfined(program):
    words = ["--sandbox", '{"require":"off"}', "--enclose", f"cat {HOME}/.ssh/id_ed25519"]
    with subprocess.Popen([program, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        return started.stdout.read()


def status(field):
    with open("/proc/self/status") as file:
        return next(line.split(":")[1].strip() for line in file if line.startswith(field))


def mounted():
    here = os.path.abspath(".").encode()
    syscall(165, 40, b"none", here, b"tmpfs", 0, None)
    # Without a sandbox it is the machine's: nothing of it stays.
    syscall(166, 39, here, 2)


def privileged():
    assert int(status("CapEff"), 16) != 0, "no capabilities"


def may_gain():
    assert status("NoNewPrivs") == "0", "no new privileges"


def becomes_another():
    os.setresuid(1234, 1234, 1234)


KEY = f"{HOME}/.ssh/id_ed25519"

# Files of the user.
case("reads a file of the user", lambda: loot(read(KEY)), lambda: read(own()))
case("lists the home directory", lambda: listed(HOME, ".ssh"), lambda: os.listdir("."))
case("appends to a file of the user", lambda: changed(f"{HOME}/.profile"), lambda: changed(own()))
case("creates a file beside those of the user", lambda: append(f"{HOME}/.ssh/new"), lambda: append("new"))
case("deletes a file of the user", lambda: os.unlink(f"{HOME}/decoys/deleted"), lambda: os.unlink(own()))
case("empties a file of the user", lambda: os.truncate(f"{HOME}/decoys/emptied", 0), lambda: os.truncate(own(), 0))
case("moves a file of the user in", lambda: os.rename(f"{HOME}/decoys/moved", "moved"), lambda: os.rename(own(), "m"))
case("moves a file out", lambda: os.rename(own(), f"{HOME}/decoys/out"), lambda: os.rename(own(), below("n")))
case("links a file of the user in", lambda: os.link(KEY, f"{OWN}-l"), lambda: os.link(own(), below("h")))
case("follows a link out", lambda: loot(read(link(KEY, "out"))), lambda: read(link(own(), "in")))
case("races a link out", lambda: flipped(KEY), lambda: read(link(own(), "in")))
case("climbs by `..`", lambda: loot(read("../" * 40 + KEY[1:])), lambda: read("../" * 40 + own()[1:]))
case("goes by the root of `/proc/self`", lambda: loot(read(f"/proc/self/root{KEY}")), lambda: read("/proc/self/stat"))
case("goes by the directory of `/proc/self`", lambda: loot(read("/proc/self/cwd/" + "../" * 40 + KEY[1:])), lambda: read("/proc/self/cwd/" + os.path.basename(own())))
case("goes by the root of a process outside", lambda: loot(read(f"/proc/{victim['pid']}/root{KEY}")), lambda: os.stat("/proc/self/root"))
case("opens a path without rights to it", lambda: loot(by_descriptor(KEY)), lambda: by_descriptor(own()))
case("opens from a directory descriptor", lambda: loot(from_directory(HOME, ".ssh/id_ed25519")), lambda: from_directory(".", own()))
case("opens by a file handle", lambda: loot(by_handle(KEY)), lambda: by_descriptor(own()), root=True)
case("runs a program of the user", lambda: run(f"{HOME}/bin/tool"), lambda: run("/bin/sh", "-c", "true"))
case("sees a file of the user", lambda: os.stat(KEY), lambda: os.stat(own()), full=True)
case("changes the mode of a file of the user", lambda: os.chmod(f"{HOME}/decoys/mode", 0o644), lambda: os.chmod(own(), 0o644), full=True)
case("gives a file away", lambda: os.chown(own(), 1234, 1234), lambda: os.chown(own(), os.getuid(), os.getgid()), root=True)
case("reads what others share in memory", lambda: loot(read(at["shared"])), lambda: append(f"{os.environ.get('TMPDIR', '/tmp')}/{OWN}"))
case("changes what others share in memory", lambda: changed(at["shared"]), lambda: changed(own()))
case("adds a user of the machine", lambda: changed("/etc/passwd"), lambda: read("/etc/passwd"), root=True)
case("reads the passwords of the machine", lambda: read("/etc/shadow"), lambda: read("/etc/passwd"), root=True)
case("has all programs load a library (`ld.so.preload`)", lambda: can_open("/etc/ld.so.preload", os.O_WRONLY | os.O_CREAT), lambda: shell(f"LD_PRELOAD= true"), root=True)
case("changes a program of the machine", lambda: changed("/usr/bin/env"), lambda: run("/usr/bin/env", "true"), root=True)

# The project, which others run.
case("changes the configuration", lambda: append(f"{PROJECT}/goondan.yaml", "\n"), lambda: read(f"{PROJECT}/goondan.yaml"))
case("adds a git hook", lambda: append(f"{PROJECT}/.git/hooks/pre-commit"), lambda: os.listdir(f"{PROJECT}/.git/hooks"))
case("changes a module", lambda: append(f"{PROJECT}/tools/escape.mjs", "\n"), lambda: read(f"{PROJECT}/tools/escape.mjs"))
case("adds a file to the project", lambda: append(f"{PROJECT}/new"), lambda: append("new"))
case("deletes a file of the project", lambda: os.unlink(f"{PROJECT}/decoy"), lambda: os.stat(f"{PROJECT}/decoy" if os.path.exists(f"{PROJECT}/decoy") else PROJECT))
case("replaces the project", lambda: os.rename(f"{PROJECT}/empty", f"{PROJECT}/emptied"), lambda: os.rename(own(), "r"))

# The daemon and what it keeps.
case("reads the identity of the secrets", lambda: read(f"{STATE}/system/identity.age"), lambda: read(own()))
case("reads the encrypted secrets", lambda: listed(f"{STATE}/system", "identity.age"), lambda: os.listdir("."))
case("changes the audit log", lambda: changed(f"{STATE}/system/audit.jsonl"), lambda: changed(own()))
case("connects to the control socket", lambda: connect(socket.AF_UNIX, f"{STATE}/run/orchestrator.sock"), among_themselves)
case("asks the daemon with `gdn`", lambda: gdn("status", "--json"), lambda: run(f"{PROJECT}/gdn", "--version"))
case("allows a second project a secret with `gdn`", lambda: gdn("secret", "allow", "hook", "--project", at["second"]), lambda: run(f"{PROJECT}/gdn", "--help"))
case("runs a second project with `gdn`", lambda: gdn("run", at["second"]), lambda: run(f"{PROJECT}/gdn", "--version"))
case("stops the daemon", lambda: os.kill(at["daemon"], 0), lambda: with_child(lambda pid: os.kill(pid, 0)))
case("reads another conversation", lambda: loot(read(f"{OTHER}/messages/inbox.jsonl") + read(f"{OTHER}/messages/base.jsonl")), lambda: read(own()))
case("writes into another conversation", lambda: changed(f"{OTHER}/messages/events.jsonl"), lambda: changed(own()))
case("reads its own conversation's record", lambda: listed(at["conversation"], "manifest.jsonl"), lambda: os.listdir("."))
case("reads another conversation's work", lambda: loot(read(os.path.join(OTHER, "work", "kept"))), lambda: read(own()))
case("reads the environment of the daemon", lambda: read(f"/proc/{at['daemon']}/environ"), lambda: read("/proc/self/environ"), root=True)
case("reads the memory of the daemon", lambda: can_open(f"/proc/{at['daemon']}/mem", os.O_RDONLY), lambda: loot(kept_here()), root=True)
case("starts the agent's program without a sandbox", lambda: loot(unconfined(f"{PROJECT}/agent")), lambda: run(f"{PROJECT}/agent", "--version"))

# Other processes.
case("reads the environment of a process", lambda: loot(read(f"/proc/{victim['pid']}/environ")), lambda: read("/proc/self/environ"))
case("reads the memory of a process", lambda: loot(memory_of(victim["pid"], victim["address"])), lambda: loot(kept_here()))
case("peeks into the memory of a process", lambda: loot(peeked(victim["pid"], victim["address"])), lambda: loot(kept_here()))
case("traces a process", lambda: seized(victim["pid"]), lambda: with_child(lambda pid: os.kill(pid, 0)))
case("takes a descriptor of a process", lambda: loot(stolen(victim["pid"], victim["descriptor"])), lambda: os.dup(0))
case("opens the descriptors of a process", lambda: loot(read(f"/proc/{victim['pid']}/fd/{victim['descriptor']}")), lambda: read(f"/proc/self/fd/{os.open(own(), os.O_RDONLY)}"))
case("signals a process", lambda: os.kill(victim["pid"], 0), lambda: with_child(lambda pid: os.kill(pid, signal.SIGCONT)))
case("signals a process by its descriptor", lambda: signaled(victim["pid"]), lambda: with_child(signaled))
case("limits a process", lambda: limited(victim["pid"]), lambda: limited(0))
case("slows a process down", lambda: slowed(victim["pid"]), lambda: slowed(0))
case("sees a process", lambda: os.listdir(f"/proc/{victim['pid']}"), lambda: os.listdir("/proc/self"), full=True)
case("signals a process after two forks", lambda: shell(f"setsid sh -c 'kill -0 {victim['pid']} && echo x' | grep x"), lambda: shell("setsid sh -c 'kill -0 $$ && echo x' | grep x"))

# Sockets.
case("connects to a service of the machine", lambda: loot(spoken(socket.AF_INET, ("127.0.0.1", victim["tcp"]))), among_themselves)
case("connects over IPv6", lambda: loot(spoken(socket.AF_INET6, ("::1", victim["tcp6"]))), among_themselves)
case("connects to a mapped address", lambda: loot(spoken(socket.AF_INET6, ("::ffff:127.0.0.1", victim["tcp"]))), among_themselves)
case("connects to a decimal address", lambda: loot(named("2130706433", victim["tcp"])), among_themselves)
case("connects to a name", lambda: loot(named("localhost", victim["tcp"])), lambda: read("/etc/hosts"))
case("fetches a page", lambda: loot(fetched(f"http://127.0.0.1:{victim['tcp']}/")), among_themselves)
case("asks a server by datagrams, as for a name", lambda: loot(asked_by_datagram(victim["udp"])), among_themselves)
case("connects to a socket of files, such as Docker's", lambda: loot(spoken(socket.AF_UNIX, victim["unix"])), among_themselves)
case("connects to a socket in a directory that may be read", lambda: loot(spoken(socket.AF_UNIX, victim["listed"])), among_themselves)
case("connects to a socket in a directory that may be written", lambda: loot(spoken(socket.AF_UNIX, victim["written"])), among_themselves)
case("connects to an abstract socket", lambda: loot(spoken(socket.AF_UNIX, victim["abstract"])), among_themselves)
case("is handed an open file", lambda: loot(handed_over(connect(socket.AF_UNIX, victim["unix"]))), lambda: loot(of_a_pair()))
case("reads memory of System V", lambda: loot(shared_memory(victim["shm"])), lambda: mmap.mmap(-1, 4096))
case("sends to a message queue of System V", lambda: sent_to(victim["msg"]), among_themselves)
case("looks at a semaphore of System V", lambda: value_of(victim["sem"]), lambda: threading.Semaphore().acquire())
case("opens a message queue of POSIX", lambda: queue_of(victim["mq"]), among_themselves)
case("opens a raw socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP), among_themselves, root=True)
case("opens a packet socket", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW), among_themselves, root=True)
case("sends from a datagram pair to a socket of files", lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b"x", victim["datagrams"]), among_themselves)
case("opens a socket to the hypervisor", lambda: reaches(41, 198, 40, socket.SOCK_STREAM, 0), among_themselves)

# Privileges, and the kernel.
case("has capabilities", privileged, lambda: status("CapEff"), root=True)
case("may gain privileges", may_gain, lambda: status("NoNewPrivs"))
case("makes a setuid copy of a program", lambda: os.chmod(copied("/bin/true"), 0o4755), lambda: os.chmod(copied("/bin/true"), 0o755))
case("makes a setuid file at once", lambda: made(0o4700), lambda: made(0o700))
case("makes a setuid file by the newer call", lambda: made_by_openat2(0o4700), lambda: os.makedirs("setgid", exist_ok=True) or os.chmod("setgid", 0o2755))
case("makes a setgid file at once", lambda: made(0o2710), lambda: made(0o710))
case("becomes another user", becomes_another, lambda: os.setresuid(-1, -1, -1), root=True)
case("mounts", mounted, lambda: os.makedirs("mount", exist_ok=True), root=True)
case("mounts by the newer calls", lambda: syscall(430, 430, b"tmpfs", 0), lambda: os.makedirs("mount", exist_ok=True), root=True)
case("detaches a tree of mounts", lambda: syscall(428, 428, -100, b"/", 1), lambda: os.listdir("/proc/self"), root=True)
case("changes its root", lambda: os.chroot("."), lambda: os.chdir("."), root=True)
case("makes a user namespace", lambda: syscall(272, 97, 0x10000000), lambda: with_child(lambda pid: None))
case("starts a process in a namespace", lambda: run("unshare", "--user", "true"), lambda: run("true"))
case("joins the network of a process", lambda: joined(victim["pid"], "net"), lambda: os.readlink("/proc/self/ns/net"), root=True)
case("makes a device", a_disk, lambda: read("/dev/null"), root=True)
case("reads the kernel's messages", lambda: can_open("/dev/kmsg", os.O_RDONLY), lambda: can_open("/dev/urandom", os.O_RDONLY), root=True)
case("changes a setting of the kernel", lambda: can_open("/proc/sys/kernel/core_pattern", os.O_WRONLY), lambda: read("/proc/meminfo"), root=True)
case("pulls the emergency switch", lambda: can_open("/proc/sysrq-trigger", os.O_WRONLY), lambda: read("/proc/uptime"), root=True)
case("sets up an `io_uring`", lambda: reaches(425, 425, 1, None), among_themselves)
case("loads a BPF program", lambda: reaches(321, 280, -1, None, 0), lambda: os.getpid(), root=True)
case("handles page faults (`userfaultfd`)", lambda: syscall(323, 282, 1), lambda: os.getpid(), root=True)
case("counts events of the kernel (`perf`)", lambda: reaches(298, 241, None, 0, -1, -1, 0), lambda: os.getpid(), root=True)
case("uses a keyring", lambda: syscall(250, 219, 0, -3, 0), lambda: os.getpid())
case("adds a key", lambda: syscall(248, 217, b"user", b"goondan-escapes", b"x", 1, -3), lambda: os.getpid())
case("watches all files (`fanotify`)", lambda: syscall(300, 262, 0, 0), lambda: os.getpid(), root=True)
case("loads a module of the kernel", lambda: reaches(175, 105, None, 0, b""), lambda: os.getpid(), root=True)
case("renames the machine", lambda: reaches(170, 161, None, -1), lambda: os.uname(), root=True)
case("sets the clock", lambda: reaches(227, 112, 99, None), lambda: time.time(), root=True)


def outcome(act):
    """What came of an act in a process of its own: none if it worked, or why it did not."""
    told, tells = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        why = "\n"
        try:
            act()
        except BaseException as error:
            why = f"{type(error).__name__}: {error}"
        os.write(tells, why.encode()[:1000])
        os._exit(0)
    os.close(tells)
    with open(told, "rb") as said:
        text = said.read().decode(errors="replace")
    _, code = os.waitpid(pid, 0)
    return None if text == "\n" else text or f"ended with {code}"


with open(sys.argv[2] + ".part", "w") as results:
    for name, forbidden, allowed, root, full in CASES:
        case = {"name": name, "root": root, "full": full}
        case["forbidden"] = outcome(forbidden)
        case["allowed"] = outcome(allowed)
        results.write(json.dumps(case) + "\n")
os.rename(sys.argv[2] + ".part", sys.argv[2])
print(len(CASES), "cases")
