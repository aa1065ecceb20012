"""The HTTP side: the endpoints that the smoke tests use, as SGLang answers them."""

from __future__ import annotations

import json
import select
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from .behaviour import Good, Json
from .engine import Engine, EngineError, Request, pause
from .parse import BadRequestError, chat_request, native_request, prompt_to_tokenize
from .recording import MissingError
from .replies import Chat, Native


class FaultServer(ThreadingHTTPServer):
    """Serves `engine` with a behaviour on loopback; port 0 takes a free one.

    api_key: when given, every path but the health checks needs it.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, engine: Engine, behaviour: Good, port: int = 0, api_key: str | None = None):
        super().__init__(("127.0.0.1", port), _Handler)
        self.engine = engine
        self.behaviour = behaviour
        self.api_key = api_key

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @contextmanager
    def serving(self) -> Iterator[FaultServer]:
        """Serve in a thread of this process."""
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        try:
            yield self
        finally:
            self.shutdown()
            self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing of a client that hung up in mid-answer, which is no error of the server."""


class _Handler(BaseHTTPRequestHandler):
    server: FaultServer

    def do_GET(self) -> None:  # noqa: N802
        self._answer({})

    def do_POST(self) -> None:  # noqa: N802
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            body = json.loads(raw or "{}")
        except ValueError:
            self._refuse(400, "JSON decode error")
            return
        self._answer(body)

    def log_message(self, format: str, *args: Any) -> None:
        """No access log."""

    def _answer(self, body: Json) -> None:
        try:
            self._route(self.path.split("?")[0], body)
        except BadRequestError as error:
            self._refuse(400, str(error))
        except (MissingError, EngineError) as error:
            self._refuse(500, str(error))

    def _route(self, path: str, body: Json) -> None:
        engine, behaviour = self.server.engine, self.server.behaviour
        if not self._let_in(path):
            self._reply(401, {"error": "Unauthorized"})
        elif path == "/v1/loads":
            self._reply(200, engine.loads())
        elif path in engine.recording.replies:
            self._reply(200, engine.recording.replies[path])
        elif path in ("/health", "/health_generate"):
            self._reply(200, "")
        elif path == "/metrics":
            self._reply(200, engine.metrics.text())
        elif path == "/tokenize":
            ids = engine.tokenizer.ids(behaviour.tokenized(prompt_to_tokenize(body)))
            self._reply(200, {"tokens": ids, "count": len(ids), "max_model_len": engine.context_length})
        elif path == "/detokenize":
            special = body.get("skip_special_tokens") is False
            self._reply(200, {"text": engine.tokenizer.text(body["tokens"], special)})
        elif path == "/generate":
            native = Native(engine.tokenizer, engine.info["speculative_num_draft_tokens"])
            self._generate(native_request(body, engine), native, bool(body.get("stream")))
        elif path == "/v1/chat/completions":
            chat = Chat(engine.tokenizer, engine.info["served_model_name"])
            self._generate(chat_request(body, engine), chat, bool(body.get("stream")), behaviour.structured(body))
        else:
            self._refuse(404, "Not Found")

    def _let_in(self, path: str) -> bool:
        key, given = self.server.api_key, self.headers.get("Authorization")
        if key is None or path.startswith(("/health", "/metrics")):
            return True
        return self.server.behaviour.lets_in(key, given.removeprefix("Bearer ") if given else None)

    def _generate(self, request: Request, interface: Native | Chat, streamed: bool, said: str | None = None) -> None:
        engine, behaviour = self.server.engine, self.server.behaviour
        with engine.slot(len(request.prompt_ids)) as slot:
            completion = engine.answer(request, behaviour, said)
            if streamed:
                stayed = self._stream(behaviour.streamed(interface.events(completion)))
            else:
                stayed = self._waited(len(completion.steps))
            if not stayed:
                slot.keeps_tokens = behaviour.leaks_tokens
                slot.keeps_place = behaviour.aborted()
                return
        engine.enter(behaviour.counted(completion))
        if not streamed:
            self._reply(200, interface.whole(completion))

    def _stream(self, events: Iterable[Json]) -> bool:
        """Sends server-sent events, one a step; returns whether the client stayed to the end."""
        try:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for event in events:
                pause()
                self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
            self.wfile.write(b"data: [DONE]\n\n")
        except OSError:
            return False
        return True

    def _waited(self, steps: int) -> bool:
        """Lets the steps' time pass; returns whether the client stayed to the end."""
        for _ in range(steps):
            pause()
            readable, _, _ = select.select([self.connection], [], [], 0)
            if readable and not self.connection.recv(1, socket.MSG_PEEK):
                return False
        return True

    def _refuse(self, status: int, message: str) -> None:
        self._reply(status, {"object": "error", "message": message, "code": status})

    def _reply(self, status: int, body: Any) -> None:
        status, body = self.server.behaviour.replied(self.path, status, body)
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if isinstance(body, str) else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
