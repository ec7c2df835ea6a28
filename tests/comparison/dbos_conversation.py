"""The work as a workflow of DBOS: one step asks the model, one step writes the history to a table.

The workflow's id is that of the input, so that a repeated input is the same workflow.
"""

import json
import os
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psycopg
from dbos import DBOS, SetWorkflowID

DATABASE = os.environ["DATABASE"]
MODEL = os.environ["MODEL"]
DBOS(
    config={
        "name": "conversation",
        "system_database_url": DATABASE,
        "application_version": "1",
        "log_level": "WARNING",
        "run_admin_server": False,
    }
)
connections = threading.local()


def database():
    if getattr(connections, "one", None) is None or connections.one.closed:
        connections.one = psycopg.connect(DATABASE, autocommit=True)
    return connections.one


def read(key):
    rows = database().execute("SELECT text, reply FROM messages WHERE key = %s ORDER BY seq", (key,)).fetchall()
    return [
        message
        for text, reply in rows
        for message in ({"role": "user", "content": text}, {"role": "assistant", "content": reply})
    ]


@DBOS.step()
def ask(key, text):
    messages = read(key) + [{"role": "user", "content": text}]
    body = json.dumps({"model": "fake", "messages": messages}).encode()
    request = urllib.request.Request(
        f"{MODEL}/v1/chat/completions", body, {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request) as response:
        return json.load(response)["choices"][0]["message"]["content"]


@DBOS.step()
def record(key, text, reply):
    # A step may run twice, so that the row has the id of its workflow.
    database().execute(
        "INSERT INTO messages (id, key, text, reply) VALUES (%s, %s, %s, %s) ON CONFLICT (id) DO NOTHING",
        (DBOS.workflow_id, key, text, reply),
    )


@DBOS.workflow()
def turn(key, text):
    reply = ask(key, text)
    record(key, text, reply)
    return reply


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Otherwise, an answer waits 40 ms for the acknowledgment of its header.
    disable_nagle_algorithm = True
    wbufsize = -1

    def answers(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answers(200, read(self.path.rsplit("/", 1)[-1]))

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with SetWorkflowID(asked["id"]):
            handle = DBOS.start_workflow(turn, asked["key"], asked["text"])
        if asked["wait"]:
            self.answers(200, handle.get_result())
        else:
            self.answers(202, asked["id"])

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    database().execute(
        "CREATE TABLE IF NOT EXISTS messages"
        " (seq bigserial, id text PRIMARY KEY, key text NOT NULL, text text NOT NULL, reply text NOT NULL)"
    )
    database().execute("CREATE INDEX IF NOT EXISTS messages_of ON messages (key, seq)")
    DBOS.launch()
    ThreadingHTTPServer.request_queue_size = 128
    ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
