"""A stand-in for the Hugging Face Hub: the few answers of its API that a download needs.

It serves files from memory on 127.0.0.1, with the headers and error codes that `huggingface_hub`
reads, and can misbehave on request. It is not the Hub: what the real one does beyond this (xet
storage, redirects to a content network, rate limits) is not tested with it.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "a" * 40


@dataclass
class StandInHub:
    """What the stand-in serves, how it misbehaves, and what it was asked."""

    files: dict[str, bytes] = field(default_factory=dict)
    """`owner/repo/file` and its content."""
    error: tuple[int, str] | None = None
    """Answer everything with this status and X-Error-Code."""
    drop_after: int | None = None
    """Close the connection after so many bytes of a file..."""
    drops_left: int = 0
    """...this many times."""
    ignores_ranges: bool = False
    sends: bytes | None = None
    """Content to send in place of the file that was announced."""
    asked: list[str] = field(default_factory=list)
    """`METHOD path [range]` of every request."""
    url: str = ""


@contextmanager
def stand_in_hub() -> Iterator[StandInHub]:
    hub = StandInHub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: StandInHub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def _answer(self, *, body: bool) -> None:
        path = self.path.split("?")[0]
        self.hub.asked.append(f"{self.command} {path} {self.headers.get('Range', '')}".strip())
        if self.hub.error:
            self._error(*self.hub.error)
        elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/main", path):
            self._tree(match[1])
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/main/(.+)", path):
            self._file(f"{match[1]}/{match[2]}", body=body)
        else:
            self._error(404, "RepoNotFound")

    def _tree(self, repo: str) -> None:
        names = [name.removeprefix(f"{repo}/") for name in self.hub.files if repo in name]
        items = [{"type": "file", "path": name, "size": 1, "oid": "0" * 40} for name in names]
        self._send(200, json.dumps(items).encode(), {"Content-Type": "application/json"})

    def _file(self, name: str, *, body: bool) -> None:
        if name not in self.hub.files:
            self._error(404, "EntryNotFound")
            return
        content = self.hub.files[name]
        headers = {
            "ETag": f'"{hashlib.sha256(content).hexdigest()}"',
            "X-Repo-Commit": COMMIT,
            "Accept-Ranges": "bytes",
        }
        if not body:
            self._send(200, content, headers, body=False)
            return
        content = self.hub.sends if self.hub.sends is not None else content
        start = self._range_start()
        if start is not None:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self._send(200 if start is None else 206, content[start or 0 :], headers)

    def _range_start(self) -> int | None:
        match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        return int(match[1]) if match and not self.hub.ignores_ranges else None

    def _send(
        self, status: int, content: bytes, headers: dict[str, str], *, body: bool = True
    ) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if not body:
            return
        if self.hub.drops_left and self.hub.drop_after is not None:
            self.hub.drops_left -= 1
            self.wfile.write(content[: self.hub.drop_after])
            self.wfile.flush()
            self.close_connection = True
            self.connection.shutdown(2)
            return
        self.wfile.write(content)

    def _error(self, status: int, code: str) -> None:
        self._send(status, b"{}", {"X-Error-Code": code, "X-Error-Message": "as asked"})
