"""Does ordinary work with ordinary programs, piece by piece, each in a directory of its own.

Usage: work.py PLAN NAME    does one, and says `done`, or `left out` and which program is missing
       work.py PLAN --list  says which there are, and at which levels they can be done, as JSON
The plan says where a toolchain of Rust and the programs of PostgreSQL are, and sockets of the machine.
"""

import contextlib, http.server, json, multiprocessing, os, pathlib, shutil, signal, socket, sqlite3, subprocess, sys
import tempfile, threading, time, urllib.request, zipfile

with open(sys.argv[1]) as file:
    at = json.load(file)
os.environ["PATH"] = os.pathsep.join([*at["programs"], os.environ["PATH"]])
CASES = []
TEXT = "text of a page 4417"


def case(name, act, needs="", landlock=True, confined=True):
    """`landlock`: whether that level lets it be done. `confined`: whether any level but `off` does."""
    CASES.append((name, act, needs.split(), landlock and confined, confined))


# What acts are made of. Each raises unless it came off.


def run(command, **options):
    done = subprocess.run(command, shell=True, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=240, **options)
    assert done.returncode == 0, f"{command}: {done.returncode}: {(done.stdout + done.stderr)[-1500:]}"
    return done.stdout


def write(path, text):
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def says(command, expected):
    said = run(command)
    assert expected in said, f"{command}: {said[-500:]}"


def repository():
    run("git init -q -b main origin && git -C origin config user.name t && git -C origin config user.email t@t")
    write("origin/src/a.txt", "one\n")
    run("git -C origin add . && git -C origin commit -qm one")


def clone():
    repository()
    run("git clone -q origin copy && git -C copy config user.name t && git -C copy config user.email t@t")


def git_works():
    clone()
    write("copy/b.txt", "two\n")
    write("origin/c.txt", "three\n")
    run("git -C copy add . && git -C copy commit -qm two")
    run("git -C origin add . && git -C origin commit -qm three")
    run("git -C copy pull -q --rebase && git -C copy gc -q")
    says("git -C copy log --format=%s", "two\nthree\none")


def git_worktree():
    clone()
    run("git -C copy worktree add -q -b other ../tree")
    write("tree/d.txt", "four\n")
    run("git -C tree add . && git -C tree commit -qm four && git -C copy merge -q other")
    assert os.path.exists("copy/d.txt")


def git_mv():
    clone()
    run("mkdir copy/lib && git -C copy mv src/a.txt lib/a.txt && git -C copy commit -qam moved")
    says("git -C copy log --follow --format=%s -- lib/a.txt", "moved\none")


def renames():
    for name in ("a", "b"):
        os.mkdir(name)
    write("a/file", "x")
    os.rename("a/file", "b/file")
    os.rename("b", "a/inner")
    os.replace("a/inner/file", "file")
    assert not os.path.exists("a/inner/file")


def links():
    os.mkdir("a")
    write("file", "x")
    os.link("file", "a/file")
    assert os.stat("file").st_nlink == 2


def package(name):
    write(f"{name}/package.json", json.dumps({"name": name, "version": "1.0.0", "bin": {name: "index.js"}}))
    write(f"{name}/index.js", f"#!/usr/bin/env node\nconsole.log('hello from {name}');\n")
    os.chmod(f"{name}/index.js", 0o755)


def user_of_package():
    package("greeter")
    scripts = {"greet": "greeter"}
    write("app/package.json", json.dumps({"name": "app", "version": "1.0.0", "dependencies": {"greeter": "file:../greeter"}, "scripts": scripts}))
    os.chdir("app")


def npm():
    user_of_package()
    run("npm install --offline --no-audit --no-fund --install-links")
    says("npm run greet", "hello from greeter")


def pnpm():
    user_of_package()
    run("pnpm install --offline --ignore-scripts")
    says("pnpm run greet", "hello from greeter")


