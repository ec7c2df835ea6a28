"""What runs outside of every sandbox, and what a confined program must not reach.

Usage: victim.py LOOT FILE DIRECTORY. Answers whoever reaches one of its sockets with the loot, or hands over the
open file; says as one line of JSON where it is to be found, and ends when its standard input does.
"""

import ctypes, json, os, socket, sys, threading

loot, file, directory = sys.argv[1:]
libc = ctypes.CDLL(None)
PR_SET_PTRACER = 0x59616D61
libc.prctl(PR_SET_PTRACER, ctypes.c_ulong(-1))

kept = ctypes.create_string_buffer(loot.encode())
opened = os.open(file, os.O_RDONLY)


def drain(peer):
    """What is not read would reset the connection."""
    try:
        while peer.recv(1000):
            pass
    except OSError:
        pass


def serving(family, address):
    server = socket.socket(family)
    server.bind(address)
    server.listen()

    def answer():
        while True:
            peer, _ = server.accept()
            if family == socket.AF_UNIX:
                socket.send_fds(peer, [loot.encode()], [opened])
            else:
                peer.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + loot.encode())
                peer.shutdown(socket.SHUT_WR)
                peer.settimeout(1)
                drain(peer)
            peer.close()

    threading.Thread(target=answer, daemon=True).start()
    return server.getsockname()


def datagrams():
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 0))

    def answer():
        while True:
            _, peer = server.recvfrom(1000)
            server.sendto(loot.encode(), peer)

    threading.Thread(target=answer, daemon=True).start()
    return server.getsockname()[1]


told = {
    "pid": os.getpid(),
    "address": ctypes.addressof(kept),
    "descriptor": opened,
    "tcp": serving(socket.AF_INET, ("127.0.0.1", 0))[1],
    "tcp6": serving(socket.AF_INET6, ("::1", 0))[1],
    "udp": datagrams(),
    "unix": serving(socket.AF_UNIX, os.path.join(directory, "docker.sock")),
    "abstract": serving(socket.AF_UNIX, "\0goondan-escapes-%d" % os.getpid()).decode(),
}
print(json.dumps(told), flush=True)
sys.stdin.read()
