"""A server of the Model Context Protocol for tests: over stdio, or over HTTP with the argument `http`."""
import json
import os
import sys

TOOLS = [
    {
        "name": "echo",
        "description": "Says it again.",
        "inputSchema": {
            "type": "object",
            "required": ["text"],
            "properties": {"text": {"type": "string"}},
        },
    },
    {"name": "secret/read", "description": "Tells its token.", "inputSchema": {"type": "object"}},
    {"name": "fail", "description": "Fails.", "inputSchema": {"type": "object"}},
    {"name": "die", "description": "Ends the server.", "inputSchema": {"type": "object"}},
    {"name": "learn", "description": "Adds a tool.", "inputSchema": {"type": "object"}},
    {"name": "hang", "description": "Never answers.", "inputSchema": {"type": "object"}},
    {"name": "picture", "description": "Gives a picture.", "inputSchema": {"type": "object"}},
]


# Calls that are never answered, by their ids.
HANGING = {}


def text(value, **more):
    return {"content": [{"type": "text", "text": value}], **more}


def call(name, arguments, notify):
    if name == "echo":
        return text("echo: " + arguments["text"])
    if name == "secret/read":
        return text("the token is " + os.environ.get("SERVER_TOKEN", "none"))
    if name == "fail":
        return text("it cannot be done", isError=True)
    if name == "die":
        os._exit(7)
    if name == "learn":
        TOOLS.append({"name": "learned", "description": "New.", "inputSchema": {"type": "object"}})
        notify({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        return text("learned")
    if name == "learned":
        return text("it is there")
    if name == "picture":
        return {"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]}
    raise KeyError(name)


def answer(request, notify):
    if request["method"] == "notifications/cancelled":
        print("given up: " + HANGING.pop(request["params"]["requestId"]), file=sys.stderr, flush=True)
    if "id" not in request:
        return None
    method, params = request["method"], request.get("params", {})
    if method == "initialize":
        result = {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "double", "version": "1.2"},
        }
    elif method == "tools/list":
        result = {"tools": TOOLS}
    elif method == "tools/call" and params["name"] == "hang":
        HANGING[request["id"]] = "hang"
        print("it hangs", file=sys.stderr, flush=True)
        return None
    elif method == "tools/call":
        try:
            result = call(params["name"], params.get("arguments", {}), notify)
        except KeyError as error:
            error = {"code": -32602, "message": f"no tool {error}"}
            return {"jsonrpc": "2.0", "id": request["id"], "error": error}
    elif method == "ping":
        result = {}
    else:
        error = {"code": -32601, "message": f"no method {method}"}
        return {"jsonrpc": "2.0", "id": request["id"], "error": error}
    return {"jsonrpc": "2.0", "id": request["id"], "result": result}


def over_stdio():
    def send(message):
        print(json.dumps(message), flush=True)

    print("the double is here", file=sys.stderr, flush=True)
    for line in sys.stdin:
        said = answer(json.loads(line), send)
        if said is not None:
            send(said)


def over_http(token):
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def reply(self, status, body=b""):
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            self.reply(405)

        def do_DELETE(self):
            self.reply(405)

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Authorization") != "Bearer " + token:
                return self.reply(401)
            if self.headers.get("X-Team") != "blue":
                return self.reply(400)
            said = answer(json.loads(body), lambda message: None)
            if said is None:
                return self.reply(202)
            return self.reply(200, json.dumps(said).encode())

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1:2] == ["http"]:
        over_http(sys.argv[2])
    else:
        over_stdio()
