"""Tools of goondan in Python: functions instead of a loop over JSON lines.

    from goondan import Context, tool, run

    @tool
    def today(input, context: Context):
        return f"{context.config['unit']} in {input['city']}"

    run()

The runner of goondan provides this module, so nothing is installed. `gdn config types` writes it for editors and
type checkers.
"""

import asyncio
import inspect
import json
import os
import sys
import threading
from typing import Any, Callable, Dict, List, Optional, TextIO, TypeVar

__all__ = ["Context", "Handler", "ToolError", "export", "run", "tool"]

Handler = Callable[[Any, "Context"], Any]
H = TypeVar("H", bound=Handler)


class ToolError(Exception):
    """An error of a call. The model gets the message, with the code as its prefix."""

    def __init__(self, message: str, code: Optional[str] = None) -> None:
        super().__init__(message)
        self.message: str = message
        self.code: Optional[str] = code


class Context:
    """Origin and settings of a call."""

    def __init__(self, call: Dict[str, Any], send: Callable[[Dict[str, Any]], None]) -> None:
        context: Dict[str, Any] = call.get("context") or {}
        #: `config` of the Tool.
        self.config: Any = call.get("config")
        #: The conversation's work directory.
        self.work_dir: str = context.get("workDir", "")
        #: The Project Root, which is read-only.
        self.project_root: str = context.get("projectRoot", "")
        self.instance_key: str = context.get("instanceKey", "")
        self.agent_name: str = context.get("agentName", "")
        self.tool_call_id: str = context.get("toolCallId", "")
        #: Set when the result is no longer needed.
        self.cancelled: threading.Event = threading.Event()
        self._id: Any = call.get("id")
        self._send: Callable[[Dict[str, Any]], None] = send

    def log(self, message: str, level: str = "info") -> None:
        """Writes a line to goondan's log: `debug`, `info`, `warn` or `error`."""
        self._send({"type": "log", "level": level, "message": str(message), "id": self._id})


_handlers: Dict[str, Handler] = {}


def tool(function: H) -> H:
    """Registers a function, which can be `async`, as the export with the function's name."""
    return export(function.__name__)(function)


def export(name: str) -> Callable[[H], H]:
    """Registers a function, which can be `async`, as the export `name`."""

    def register(function: H) -> H:
        _handlers[name] = function
        return function

    return register


def _answer(handler: Optional[Handler], call: Dict[str, Any], context: Context) -> Dict[str, Any]:
    try:
        if handler is None:
            raise ToolError(f"the module has no function `{call.get('export')}` with @tool")
        output = handler(call.get("input"), context)
        if inspect.isawaitable(output):
            output = asyncio.run(_await(output))
        answer = {"type": "result", "output": output}
        # A value that is not JSON, such as NaN, is an error of this call, not of the loop.
        json.dumps(answer, allow_nan=False)
        return answer
    except ToolError as error:
        answer = {"type": "error", "message": error.message}
        if error.code is not None:
            answer["code"] = error.code
        return answer
    # `sys.exit` in a thread ends only the thread, and its call would have no answer.
    except BaseException as error:
        return {"type": "error", "message": f"{type(error).__name__}: {error}"}


async def _await(output: Any) -> Any:
    return await output


def _take_over_input() -> TextIO:
    """Takes over standard input, because a program that a function starts must not read calls."""
    calls = os.fdopen(os.dup(0), encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return calls


def _take_over_output() -> TextIO:
    """Takes over standard output, which carries only results. Output of functions and their programs becomes log
    lines."""
    sys.stdout.flush()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return answers


def run(input: Optional[TextIO] = None, output: Optional[TextIO] = None) -> None:
    """Answers calls until the input ends. Each call has its own thread. Output of functions becomes log lines."""
    calls = _take_over_input() if input is None else input
    answers = _take_over_output() if output is None else output
    lock = threading.Lock()

    def send(message: Dict[str, Any]) -> None:
        line = json.dumps(message)
        with lock:
            answers.write(line + "\n")
            answers.flush()

    open_calls: Dict[Any, Context] = {}

    def work(call: Dict[str, Any], context: Context) -> None:
        answer = _answer(_handlers.get(call.get("export", "")), call, context)
        open_calls.pop(call.get("id"), None)
        send({**answer, "id": call.get("id")})

    threads: List[threading.Thread] = []
    for line in calls:
        message = json.loads(line)
        kind = message.get("type")
        if kind == "call":
            context = Context(message, send)
            open_calls[message.get("id")] = context
            thread = threading.Thread(target=work, args=(message, context), daemon=True)
            threads = [it for it in threads if it.is_alive()]
            threads.append(thread)
            thread.start()
        elif kind == "cancel":
            cancelled = open_calls.get(message.get("id"))
            if cancelled is not None:
                cancelled.cancelled.set()
    # The host ends when its input does; only input from a test has calls left.
    if input is not None:
        for thread in threads:
            thread.join()