def wheel():
    os.mkdir("wheels")
    with zipfile.ZipFile("wheels/greeter-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("greeter.py", "def greet():\n    return 'hello from greeter'\n")
        info = "greeter-1.0.dist-info"
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: greeter\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: work\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


def imports_greeter():
    says("PYTHONPATH=site python3 -c 'import greeter; print(greeter.greet())'", "hello from greeter")


def pip():
    wheel()
    run("python3 -m pip install -q --no-index --find-links wheels --target site greeter")
    imports_greeter()


def uv():
    wheel()
    run("uv pip install -q --offline --no-index --find-links wheels --target site greeter")
    imports_greeter()


def venv():
    run("python3 -m venv --without-pip env")
    says("env/bin/python -c 'import sys; print(sys.prefix != sys.base_prefix)'", "True")


def pytest():
    write("test_sum.py", "def test_sum(tmp_path):\n    (tmp_path / 'a').write_text('1')\n    assert 1 + 1 == 2\n")
    says("pytest -q", "1 passed")


def cargo():
    write("Cargo.toml", '[package]\nname = "sum"\nversion = "0.1.0"\nedition = "2021"\n')
    write("src/lib.rs", "#[test]\nfn sum() {\n    assert_eq!(1 + 1, 2);\n}\n")
    write("src/main.rs", 'fn main() {\n    println!("hello from cargo");\n}\n')
    says("cargo test --offline", "1 passed")
    says("cargo run -q --offline", "hello from cargo")


def go():
    write("go.mod", "module example.org/sum\n\ngo 1.19\n")
    write("main.go", 'package main\n\nfunc main() { println("hello") }\n')
    write("main_test.go", 'package main\n\nimport "testing"\n\nfunc TestSum(t *testing.T) {\n\tif 1+1 != 2 {\n\t\tt.Fail()\n\t}\n}\n')
    run("go build -o sum . && ./sum && go test ./...")


def make():
    write("lib.c", "int sum(int a, int b) { return a + b; }\n")
    write("main.c", '#include <stdio.h>\nint sum(int, int);\nint main(void) { printf("%d\\n", sum(20, 22)); return 0; }\n')
    write("Makefile", "all: main\nlib.a: lib.o\n\tar rcs $@ $^\nmain: main.o lib.a\n\t$(CC) -o $@ $^\ninstall: main\n\tinstall -D -m 755 main prefix/bin/main\n")
    run("make -j4 && make install")
    says("prefix/bin/main", "42")


def node():
    write("work.mjs", """
import { execFileSync } from "node:child_process";
import { Worker } from "node:worker_threads";
const told = execFileSync("node", ["-p", "20 + 22"]).toString().trim();
const worker = new Worker("require('worker_threads').parentPort.postMessage('from a thread')", { eval: true });
worker.on("message", (text) => console.log(told, text));
""")
    says("node work.mjs", "42 from a thread")


def bun():
    write("work.ts", "const told: number = 20 + 22;\nconsole.log(told);\n")
    says("bun build work.ts --outdir out && bun out/work.js", "42")


def terminal():
    says("python3 -c \"import pty; pty.spawn(['sh', '-c', 'test -t 0 && echo on a terminal'])\"", "on a terminal")


def double(number):
    return 2 * number


def pool():
    with multiprocessing.get_context("fork").Pool(2) as workers:
        assert workers.map(double, range(4)) == [0, 2, 4, 6]


# Sockets.


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(f"<title>page</title><p id='text'></p><script>document.querySelector('p').textContent = '{TEXT}'</script>".encode())

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def page():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()


def fetch():
    with page() as url:
        says(f"python3 -c \"import urllib.request; print(urllib.request.urlopen('{url}').read())\"", TEXT)


class Ended(Exception):
    """A server has ended before it served."""


def until(act, seconds=60):
    deadline = time.monotonic() + seconds
    while True:
        try:
            return act()
        except Ended:
            raise
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def check_runs(server, log):
    if server.poll() is not None:
        raise Ended(pathlib.Path(log).read_text()[-1500:])


def dev_server():
    write("server.mjs", """
import { createServer } from "node:http";
import { writeFileSync, renameSync } from "node:fs";
const server = createServer((_, answer) => answer.end("hello from node"));
server.listen(0, "127.0.0.1", () => {
    writeFileSync("port.part", String(server.address().port));
    renameSync("port.part", "port");
});
""")
    server = subprocess.Popen(["node", "server.mjs"], stderr=open("log", "w"))
    try:
        def ask():
            check_runs(server, "log")
            return urllib.request.urlopen(f"http://localhost:{pathlib.Path('port').read_text()}/").read()
        assert until(ask) == b"hello from node"
    finally:
        server.kill()
        server.wait()


def speak(address, kind=socket.SOCK_STREAM):
    with socket.socket(socket.AF_UNIX, kind) as server, socket.socket(socket.AF_UNIX, kind) as client:
        server.bind(address)
        if kind == socket.SOCK_DGRAM:
            client.sendto(b"hello", address)
            return server.recv(10) == b"hello" or None
        server.listen()
        client.connect(address)
        peer, _ = server.accept()
        with peer, open("file", "w+") as file:
            socket.send_fds(client, [b"hello"], [file.fileno()])
            said, (descriptor,), _, _ = socket.recv_fds(peer, 10, 1)
            os.close(descriptor)
            assert said == b"hello"


def socket_here():
    speak("server.sock")
    speak("datagrams.sock", socket.SOCK_DGRAM)
    speak("packets.sock", socket.SOCK_SEQPACKET)


def socket_in_tmp():
    directory = tempfile.mkdtemp()
    try:
        speak(f"{directory}/server.sock")
    finally:
        shutil.rmtree(directory)


def abstract_socket():
    speak(f"\0goondan-ordinary-{os.getpid()}")


def datagram_pair():
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.send(b"hello")
    assert other.recv(10) == b"hello"


def chromium():
    with page() as url:
        flags = "--headless --no-sandbox --disable-gpu --user-data-dir=profile --no-first-run"
        says(f"chromium {flags} --dump-dom {url}", TEXT)
        run(f"chromium {flags} --screenshot=page.png {url}")
    assert os.path.getsize("page.png") > 1000


# Databases.


def sqlite():
    with contextlib.closing(sqlite3.connect("base.db")) as base:
        base.execute("PRAGMA journal_mode=WAL")
        base.execute("CREATE TABLE numbers (number INTEGER)")
        base.commit()
        code = "import sqlite3; base = sqlite3.connect('base.db'); base.execute('INSERT INTO numbers VALUES (42)'); base.commit()"
        run(f'python3 -c "{code}"')
        base.execute("VACUUM")
        assert base.execute("SELECT number FROM numbers").fetchall() == [(42,)]


# PostgreSQL does not run as root. In a sandbox there is no other user: it is told that there is.
NOBODY = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
uid_t getuid(void) { return 65534; }
uid_t geteuid(void) { return 65534; }
static int own(int result, struct stat *found) {
    if (result == 0 && found->st_uid == 0) found->st_uid = 65534;
    return result;
}
int stat(const char *path, struct stat *found) { return own(fstatat(AT_FDCWD, path, found, 0), found); }
int lstat(const char *path, struct stat *found) { return own(fstatat(AT_FDCWD, path, found, AT_SYMLINK_NOFOLLOW), found); }
int fstat(int file, struct stat *found) { return own(fstatat(file, "", found, AT_EMPTY_PATH), found); }
"""


def postgres():
    environment = dict(os.environ)
    if os.getuid() == 0:
        write("nobody.c", NOBODY)
        run("gcc -shared -fPIC -o nobody.so nobody.c")
        environment["LD_PRELOAD"] = os.path.abspath("nobody.so")
    # The path of a socket may have 107 bytes; that of the work directory may have more.
    sockets = tempfile.mkdtemp()
    run("initdb -D data -U worker --no-sync --auth=trust", env=environment)
    try:
        while not postgres_serves(sockets, environment):
            pass
    finally:
        shutil.rmtree(sockets)


def postgres_serves(sockets, environment):
    """Starts PostgreSQL, asks it once, and stops it; false if its port was taken in between."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    log = open("log", "w")
    words = ["postgres", "-D", "data", "-k", sockets, "-c", "listen_addresses=127.0.0.1", "-p", port, "-F"]
    server = subprocess.Popen(words, stdout=log, stderr=log, env=environment)
    try:
        def ask():
            check_runs(server, "log")
            return run(f"psql -h {sockets} -p {port} -U worker -d postgres -Atc 'CREATE TABLE IF NOT EXISTS t (n int); SELECT 20 + 22'", env=environment)
        assert until(ask).endswith("42\n")
        return True
    except Ended as ended:
        if "Address already in use" in str(ended):
            return False
        raise
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()


def connect_to(number):
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(at["sockets"][number])


case("clones, commits and rebases with git", git_works, "git")
case("works in a second worktree of git", git_worktree, "git")
case("moves files between directories with git", git_mv, "git")
case("renames files and directories into others", renames)
case("links a file into another directory", links)
case("installs and runs a package with npm", npm, "npm node")
case("installs and runs a package with pnpm", pnpm, "pnpm node")
case("installs a package with pip", pip, "python3 pip")
case("installs a package with uv", uv, "uv")
case("makes a virtual environment of Python", venv)
case("runs tests with pytest", pytest, "pytest")
case("builds, tests and runs a crate with cargo", cargo, "cargo cc")
case("builds and tests a module with go", go, "go")
case("compiles, links and installs with make", make, "make cc ar")
case("starts programs and threads with node", node, "node")
case("bundles and runs TypeScript with bun", bun, "bun")
case("keeps a database in SQLite", sqlite)
case("runs a program on a terminal of its own", terminal, landlock=False)
case("shares work among processes of Python", pool, landlock=False)
case("serves a page on the loopback and fetches it", fetch, landlock=False)
case("asks a development server of node", dev_server, "node", landlock=False)
case("talks over a socket in the work directory", socket_here, landlock=False)
case("talks over a socket among temporary files", socket_in_tmp, landlock=False)
case("talks over an abstract socket", abstract_socket, landlock=False)
case("talks over a pair of datagram sockets", datagram_pair, landlock=False)
case("looks at a page in headless Chromium", chromium, "chromium", landlock=False)
case("runs PostgreSQL in the work directory", postgres, "initdb gcc", landlock=False)
case("connects to a socket of the machine, as Docker's", lambda: connect_to(0), confined=False)
case("connects to such a socket in a directory that is listed", lambda: connect_to(1), confined=False)


def missing(needs):
    if "pip" in needs:
        has_pip = subprocess.run("python3 -m pip --version", shell=True, capture_output=True).returncode == 0
        needs = [*(need for need in needs if need != "pip"), *([] if has_pip else ["the module pip"])]
    return next((need for need in needs if not shutil.which(need)), None)


def alone(number, act):
    """Does a piece of work in a directory of its own, in which nothing but that was done."""
    directory = os.path.abspath(f"piece-{number}")
    os.mkdir(directory)
    os.chdir(directory)
    # Nothing is to be found by what was done before, nor in the home of the user who runs the tests.
    os.environ.update(HOME=directory, CARGO_HOME=f"{directory}/.cargo", npm_config_update_notifier="false", CI="1")
    os.environ.setdefault("TMPDIR", "/tmp")
    act()


if sys.argv[2] == "--list":
    names = ("name", "landlock", "full")
    print(json.dumps([dict(zip(names, (name, landlock, confined))) for name, _, _, landlock, confined in CASES]))
else:
    for number, (name, act, needs, _, _) in enumerate(CASES):
        if name == sys.argv[2]:
            lacks = missing(needs)
            if not lacks:
                alone(number, act)
            print(f"left out: there is no {lacks}" if lacks else "done")
