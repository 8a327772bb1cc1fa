"""A scripted server that speaks the OpenAI chat-completions protocol, and cassettes of the talks with it.

The real clients are recorded against it (``LANGMEM_RECORD=1``) and replayed without it. Its answers follow
from the request alone, by the rules of :func:`reply`; they say nothing about what a model would answer.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

import vcr
from typing_extensions import Self
from vcr.cassette import Cassette
from vcr.request import Request

REPLAY_URL = "http://127.0.0.1:9/v1"  # the discard port: nothing answers there
_CASSETTES = Path(__file__).parent / "cassettes"
_CREATED = 1_700_000_000

Json = dict[str, Any]


# --- the script ---------------------------------------------------------------------------------------------


def reply(request: Json) -> Json:
    """Build the assistant's message. The first rule that fits answers.

    - after a tool's result: ``The tool says: …``;
    - tools given, and one forced or "weather" in the question: a call for each place ("in Paris and Rome");
    - a JSON schema as response format: the smallest object of that schema, with the place or question in it;
    - "What is my name?": the name of an earlier "my name is …"; a question with "summar": how much was said;
    - anything else: ``You said: …``.
    """
    messages: list[Json] = request["messages"]
    question = _question(messages)
    if messages[-1]["role"] == "tool":
        return _text(f"The tool says: {_plain(messages[-1])}")
    tools = [tool["function"] for tool in request.get("tools", ())]
    choice = request.get("tool_choice", "auto")
    if tools and choice != "none" and (choice != "auto" or "weather" in question.lower()):
        name = choice["function"]["name"] if isinstance(choice, dict) else tools[0]["name"]
        return _calls(next(tool for tool in tools if tool["name"] == name), question)
    form = request.get("response_format", {})
    if form.get("type") == "json_schema":
        schema = form["json_schema"]["schema"]
        return _text(json.dumps(_fill(schema, schema, _places(question)[0])))
    if "what is my name" in question.lower():
        names = re.findall(r"my name is (\w+)", " ".join(map(_plain, messages)), re.IGNORECASE)
        return _text(f"Your name is {names[-1]}." if names else "You have not told me your name.")
    if "summar" in question.lower():
        summary = f"A talk of {len(question.split())} words."
        return _text(f"<summary>{summary}</summary>" if "<summary>" in _plain(messages[0]) else summary)
    return _text(f"You said: {question}")


def status(request: Json) -> int:
    """HTTP status of the answer: "fail with 429" in the question asks for that one."""
    wanted = re.search(r"fail with (\d{3})", _question(request["messages"]))
    return int(wanted[1]) if wanted else 200


def _text(content: str) -> Json:
    return {"role": "assistant", "content": content}


def _calls(tool: Json, question: str) -> Json:
    calls = [
        {
            "id": f"call_{number}",
            "type": "function",
            "function": {
                "name": tool["name"],
                "arguments": json.dumps(_fill(tool.get("parameters", {}), tool.get("parameters", {}), place)),
            },
        }
        for number, place in enumerate(_places(question), 1)
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def _question(messages: list[Json]) -> str:
    return next((_plain(message) for message in reversed(messages) if message["role"] == "user"), "")


def _plain(message: Json) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else " ".join(part.get("text", "") for part in content)


def _places(question: str) -> list[str]:
    named = re.search(r"\bin ([A-Z]\w+(?: and [A-Z]\w+)*)", question)
    return named[1].split(" and ") if named else [question]


def _fill(schema: Json, root: Json, text: str) -> Any:
    """Make the smallest value of a JSON schema."""
    if "$ref" in schema:
        return _fill(root["$defs"][schema["$ref"].rsplit("/", 1)[-1]], root, text)
    if "anyOf" in schema:
        return _fill(schema["anyOf"][0], root, text)
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type", "object")
    if kind == "object":
        return {name: _fill(part, root, text) for name, part in schema.get("properties", {}).items()}
    if kind == "array":
        return [_fill(schema.get("items", {}), root, text)]
    values: Json = {
        "string": text,
        "integer": len(text.split()),
        "number": 0.5,
        "boolean": True,
        "null": None,
    }
    return values[kind]


# --- the protocol -------------------------------------------------------------------------------------------


def completion(request: Json, number: int) -> Json:
    message = reply(request)
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    choices = [
        {"index": index, "message": message, "logprobs": None, "finish_reason": finish}
        for index in range(request.get("n") or 1)
    ]
    return _head(request, number, "chat.completion") | {"choices": choices, "usage": _usage(request, message)}


def chunks(request: Json, number: int) -> Iterator[Json]:
    message = reply(request)
    head = _head(request, number, "chat.completion.chunk")

    def chunk(delta: Json, finish: str | None = None) -> Json:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return head | {"choices": [choice], "usage": None}

    yield chunk({"role": "assistant", "content": "" if message["content"] else None})
    for word in re.findall(r"\s*\S+", message["content"] or ""):
        yield chunk({"content": word})
    for index, call in enumerate(message.get("tool_calls", ())):
        arguments = call["function"]["arguments"]
        start = {"name": call["function"]["name"], "arguments": ""}
        yield chunk({"tool_calls": [call | {"index": index, "function": start}]})
        for part in (arguments[: len(arguments) // 2], arguments[len(arguments) // 2 :]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
    yield chunk({}, "tool_calls" if message.get("tool_calls") else "stop")
    if (request.get("stream_options") or {}).get("include_usage"):
        yield head | {"choices": [], "usage": _usage(request, message)}


def _head(request: Json, number: int, kind: str) -> Json:
    return {
        "id": f"chatcmpl-{number}",
        "object": kind,
        "created": _CREATED,
        "model": request["model"],
        "system_fingerprint": "fp_scripted",
    }


def _usage(request: Json, message: Json) -> Json:
    asked = sum(len(_plain(item).split()) for item in request["messages"])
    answered = len((message["content"] or json.dumps(message.get("tool_calls"))).split())
    return {"prompt_tokens": asked, "completion_tokens": answered, "total_tokens": asked + answered}


class OpenAIServer:
    """The script behind a loopback port. ``requests`` are the bodies it was sent, in their order."""

    def __init__(self) -> None:
        self.requests: list[Json] = []
        self._numbers = count(1)
        script = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                kind, code, body = script.answer(self.path, request)
                self.send_response_only(code)  # neither a date nor a version: recordings stay the same
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is http.server's
                """Say nothing: standard error belongs to the tests."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True  # a client's idle connection must not hold up the end
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        """Base URL, as the clients want it."""
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def answer(self, path: str, request: Json) -> tuple[str, int, bytes]:
        """Content type, status and body."""
        if path != "/v1/chat/completions":
            return "application/json", 404, _error(f"no such path: {path}")
        self.requests.append(request)
        number = next(self._numbers)
        code = status(request)
        if code != 200:
            return "application/json", code, _error(f"scripted failure {code}")
        if not request.get("stream"):
            return "application/json", 200, json.dumps(completion(request, number)).encode()
        lines = [*(json.dumps(chunk) for chunk in chunks(request, number)), "[DONE]"]
        return "text/event-stream", 200, "".join(f"data: {line}\n\n" for line in lines).encode()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _error(message: str) -> bytes:
    return json.dumps({"error": {"message": message, "type": "scripted", "code": None}}).encode()


