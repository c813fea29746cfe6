"""Remote files for tests: a store of fsspec that answers many requests at once, and an HTTP server."""

import asyncio
import http.server
import threading
from contextlib import contextmanager
from pathlib import Path

from conftest import load

asyn = load("fsspec.asyn")

NAMES = [f"{number:02}.bin" for number in range(12)]


def content(name):
    return f"content of {name}".encode()


if asyn is not None:

    class ManyAtOnce(asyn.AsyncFileSystem):
        """The files of a local folder; a request waits until `wanted` requests are under way."""

        protocol = "many"
        wanted = 1
        requests = 0

        def __init__(self, root, **options):
            super().__init__(**options)
            self.root, self._under_way, self._enough = Path(root), 0, asyncio.Event()

        async def _cat_file(self, path, start=None, end=None, **kwargs):
            type(self).requests += 1
            self._under_way += 1
            if self._under_way >= self.wanted:
                self._enough.set()
            await asyncio.wait_for(self._enough.wait(), 60)
            self._under_way -= 1
            if path == "broken":
                raise OSError("the store is on fire")
            return (self.root / path).read_bytes()

        async def _ls(self, path, detail=True, **kwargs):
            found = sorted((self.root / path).iterdir())
            return [{"name": file.name, "size": file.stat().st_size, "type": "file"} for file in found]

        async def _info(self, path, **kwargs):
            return {"name": path, "type": "directory" if (self.root / path).is_dir() else "file"}


class _Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        name = self.path.lstrip("/")
        body = content(name) if name else "".join([f'<a href="{name}">' for name in NAMES]).encode()
        self.send_response(404 if "none" in name else 200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/octet-stream" if name else "text/html")
        if "dated" in name:
            self.send_header("Last-Modified", "Wed, 21 Oct 2015 07:28:00 GMT")
        if "encoded" in name:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *arguments):
        pass


@contextmanager
def http_server():
    """Serves `content(name)` for every name without "none", without a version but for names with "dated".

    The value is the URL of the folder.
    """
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
