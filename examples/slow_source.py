"""Loads samples from an HTTP server that takes 20 ms to answer, first one after the other and then many at once.

    pip install .
    python examples/slow_source.py --help

The server runs in a process on this machine. With `concurrency=16`, 16 threads of each worker read samples, and each of
these threads keeps a connection. If the dataset defines `async def __getitem__`, an event loop of the worker awaits 16
samples at the same time instead.
"""

import argparse
import asyncio
import multiprocessing
import os
import threading
import time
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

from gluonloader import DataLoader

BATCH = 32


class Slow(BaseHTTPRequestHandler):
    """Answers `GET /7` with the sample 7, after `delay` seconds."""

    protocol_version = "HTTP/1.1"  # keeps the connection open
    disable_nagle_algorithm = True  # sends the body at once, although the client has not confirmed the header yet
    delay = 0.0

    def do_GET(self):
        time.sleep(self.delay)
        rng = np.random.default_rng(int(self.path[1:]))
        body = rng.random(1000, np.float32).tobytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 128  # connections that wait to be accepted
    daemon_threads = True


def serve(delay, port_to):
    Slow.delay = delay
    server = Server(("127.0.0.1", 0), Slow)
    port_to.send(server.server_port)
    server.serve_forever()


class RemoteSamples:
    """Sample i is the array that the server returns for `GET /i`."""

    def __init__(self, port, count):
        self.port, self.count = port, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        connection = self.connection()
        connection.request("GET", f"/{index}")
        return np.frombuffer(connection.getresponse().read(), np.float32)

    def connection(self):
        """Returns the connection of this thread. A forked worker must not use a connection of the main program."""
        if getattr(mine, "pid", None) != os.getpid():
            mine.pid, mine.connection = os.getpid(), HTTPConnection("127.0.0.1", self.port)
        return mine.connection


mine = threading.local()


class AwaitedSamples(RemoteSamples):
    """The same samples, read by a coroutine; each request opens a connection."""

    async def __getitem__(self, index):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(f"GET /{index} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
            _, _, body = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
        return np.frombuffer(body, np.float32)


def measure(what, data, workers, concurrency):
    """Reads all samples, prints how long that took, and returns them."""
    with DataLoader(data, BATCH, num_workers=workers, concurrency=concurrency) as loader:
        start = time.perf_counter()
        samples = np.concatenate(list(loader))
        seconds = time.perf_counter() - start
    print(f"{what:25}{seconds:6.2f} s{len(data) / seconds:8,.0f} samples per second", flush=True)
    return samples


def arguments():
    parser = argparse.ArgumentParser(description="Load samples that wait for a server.")
    parser.add_argument("--samples", type=int, default=320)
    parser.add_argument("--workers", type=int, default=2, help="number of workers; 0 loads in the main program")
    parser.add_argument("--concurrency", type=int, default=16, help="samples that a worker reads at the same time")
    parser.add_argument("--delay", type=float, default=0.02, help="seconds that the server waits for each sample")
    return parser.parse_args()


def main():
    options = arguments()
    port_from, port_to = multiprocessing.Pipe(duplex=False)
    server = multiprocessing.Process(target=serve, args=(options.delay, port_to), daemon=True)
    server.start()
    source = port_from.recv(), options.samples
    print(f"{options.samples} samples, {1000 * options.delay:.0f} ms each, {options.workers} workers")
    try:
        before = measure("concurrency=1", RemoteSamples(*source), options.workers, 1)
        after = [
            measure(f"concurrency={options.concurrency}", RemoteSamples(*source), options.workers, options.concurrency),
            measure("the same with async def", AwaitedSamples(*source), options.workers, options.concurrency),
        ]
    finally:
        server.terminate()
        server.join()
    same = all(np.array_equal(before, samples) for samples in after)
    print("identical samples" if same else "different samples: this is a bug")


if __name__ == "__main__":
    main()