# --- the cassettes ------------------------------------------------------------------------------------------


@contextmanager
def cassette(name: str, *, record: bool) -> Iterator[Cassette]:
    """Replay ``cassettes/<name>.yaml``, every answer once and in order, or record it anew.

    ``play_count`` of what is yielded is the number of model calls that were answered from it.
    """
    path = _CASSETTES / f"{name}.yaml"
    if record:
        path.unlink(missing_ok=True)
    recorder = vcr.VCR(
        record_mode="all" if record else "none",
        before_record_request=_anonymous,
        before_record_response=_only_content_type,
        match_on=("method", "uri"),
    )
    recorder.register_matcher("question", _same_question)
    with recorder.use_cassette(str(path), additional_matchers=("question",)) as tape:
        yield tape


def _anonymous(request: Request) -> Request:
    """Drop the headers (key, client version, machine) and the port."""
    request.headers = {}
    request.uri = re.sub(r"http://127\.0\.0\.1:\d+/v1", REPLAY_URL, request.uri)
    return request


def _only_content_type(response: Json) -> Json:
    kept = {name: value for name, value in response["headers"].items() if name.lower() == "content-type"}
    return response | {"headers": kept}


def _same_question(first: Request, second: Request) -> bool:
    """What decides about the answer is the same, whatever else a newer client may send."""
    return _asked(first) == _asked(second)


def _asked(request: Request) -> Json:
    body = json.loads(request.body)
    return {
        "messages": body["messages"],
        "stream": bool(body.get("stream")),
        "tools": [tool["function"]["name"] for tool in body.get("tools", ())],
        "format": body.get("response_format", {}).get("type"),
    }
