"""What runs outside of every sandbox, and what a confined program must not reach.

Usage: victim.py LOOT FILE DIRECTORY LISTED WRITTEN. Answers whoever reaches one of its sockets with the loot, or hands over the
open file; says as one line of JSON where it is to be found, and ends when its standard input does.
"""

import ctypes, json, os, socket, sys, threading

loot, file, directory, listed, written = sys.argv[1:]
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


def drains(address):
    server = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    server.bind(address)
    threading.Thread(target=drain, args=(server,), daemon=True).start()
    return address


def by_number():
    """What any process of the user finds by a number or a name. A child takes it away when this one is gone."""
    IPC_CREAT, IPC_RMID, PRIVATE = 0o1000, 0, 0
    shm, msg, sem = (
        libc.shmget(PRIVATE, ctypes.c_size_t(4096), IPC_CREAT | 0o600),
        libc.msgget(PRIVATE, IPC_CREAT | 0o600),
        libc.semget(PRIVATE, 1, IPC_CREAT | 0o600),
    )
    libc.shmat.restype = ctypes.c_ssize_t
    ctypes.memmove(libc.shmat(shm, None, 0), loot.encode(), len(loot))
    mq = "/goondan-escapes-%d" % os.getpid()
    queues = libc if hasattr(libc, "mq_open") else ctypes.CDLL("librt.so.1")
    queues.mq_open(mq.encode(), os.O_CREAT | os.O_RDONLY, 0o600, None)
    ended, alive = os.pipe()
    if os.fork() == 0:
        os.close(alive)
        for descriptor in (0, 1, 2):
            os.close(descriptor)
        os.setsid()
        os.read(ended, 1)
        libc.shmctl(shm, IPC_RMID, None)
        libc.msgctl(msg, IPC_RMID, None)
        libc.semctl(sem, 0, IPC_RMID)
        queues.mq_unlink(mq.encode())
        os._exit(0)
    os.close(ended)
    os.set_inheritable(alive, False)
    return {"shm": shm, "msg": msg, "sem": sem, "mq": mq}


# Before there are threads.
numbers = by_number()
told = {
    **numbers,
    "pid": os.getpid(),
    "address": ctypes.addressof(kept),
    "descriptor": opened,
    "tcp": serving(socket.AF_INET, ("127.0.0.1", 0))[1],
    "tcp6": serving(socket.AF_INET6, ("::1", 0))[1],
    "udp": datagrams(),
    "listed": serving(socket.AF_UNIX, os.path.join(listed, "service.sock")),
    "written": serving(socket.AF_UNIX, os.path.join(written, "service.sock")),
    "datagrams": drains(os.path.join(directory, "datagrams.sock")),
    "unix": serving(socket.AF_UNIX, os.path.join(directory, "docker.sock")),
    "abstract": serving(socket.AF_UNIX, "\0goondan-escapes-%d" % os.getpid()).decode(),
}
print(json.dumps(told), flush=True)
sys.stdin.read()
