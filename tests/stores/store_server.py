"""An S3 server on 127.0.0.1 for tests and benchmarks, with faults on demand; needs nothing but the standard library.

    with store_server(folder, delay_s=0.03, busy=0.2) as server:  # each folder in it is a bucket
        os.environ.update(server.environment)
        ...
        server.set(busy=0, cut=0.1)
        print(server.counts())

It runs in a process of its own, so that it does not share the GIL with the test, and ends when its parent has ended.
As a program: `python tests/stores/store_server.py FOLDER [PORT [FAULT=VALUE ...]]`.

It answers GET with Range and If-Match, HEAD, ListObjectsV2, PUT and DELETE. It checks no signature, reads PUT bodies
into memory, and walks the whole bucket for each page of a listing. The ETag of an object depends on the size and the
time of its file.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import http.client
import itertools
import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from email.utils import formatdate
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO, ClassVar
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

_CONTROL = "/-/"  # no bucket may have this name
_PIECE = 1 << 20


@dataclass(frozen=True)
class Faults:
    """Faults of the server; each value without a comment is the share of requests, 0 to 1, that the fault meets."""

    delay_s: float = 0.0  # before each answer
    busy: float = 0.0  # 503 SlowDown
    burst: int = 1  # each 503 of `busy` is followed by more 503s, up to so many in all
    busy_next: int = 0  # so many of the next requests are answered with 503
    refused: float = 0.0  # 403 AccessDenied
    stall: float = 0.0  # never answered
    slow: float = 0.0  # answered after `slow_s` seconds more
    slow_s: float = 2.0  # seconds

    # Of GETs of an object:
    cut: float = 0.0  # the connection is closed in the middle of the body
    freeze: float = 0.0  # the first half of the body comes, the rest never
    wrong_length: float = 0.0  # the last byte is missing; the answer is correct HTTP
    ignore_range: float = 0.0  # 200 with the whole object, instead of 206

    # Of GETs and HEADs:
    no_etag: float = 0.0  # also of the objects in a list
    other_etag: float = 0.0  # an ETag that no other answer has


class Server:
    """A running server, as the test sees it.

    Attributes:
        url: the endpoint.
        environment: environment variables that lead clients of S3 to it.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self.url = f"http://127.0.0.1:{port}"
        self.environment = {
            "AWS_ENDPOINT": self.url,
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }

    def set(self, **faults: float) -> None:
        """Changes these faults; others stay as they are."""
        self._control("faults", faults)

    def restart(self, folder: str | os.PathLike[str]) -> None:
        """From now on it is like a new server over the buckets in this folder; to start one takes much longer."""
        self._control("restart", os.fspath(folder))

    def counts(self) -> Counter[str]:
        """What happened since the last call.

        Requests by kind (get, head, list, put, delete), those with a Range (range) or an If-Match that failed
        (changed), each fault by its name (503s as busy), bytes of bodies (bytes), connections (connections), and the
        highest number of requests at once (most).
        """
        return Counter(self._control("counts", None))

    def _control(self, name: str, value: object) -> dict[str, int]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            connection.request("PUT", _CONTROL + name, json.dumps(value))
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        if answer.status != HTTPStatus.OK:
            raise ValueError(body.decode())
        return json.loads(body)


@contextlib.contextmanager
def store_server(folder: str | os.PathLike[str], delay_s: float = 0.0, **faults: float) -> Iterator[Server]:
    """Runs a server over the buckets in a folder.

    Args:
        folder: contains a folder for each bucket.
        delay_s: seconds before each answer.
        **faults: the other fields of `Faults`.
    """
    settings = [f"{name}={float(value)}" for name, value in {"delay_s": delay_s, **faults}.items()]
    command = [sys.executable, "-I", __file__, os.fspath(folder), "0", *settings]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Server(int(process.stdout.readline().rpartition(":")[2]))
        finally:
            process.terminate()


@dataclass(frozen=True)
class _Request:
    verb: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]  # names in lower case
    body: bytes

    @property
    def bucket(self) -> str:
        return self.path.lstrip("/").partition("/")[0]

    @property
    def key(self) -> str:
        return self.path.lstrip("/").partition("/")[2]

    @property
    def kind(self) -> str:
        if self.verb == "GET" and not self.key:
            return "list"
        return "delete" if self.verb == "POST" and "delete" in self.query else self.verb.lower()


@dataclass(frozen=True)
class _Answer:
    status: int
    headers: dict[str, str]
    body: bytes = b""


def _xml(status: int, text: str) -> _Answer:
    body = f"<?xml version='1.0' encoding='UTF-8'?>{text}".encode()
    return _Answer(status, {"Content-Type": "application/xml"}, body)


