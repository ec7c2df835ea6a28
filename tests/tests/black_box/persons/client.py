"""A client of the control socket that an agent starts, and that would be taken for a person's.

It asks for what `plan.json` lists, and writes what each request was answered with to `codes.json`.
"""

import json
import os
import signal
import socket
import sys
import time

notes, way = sys.argv[1:]
with open(f"{notes}/plan.json", encoding="utf-8") as file:
    plan = json.load(file)


def send(connection, message):
    body = json.dumps(message).encode()
    connection.sendall(len(body).to_bytes(4, "big") + body)


def receive(connection, count):
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            sys.exit("the daemon hung up")
        data += part
    return data


def answer(connection):
    return json.loads(receive(connection, int.from_bytes(receive(connection, 4), "big")))


def connect():
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(plan["socket"])
    return connection


def connect_and_exit():
    """A connection whose process has ended: another one has it now."""
    connection = socket.socket(socket.AF_UNIX)
    child = os.fork()
    if child == 0:
        connection.connect(plan["socket"])
        os._exit(0)
    os.waitpid(child, 0)
    return connection


def ask(connection):
    send(connection, plan["greeting"])
    answer(connection)
    codes = {}
    for number, request in enumerate(plan["requests"], 10):
        send(connection, {**request, "id": number})
        while (message := answer(connection)).get("id") != number:
            pass
        code = message["error"]["data"]["code"] if "error" in message else "ok"
        codes[request["method"]] = code
    with open(f"{notes}/codes.json.new", "w", encoding="utf-8") as file:
        json.dump(codes, file)
    os.rename(f"{notes}/codes.json.new", f"{notes}/codes.json")


if way == "plain":
    ask(connect())
elif way == "exited":
    ask(connect_and_exit())
elif way == "paused":
    # The daemon looks only once the process has ended.
    os.kill(plan["daemon"], signal.SIGSTOP)
    try:
        connection = connect_and_exit()
    finally:
        os.kill(plan["daemon"], signal.SIGCONT)
    ask(connection)
elif way == "orphan":
    # A session of its own, and no parent that the agent started.
    if os.fork() == 0:
        os.setsid()
        parent = os.getpid()
        if os.fork() == 0:
            while os.getppid() == parent:
                time.sleep(0.01)
            ask(connect())
        os._exit(0)
    os.wait()
    # What a command leaves behind is ended with it.
    deadline = time.monotonic() + 30
    while not os.path.getsize(f"{notes}/codes.json") and time.monotonic() < deadline:
        time.sleep(0.01)
