#!/usr/bin/env python3
"""A tool in Python: one JSON object a line, calls on standard input, results on standard output."""

import collections
import json
import os
import sys


def top(arguments, context):
    path = os.path.join(context["workDir"], arguments["path"])
    with open(path, encoding="utf-8") as file:
        words = file.read().lower().split()
    counted = collections.Counter(words).most_common(arguments.get("limit", 3))
    return [{"word": word, "count": count} for word, count in counted]


HANDLERS = {"top": top}

for line in sys.stdin:
    call = json.loads(line)
    if call["type"] != "call":
        continue
    try:
        answer = {"type": "result", "output": HANDLERS[call["export"]](call["input"], call["context"])}
    except Exception as error:
        answer = {"type": "error", "message": f"{type(error).__name__}: {error}"}
    print(json.dumps({**answer, "id": call["id"]}), flush=True)