def _error(status: int, code: str) -> _Answer:
    return _xml(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>")


class _Store:
    """The server itself: objects, faults and counts.

    Attributes:
        newest: serves the next connections.
    """

    newest: ClassVar[_Store]

    def __init__(self, folder: str, faults: Faults) -> None:
        _Store.newest = self
        self._folder, self._faults = Path(folder), faults
        self._random, self._numbers = random.Random(0), itertools.count()
        self._counts, self._now, self._burst = Counter[str](), 0, 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers the requests of one connection."""
        self._counts["connections"] += 1
        try:
            while request := await self._request(reader):
                if request.path.startswith(_CONTROL):
                    await self._send(writer, request, self._control(request))
                    continue
                self._now += 1
                self._counts["most"] = max(self._counts["most"], self._now)
                try:
                    await self._answer(request, reader, writer)
                finally:
                    self._now -= 1
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client is gone
        finally:
            writer.close()

    async def _request(self, reader: asyncio.StreamReader) -> _Request | None:
        """The next request; None if the client has closed the connection, or this server has cut it."""
        if reader.at_eof():
            return None
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin1").split("\r\n")
        verb, target, _ = head[0].split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        url = urlsplit(target)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        return _Request(verb, unquote(url.path), query, headers, body)

    def _control(self, request: _Request) -> _Answer:
        if request.path == _CONTROL + "faults":
            try:
                self._faults, self._burst = replace(self._faults, **json.loads(request.body)), 0
            except TypeError as error:  # no such fault
                return _Answer(400, {}, str(error).encode())
            return _Answer(200, {}, b"{}")
        if request.path == _CONTROL + "restart":
            _Store(json.loads(request.body), Faults())
            return _Answer(200, {}, b"{}")
        counts = json.dumps(self._counts).encode()
        self._counts = Counter(most=self._now)
        return _Answer(200, {}, counts)

    async def _answer(self, request: _Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._counts[request.kind] += 1
        await asyncio.sleep(self._faults.delay_s)
        if self._is_busy():
            return await self._send(writer, request, _error(503, "SlowDown"))
        if self._meets("refused"):
            return await self._send(writer, request, _error(403, "AccessDenied"))
        if self._meets("stall"):
            await reader.read()  # until the client closes the connection
            return None
        if self._meets("slow"):
            await asyncio.sleep(self._faults.slow_s)
        answers = {"get": self._get, "head": self._get, "list": self._list, "put": self._put, "delete": self._delete}
        make = answers.get(request.kind)
        answer = make(request) if make else _error(501, "NotImplemented")
        if request.kind != "get" or answer.status not in (200, 206):
            return await self._send(writer, request, answer)
        if self._meets("wrong_length"):
            answer = replace(answer, body=answer.body[:-1])
        sent = len(answer.body)
        if self._meets("cut"):
            await self._send(writer, request, answer, sent // 2)
            writer.close()
        elif self._meets("freeze"):
            await self._send(writer, request, answer, sent // 2)
            await reader.read()
        else:
            await self._send(writer, request, answer)
        return None

    def _meets(self, fault: str) -> bool:
        """Whether a request meets a fault; counts it."""
        meets = self._random.random() < getattr(self._faults, fault)
        if meets:
            self._counts[fault] += 1
        return meets

    def _is_busy(self) -> bool:
        if self._faults.busy_next:
            self._faults = replace(self._faults, busy_next=self._faults.busy_next - 1)
        elif self._burst:
            self._burst -= 1
        elif self._random.random() < self._faults.busy:
            self._burst = self._faults.burst - 1
        else:
            return False
        self._counts["busy"] += 1
        return True

    async def _send(
        self, writer: asyncio.StreamWriter, request: _Request, answer: _Answer, first: int | None = None
    ) -> None:
        """Sends an answer, or only the first bytes of its body."""
        reason = HTTPStatus(answer.status).phrase
        headers = {"Date": formatdate(usegmt=True), "Content-Length": str(len(answer.body)), **answer.headers}
        lines = [f"HTTP/1.1 {answer.status} {reason}", *(f"{name}: {value}" for name, value in headers.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode("latin1"))
        body = memoryview(b"" if request.verb == "HEAD" else answer.body)[:first]
        if not request.path.startswith(_CONTROL):
            self._counts["bytes"] += len(body)
        for start in range(0, len(body), _PIECE):
            writer.write(body[start : start + _PIECE])
            await writer.drain()

    def _get(self, request: _Request) -> _Answer:
        try:
            with open(self._path(request), "rb") as file:
                return self._object(request, file)
        except OSError:
            return _error(404, "NoSuchKey")

    def _object(self, request: _Request, file: BinaryIO) -> _Answer:
        status = os.fstat(file.fileno())
        size, etag = status.st_size, _etag(status)
        if request.headers.get("if-match", etag) not in (etag, etag.strip('"'), "*"):
            self._counts["changed"] += 1
            return _error(412, "PreconditionFailed")
        headers = {"Last-Modified": formatdate(status.st_mtime, usegmt=True), "Accept-Ranges": "bytes"}
        if self._meets("other_etag"):
            etag = f'"other-{next(self._numbers)}"'
        if not self._meets("no_etag"):
            headers["ETag"] = etag
        if request.verb == "HEAD":
            return _Answer(200, {**headers, "Content-Length": str(size)})
        asked = request.headers.get("range")
        self._counts["range"] += asked is not None
        if asked is None or self._meets("ignore_range"):
            return _Answer(200, headers, file.read())
        first, _, last = asked.removeprefix("bytes=").partition("-")
        start = int(first) if first else max(0, size - int(last))
        stop = min(size, int(last) + 1) if first and last else size
        if start >= size:
            return _error(416, "InvalidRange")
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
        file.seek(start)
        return _Answer(206, headers, file.read(stop - start))

    def _put(self, request: _Request) -> _Answer:
        path = self._path(request)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(request.body)
        return _Answer(200, {"ETag": _etag(path.stat())})

    def _delete(self, request: _Request) -> _Answer:
        """Deletes an object, or all those that the XML of a request for several objects names."""
        if request.verb == "DELETE":
            self._path(request).unlink(missing_ok=True)
            return _Answer(204, {})
        keys = re.findall("<Key>(.*?)</Key>", request.body.decode())
        for key in keys:
            (self._folder / request.bucket / unescape(key)).unlink(missing_ok=True)
        deleted = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        return _xml(200, f"<DeleteResult>{deleted}</DeleteResult>")

    def _list(self, request: _Request) -> _Answer:
        query, bucket = request.query, self._folder / request.bucket
        if not bucket.is_dir():
            return _error(404, "NoSuchBucket")
        prefix, delimiter, after = (query.get(name, "") for name in ("prefix", "delimiter", "start-after"))
        entries: dict[str, os.stat_result | None] = {}  # a common prefix has no file
        for file in bucket.rglob("*"):
            key = file.relative_to(bucket).as_posix()
            if key.startswith(prefix) and key > after and file.is_file():
                folder, found, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
                entries[prefix + folder + delimiter if found else key] = None if found else file.stat()
        left = [name for name in sorted(entries) if name > query.get("continuation-token", "")]
        names = left[: int(query.get("max-keys", 1000))]
        more = len(names) < len(left)
        encoded = quote if query.get("encoding-type") == "url" else escape
        parts = [f"<IsTruncated>{str(more).lower()}</IsTruncated><KeyCount>{len(names)}</KeyCount>"]
        if more:
            parts.append(f"<NextContinuationToken>{escape(names[-1])}</NextContinuationToken>")
        for name in names:
            status = entries[name]
            if status is None:
                parts.append(f"<CommonPrefixes><Prefix>{encoded(name)}</Prefix></CommonPrefixes>")
            else:
                etag = "" if self._meets("no_etag") else f"<ETag>{escape(_etag(status))}</ETag>"
                parts.append(
                    f"<Contents><Key>{encoded(name)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
                    f"{etag}<Size>{status.st_size}</Size></Contents>"
                )
        return _xml(200, "".join(["<ListBucketResult>", *parts, "</ListBucketResult>"]))

    def _path(self, request: _Request) -> Path:
        return self._folder / request.bucket / request.key


def _etag(status: os.stat_result) -> str:
    return '"' + hashlib.md5(b"%d %d" % (status.st_size, status.st_mtime_ns)).hexdigest() + '"'


async def _run(folder: str, port: int, faults: Faults) -> None:
    parent = os.getppid()
    _Store(folder, faults)
    server = await asyncio.start_server(lambda *streams: _Store.newest.serve(*streams), "127.0.0.1", port, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    while os.getppid() == parent:
        await asyncio.sleep(0.5)


def _main() -> None:
    folder, port, *settings = [*sys.argv[1:], "0"] if len(sys.argv) == 2 else sys.argv[1:]
    kinds = {field.name: type(field.default) for field in fields(Faults)}
    pairs = (setting.split("=") for setting in settings)
    faults = Faults(**{name: kinds[name](float(value)) for name, value in pairs})
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_run(folder, int(port), faults))


if __name__ == "__main__":
    _main()
