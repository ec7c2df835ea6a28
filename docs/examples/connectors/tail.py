"""A connector for goondan: each line that is added to a file becomes an event.

    kind: Connection
    spec:
      connectorRef: Connector/tail
      config: {file: /var/log/orders.log}

Lines of JSON come on stdin and go out on stdout; see docs/connectors/program.md.
"""

import json
import queue
import sys
import threading
import time


def say(message):
    print(json.dumps(message), flush=True)


def listen(heard):
    """Hands over what goondan says; None once it says no more."""
    for line in sys.stdin:
        heard.put(json.loads(line))
    heard.put(None)


def hand_in(event, heard):
    """Sends an event until it is taken, or can never be. Whether to go on."""
    while True:
        say(event)
        answer = heard.get()
        if answer is None or answer["type"] == "shutdown":
            return False
        if answer["type"] == "accepted":
            return True
        print(f"{event['id']} was refused: {answer['message']}", file=sys.stderr)
        if not answer["retry"]:
            return True
        time.sleep(1)


def main():
    heard = queue.Queue()
    threading.Thread(target=listen, args=(heard,), daemon=True).start()
    start = heard.get()
    path = start["config"]["file"]
    with open(path, encoding="utf-8") as file:
        say({"type": "status", "ready": True, "detail": f"following {path}"})
        offset = 0
        while True:
            line = file.readline()
            if line.endswith("\n"):
                # The place in the file is the id: whoever reads it again hands in nothing twice.
                event = {
                    "type": "event",
                    "id": f"{path}:{offset}",
                    "name": "line",
                    "input": line.rstrip("\n"),
                    "properties": {"offset": offset},
                }
                if line.strip() and not hand_in(event, heard):
                    return
                offset = file.tell()
                continue
            file.seek(offset)
            try:
                if heard.get(timeout=0.2) in (None, {"type": "shutdown"}):
                    return
            except queue.Empty:
                pass


main()
