"""Stands in for the APIs of Telegram and Slack: Ada writes one message to the bot in the Telegram chat 7, and what the
bot posts is printed. Needs nothing but Python.

    python3 chat.py PORT
"""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MESSAGE = {"message_id": 1, "date": 1, "chat": {"id": 7, "type": "private"}, "text": "my name is Ada",
           "from": {"id": 7, "is_bot": False, "first_name": "Ada"}}
UPDATES = [{"update_id": 1, "message": MESSAGE}]


class Chat(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.do_POST()

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        asked = json.loads(body) if body.startswith(b"{") else {}
        method = self.path.rsplit("/", 1)[-1]
        if method == "getMe":
            answer = {"result": {"id": 1, "is_bot": True, "first_name": "Bot", "username": "stand_in_bot"}}
        elif method == "getUpdates":
            waiting = [update for update in UPDATES if update["update_id"] >= asked.get("offset", 0)]
            if not waiting:
                time.sleep(0.2)
            answer = {"result": waiting}
        elif method == "auth.test":
            answer = {"user_id": "U0BOT", "bot_id": "B0BOT", "team_id": "T1", "user": "bot"}
        elif method == "sendMessage":
            print(f"to chat {asked['chat_id']}: {asked['text']}", flush=True)
            answer = {"result": {"message_id": 2, "date": 1, "chat": MESSAGE["chat"], "text": asked["text"]}}
        else:
            if method == "chat.postMessage":
                print(f"to channel {asked['channel']}: {asked['text']}", flush=True)
            answer = {"result": True, "ts": "1700000001.000100", "channel": asked.get("channel", "")}
        answer = json.dumps({"ok": True, **answer}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args):
        pass


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Chat).serve_forever()
