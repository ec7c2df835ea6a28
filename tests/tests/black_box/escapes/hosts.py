"""Hosts to be reached, on this machine: prints their ports in a line and serves until its input ends.

Usage: hosts.py LOOT
"""

import http.server, json, socket, socketserver, sys, threading

LOOT = sys.argv[1].encode()
ports = {}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle_one_request(self):
        # Whatever looks like TLS is answered at once: that it came so far is what matters.
        if self.connection.recv(1, socket.MSG_PEEK) == b"\x16":
            self.connection.sendall(LOOT)
            self.close_connection = True
            return
        super().handle_one_request()

    def do_GET(self):
        away = {"/away": ports["other"], "/here": ports["mirror"]}.get(self.path)
        body = b"" if away else LOOT + b" for " + self.headers["host"].encode()
        if self.path == "/greeting.py":
            body = b"print('Hello from the mirror.')"
        self.send_response(302 if away else 200)
        if away:
            self.send_header("location", f"http://127.0.0.1:{away}/")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Datagrams(socketserver.BaseRequestHandler):
    def handle(self):
        self.request[1].sendto(LOOT, self.client_address)


def begin(server):
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


for name in ("mirror", "other", "private"):
    ports[name] = begin(http.server.ThreadingHTTPServer(("0.0.0.0", 0), Handler))
ports["udp"] = begin(socketserver.ThreadingUDPServer(("127.0.0.1", 0), Datagrams))
print(json.dumps(ports), flush=True)
sys.stdin.read()
