"""An issue tracker that speaks the Model Context Protocol over its stdin and stdout.

It stands for the real one of a team. It reads issues.json and keeps comments for as long as it runs.
"""
import json
import sys

ISSUES = json.load(open("issues.json", encoding="utf-8"))
COMMENTS = {}

ID = {"type": "string", "pattern": "^[0-9]+$", "description": "The issue's number"}
TOOLS = [
    {
        "name": "get",
        "description": "Shows an issue with its comments.",
        "inputSchema": {"type": "object", "required": ["id"], "properties": {"id": ID}},
    },
    {
        "name": "comment",
        "description": "Adds a comment to an issue.",
        "inputSchema": {
            "type": "object",
            "required": ["id", "text"],
            "properties": {"id": ID, "text": {"type": "string", "minLength": 1}},
        },
    },
]


def get(id):
    issue = ISSUES[id]
    lines = [f"#{id} {issue['title']}", f"in {issue['place']}", issue["text"]]
    return "\n".join(lines + COMMENTS.get(id, []))


def comment(id, text):
    ISSUES[id]
    COMMENTS.setdefault(id, []).append(text)
    return f"#{id} has {len(COMMENTS[id])} comment(s)"


def call(name, arguments):
    try:
        said, is_error = {"get": get, "comment": comment}[name](**arguments), False
    except KeyError as error:
        said, is_error = f"there is no {error}", True
    return {"content": [{"type": "text", "text": said}], "isError": is_error}


def result_of(method, params):
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "issues", "version": "1.0"},
        }
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return call(params["name"], params.get("arguments", {}))
    return {}


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        result = result_of(request["method"], request.get("params", {}))
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
