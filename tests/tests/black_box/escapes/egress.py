"""Tries to get past a list of hosts, in each way beside one like it that is allowed.

Usage: egress.py PLAN [free]. The plan says where hosts are; each line that is printed is a case with what came of it:
null if the act worked, or why it did not. Listed are 127.0.0.1 and localhost at the port `mirror`, and localhost at
the port `private`. A program that is `free` has no proxy, and goes where it would have asked the proxy to lead it.
"""

import json, socket, ssl, struct, sys

with open(sys.argv[1]) as file:
    at = json.load(file)
IS_FREE = sys.argv[2:] == ["free"]
LOOT, MIRROR, OTHER, PRIVATE = (at[name] for name in ("loot", "mirror", "other", "private"))
CASES = []


def case(name, forbidden, allowed, free=True):
    """`free`: whether it leads out without a sandbox. What is asked of the proxy alone does not, nor what is not there."""
    CASES.append((name, forbidden, allowed, free))


def loot(said):
    text = said.decode(errors="replace") if isinstance(said, bytes) else said
    assert LOOT in text, f"no loot in {text[:200]!r}"


def proxy():
    return socket.create_connection(("127.0.0.1", 3128), timeout=20)


def all_of(connection):
    said = b""
    while chunk := connection.recv(4096):
        said += chunk
    return said


def answer(connection, request):
    connection.sendall(request)
    return all_of(connection)


def straight(place):
    """Where a client would go without a proxy."""
    host, _, port = place.rpartition("@")[2].rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout=20)


def get(place, path="/", host=None):
    host = place if host is None else host
    target = path if IS_FREE else f"http://{place}{path}"
    request = f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    return answer(straight(place) if IS_FREE else proxy(), request.encode())


def followed(path):
    head = get(f"127.0.0.1:{MIRROR}", path).decode()
    assert " 302 " in head, head
    location = next(line for line in head.splitlines() if line.lower().startswith("location:"))
    return get(location.split("//", 1)[1].rstrip("/"))


def direct(port, host="127.0.0.1"):
    with socket.create_connection((host, port), timeout=5) as connection:
        return answer(connection, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")


def tunnel(place):
    if IS_FREE:
        return straight(place)
    connection = proxy()
    connection.sendall(f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n".encode())
    head = b""
    while b"\r\n\r\n" not in head:
        chunk = connection.recv(1)
        assert chunk, "the proxy closed"
        head += chunk
    assert b" 200 " in head.splitlines()[0] + b" ", head
    return connection


def fetched(connection):
    return answer(connection, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")


def hello(name):
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname=name)
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def socks(kind, address, port, command=1):
    if IS_FREE and command == 1:
        families = {1: socket.AF_INET, 4: socket.AF_INET6}
        host = address[1:].decode() if kind == 3 else socket.inet_ntop(families[kind], address)
        return socket.create_connection((host, port), timeout=20)
    connection = proxy()
    connection.sendall(b"\x05\x01\x00")
    assert connection.recv(2) == b"\x05\x00"
    connection.sendall(bytes([5, command, 0, kind]) + address + struct.pack(">H", port))
    reply = connection.recv(10)
    assert reply[1] == 0, f"SOCKS says {reply[1]}"
    return connection


def by_name(name, port, command=1):
    return socks(3, bytes([len(name)]) + name.encode(), port, command)


def by_address(address, port):
    return socks(1, socket.inet_aton(address), port)


def datagram(port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(2)
        asking.sendto(b"who is it?", ("127.0.0.1", port))
        return asking.recv(1024)


def of_files(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(path)


def named_other(said):
    assert f"{LOOT} for other".encode() in said, said


def mirror():
    loot(get(f"127.0.0.1:{MIRROR}"))


case("asks for another host", lambda: loot(get(f"127.0.0.2:{MIRROR}")), mirror)
case("asks for another port", lambda: loot(get(f"127.0.0.1:{OTHER}")), mirror)
case("asks for the address of a listed name", lambda: loot(get(f"127.0.0.1:{PRIVATE}")), mirror)
case("asks for a listed name that leads to a private address", lambda: loot(get(f"localhost:{PRIVATE}")), lambda: loot(get(f"localhost:{MIRROR}")))
case("asks for the metadata of a cloud", lambda: loot(get("169.254.169.254:80")), mirror, free=False)
case("asks for a mapped address", lambda: loot(get(f"[::ffff:127.0.0.1]:{MIRROR}")), mirror)
case("asks for a decimal address", lambda: loot(get(f"2130706433:{MIRROR}")), mirror)
case("asks for a hexadecimal address", lambda: loot(get(f"0x7f000001:{MIRROR}")), mirror)
case("asks for a shortened address", lambda: loot(get(f"127.1:{MIRROR}")), mirror)
case("hides the host behind a user", lambda: loot(get(f"127.0.0.1:{MIRROR}@127.0.0.1:{OTHER}")), mirror)
case("follows a redirect", lambda: loot(followed("/away")), lambda: loot(followed("/here")))
case("names another host in the request", lambda: named_other(get(f"127.0.0.1:{MIRROR}", host="other")), mirror)
case("opens a tunnel to another port", lambda: loot(fetched(tunnel(f"127.0.0.1:{OTHER}"))), lambda: loot(fetched(tunnel(f"127.0.0.1:{MIRROR}"))))
case("names another host in TLS", lambda: loot(answer(tunnel(f"localhost:{MIRROR}"), hello("other.example.org"))), lambda: loot(answer(tunnel(f"localhost:{MIRROR}"), hello("localhost"))))
case("names no host in TLS", lambda: loot(answer(tunnel(f"localhost:{MIRROR}"), hello(None))), lambda: loot(answer(tunnel(f"127.0.0.1:{MIRROR}"), hello(None))))
case("goes by SOCKS to another port", lambda: loot(fetched(by_name("localhost", OTHER))), lambda: loot(fetched(by_name("localhost", MIRROR))))
case("goes by SOCKS to another address", lambda: loot(fetched(by_address("127.0.0.2", MIRROR))), lambda: loot(fetched(by_address("127.0.0.1", MIRROR))))
case("goes by SOCKS to a mapped address", lambda: loot(fetched(socks(4, socket.inet_pton(socket.AF_INET6, "::ffff:127.0.0.1"), MIRROR))), lambda: loot(fetched(by_address("127.0.0.1", MIRROR))))
case("has the proxy listen for others", lambda: by_name("localhost", MIRROR, command=2), lambda: by_name("localhost", MIRROR), free=False)
case("connects without the proxy", lambda: loot(direct(MIRROR)), mirror)
case("connects over IPv6 without the proxy", lambda: loot(direct(MIRROR, "::1")), mirror, free=at["ipv6"])
case("asks a name server by datagrams", lambda: loot(datagram(at["udp"])), mirror)
case("hands itself in at the egress", lambda: of_files(at["egress"]), mirror)


def tried(act):
    try:
        act()
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:300]


for name, forbidden, allowed, free in CASES:
    if IS_FREE and not free:
        # Nothing to be led to, or nobody to lead: a machine that has either would be waited for.
        forbidden = lambda: loot("nothing without a sandbox, either")
    case = {"name": name, "forbidden": tried(forbidden), "allowed": tried(allowed), "free": free}
    print(json.dumps(case))
