"""Two Ray nodes in two network namespaces, and the link between them is cut while both work. Needs Ray, Linux and root.

All addresses lie in the namespaces, so nothing of this reaches another network.
"""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import pytest
from conftest import eventually

CUTS = int(os.environ.get("GLUONLOADER_CUTS", "1"))  # further cuts take up to two minutes each

pytest.importorskip("ray")

# So that a node counts as dead after 8 seconds; by default this takes about 60 seconds.
QUICK = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1500",
    "RAY_health_check_failure_threshold": "4",
}


def run(*command):
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)


class Network:
    """Two namespaces, `here` and `there`, and a link between them, whose ends have the same names."""

    def __init__(self):
        self.names = [f"gl{os.getpid()}{end}" for end in "ab"]
        self.here, self.there = self.names

    def open(self):
        for name in self.names:
            run("ip", "netns", "add", name)
        peer = "peer", "name", self.there, "netns", self.there
        run("ip", "link", "add", self.here, "netns", self.here, "type", "veth", *peer)
        for number, name in enumerate(self.names, 1):
            run("ip", "-n", name, "addr", "add", f"10.231.0.{number}/24", "dev", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
            run("ip", "-n", name, "link", "set", name, "up")

    def pids(self):
        found = []
        for name in self.names:
            done = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True)
            found += map(int, done.stdout.split())
        return found

    def close(self):
        """Ends every process in the namespaces, and the namespaces; the link ends with them."""
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        eventually(lambda: not self.pids())
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


@pytest.fixture
def network():
    """A `Network`; skips the test if this system or this user cannot make one."""
    if shutil.which("ip") is None:
        pytest.skip("needs the command ip (package iproute2)")
    network = Network()
    try:
        try:
            network.open()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces are not allowed here: {error.stderr.strip()}")
        yield network
    finally:
        network.close()


@pytest.fixture
def start_cluster(network):
    """A function that starts a head node `here` and another node `there`, with more environment variables."""
    folder = tempfile.mkdtemp(prefix="glray-", dir="/tmp")  # short: Ray puts sockets there

    def start(more):
        settings = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", **more}
        options = "--num-cpus=1", "--object-store-memory=100000000"
        head = "--head", "--port=6379", "--include-dashboard=false", f"--temp-dir={folder}/r"
        nodes = [(network.here, "10.231.0.1", head), (network.there, "10.231.0.2", ("--address=10.231.0.1:6379",))]
        for name, address, role in nodes:
            ray = sys.executable, "-m", "ray.scripts.scripts", "start", f"--node-ip-address={address}"
            command = ["ip", "netns", "exec", name, *ray, *role, *options]
            # The servers of the node keep these files open, so a pipe would never end.
            with open(f"{folder}/{name}", "w+") as output:
                done = subprocess.run(
                    command, stdout=output, stderr=output, env={**os.environ, **settings}, timeout=120
                )
                output.seek(0)
                assert done.returncode == 0, output.read()
        return settings

    yield start
    network.close()  # before its folder is removed
    shutil.rmtree(folder, ignore_errors=True)


PROGRAM = """
import subprocess, sys, threading, time
import numpy as np
import ray
from gluonloader import DataLoader

class Images:
    def __len__(self):
        return 400

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        time.sleep(0.005)
        return rng.integers(0, 255, (64, 64, 3), np.uint8), index, np.random.random()

def lanes(loader):
    return list(loader.epochs.workers.executor(0).crew.lanes.values())

def link(state):
    subprocess.run(["ip", "-n", here, "link", "set", here, state], check=True)

if __name__ == "__main__":
    here, cut_at, back_after = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    ray.init(address="10.231.0.1:6379", logging_level="error", log_to_driver=False)
    with DataLoader(Images(), 8, num_workers=0, seed=3) as serial:
        expected = [[part.copy() for part in batch] for batch in serial]
    with DataLoader(Images(), 8, num_workers=2, executor="ray", seed=3) as loader:
        while sum(lane.answered for lane in lanes(loader)) < 2:
            loader.set_epoch(1)
            list(loader)
        loader.set_epoch(0)
        batches, got, waits, is_cut = iter(loader), [], [], False
        while True:
            if not is_cut and len(got) >= cut_at and sum(bool(lane.attempts) for lane in lanes(loader)) == 2:
                is_cut = True
                link("down")
                if back_after:
                    threading.Timer(back_after, link, ["up"]).start()
            start = time.monotonic()
            try:
                got.append(next(batches))
            except StopIteration:
                break
            waits.append(time.monotonic() - start)
        assert len(got) == len(expected), len(got)
        for mine, its in zip(got, expected):
            for part, other in zip(mine, its):
                np.testing.assert_array_equal(part, other)
        alive = sum(node["Alive"] for node in ray.nodes())
        assert is_cut
        print(f"cut at batch {cut_at}, back after {back_after:.0f} s: waited {max(waits):.1f} s; nodes alive: {alive}")
        loader.set_epoch(0)
        assert sum(1 for _ in loader) == len(expected)
    print("done")
"""


@pytest.mark.kill
@pytest.mark.parametrize("cut", range(CUTS))
def test_no_batch_is_lost_when_the_network_is_cut(network, start_cluster, cut, tmp_path):
    """The first cut is for good, with quick health checks; the others with Ray's own, and most links return."""
    seed = int(time.time())
    choose = random.Random(seed)
    back_after = choose.choice([0.0, 1.0, 5.0, choose.uniform(5, 55), choose.uniform(55, 90)]) if cut else 0.0
    settings = start_cluster({} if cut else QUICK)
    script = tmp_path / "script.py"
    script.write_text(PROGRAM)
    inside = "ip", "netns", "exec", network.here, sys.executable, str(script)
    command = [*inside, network.here, str(choose.randrange(1, 40)), str(back_after)]
    environment = {**os.environ, **settings}
    done = subprocess.run(command, capture_output=True, text=True, timeout=400 if cut else 120, env=environment)
    assert done.stdout.endswith("done\n"), (seed, done.stdout, done.stderr)
    if not back_after:
        assert "nodes alive: 1" in done.stdout, (seed, done.stdout)
    print(done.stdout)
