"""Stands in for a shop that takes orders over HTTP, and prints them. It answers the first one for Dune too late, and
loses the first one for Emma. Needs nothing but Python.

    python3 shop.py PORT

    POST /orders         {"title": "Dune"}: orders a book; the header Idempotency-Key is stored with the order
    GET /orders/KEY      the order with this key, or 404
"""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ORDERS = {}
FIRST = {"Dune", "Emma"}


class Shop(BaseHTTPRequestHandler):
    def do_GET(self):
        order = ORDERS.get(self.path.rsplit("/", 1)[-1])
        self.answer(200 if order else 404, order)

    def do_POST(self):
        title = json.loads(self.rfile.read(int(self.headers["content-length"])))["title"]
        is_first = title in FIRST
        FIRST.discard(title)
        if title == "Emma" and is_first:
            print(f"lost: {title}", flush=True)
            time.sleep(600)
            return
        order = {"order": len(ORDERS) + 1, "title": title}
        ORDERS[self.headers["idempotency-key"]] = order
        print(f"order {order['order']}: {title}", flush=True)
        if is_first:
            time.sleep(600)
        self.answer(201, order)

    def answer(self, status, order):
        body = json.dumps(order).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Shop).serve_forever()
