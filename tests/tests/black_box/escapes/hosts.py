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


class Server(http.server.ThreadingHTTPServer):
    """Listens at all addresses of the machine, those of IPv6 as well if it has any."""

    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def server_bind(self):
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


for name in ("mirror", "other", "private"):
    ports[name] = begin(Server(("", 0), Handler))
ports["udp"] = begin(socketserver.ThreadingUDPServer(("127.0.0.1", 0), Datagrams))
print(json.dumps({**ports, "ipv6": Server.address_family == socket.AF_INET6}), flush=True)
sys.stdin.read()
