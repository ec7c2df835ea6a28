"""Stands in for a chat server: prints what the bot writes. Needs nothing but Python."""

import json
from http.server import BaseHTTPRequestHandler, HTTPServer


class Chat(BaseHTTPRequestHandler):
    def do_POST(self):
        length = int(self.headers.get("content-length", 0))
        message = json.loads(self.rfile.read(length))
        print(f"to chat {message['chat_id']}: {message['text']}", flush=True)
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(b'{"ok": true}')

    def log_message(self, *args):
        pass


HTTPServer(("127.0.0.1", 8090), Chat).serve_forever()
