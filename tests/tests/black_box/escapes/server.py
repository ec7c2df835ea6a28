"""An MCP server over stdio with one tool, `try`, which runs a script and says what that says.

Usage: server.py SCRIPT
"""

import json, subprocess, sys


def result_of(method, parameters):
    if method == "initialize":
        return {
            "protocolVersion": parameters["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "prisoner", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": [{"name": "try", "description": "Tries the ways out.", "inputSchema": {"type": "object"}}]}
    if method == "tools/call":
        words = [sys.executable, sys.argv[1]]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=sys.stderr, text=True)
        return {"content": [{"type": "text", "text": done.stdout}], "isError": done.returncode != 0}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "method" in message and "id" in message:
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": result_of(message["method"], message.get("params"))}
        print(json.dumps(answer), flush=True)
