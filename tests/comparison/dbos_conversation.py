"""The work as a workflow of DBOS: one step asks the model, one step writes the history to a table.

The workflow's id is that of the input, so that a repeated input is the same workflow.
"""

import json
import os
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import sqlalchemy
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
# Requests and workflows have a thread each, and a recovery starts many: with a connection each, they exceed those that
# PostgreSQL accepts. A step waits for a connection without a limit, because otherwise its workflow fails.
database = sqlalchemy.create_engine(
    DATABASE.replace("postgresql:", "postgresql+psycopg:", 1), pool_size=20, max_overflow=0, pool_timeout=None
)


def execute(statement, **values):
    """Executes a statement in a transaction of its own."""
    with database.begin() as connection:
        result = connection.execute(sqlalchemy.text(statement), values)
        return result.all() if result.returns_rows else []


def read(key):
    rows = execute("SELECT text, reply FROM messages WHERE key = :key ORDER BY seq", key=key)
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
    execute(
        "INSERT INTO messages (id, key, text, reply) VALUES (:id, :key, :text, :reply) ON CONFLICT (id) DO NOTHING",
        id=DBOS.workflow_id,
        key=key,
        text=text,
        reply=reply,
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

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(200, read(self.path.rsplit("/", 1)[-1]))

    def do_POST(self):
        received = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with SetWorkflowID(received["id"]):
            handle = DBOS.start_workflow(turn, received["key"], received["text"])
        if received["wait"]:
            self.answer(200, handle.get_result())
        else:
            self.answer(202, received["id"])

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    execute(
        "CREATE TABLE IF NOT EXISTS messages"
        " (seq bigserial, id text PRIMARY KEY, key text NOT NULL, text text NOT NULL, reply text NOT NULL)"
    )
    execute("CREATE INDEX IF NOT EXISTS messages_of ON messages (key, seq)")
    DBOS.launch()
    ThreadingHTTPServer.request_queue_size = 128
    ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
