"""Kills itself in mid-epoch, and goes on: the position of a loader, saved as JSON beside the model.

    pip install "gluonloader[examples]"
    python examples/resume.py

Trains the classifier of train_digits.py three times: without a break; until it is killed with SIGKILL, in the middle
of an epoch; and again, with another number of workers, from what the killed run had saved. The end is the same.
"""

import argparse
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from digits import load_datasets
from train_digits import Network, flat

from gluonloader import DataLoader

EPOCHS, SAVE_EVERY = 3, 10


def save(path, network, loader):
    """Model and position, in one file that is there whole or not at all."""
    new = path.with_suffix(".new")
    new.write_bytes(pickle.dumps({"network": network, "loader": loader.state_dict()}))
    new.replace(path)


def train(path, workers, kill_after):
    """Trains up to the last epoch, from the saved position if there is one; returns a number that tells all weights."""
    training, _ = load_datasets()
    network, step = Network(np.random.default_rng(0)), 0
    with DataLoader(training, batch_size=32, shuffle=True, seed=0, num_workers=workers) as loader:
        if path.exists():
            saved = pickle.loads(path.read_bytes())
            network = saved["network"]
            loader.load_state_dict(saved["loader"])
            print(f"goes on at {json.dumps({key: saved['loader'][key] for key in ('epoch', 'batch')})}")
        while loader.state_dict()["epoch"] < EPOCHS:
            for images, labels in loader:
                network.train(flat(images), labels, rate=0.05)
                step += 1
                if step % SAVE_EVERY == 0:
                    save(path, network, loader)
                if step == kill_after:
                    os.kill(os.getpid(), signal.SIGKILL)
    return float(sum(np.abs(parameter).sum() for parameter in network.parameters))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--kill-after", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.path is not None:
        print(f"weights: {train(options.path, options.workers, options.kill_after)!r}")
        return
    with tempfile.TemporaryDirectory() as folder:

        def run(name, workers, kill_after=0):
            print(f"-- {name}, {workers} workers", flush=True)
            command = [sys.executable, __file__, "--path", f"{folder}/{name.split()[0]}", "--workers", str(workers)]
            done = subprocess.run([*command, "--kill-after", str(kill_after)], stdout=subprocess.PIPE, text=True)
            print(done.stdout or f"ended by signal {-done.returncode}", flush=True)
            return done.stdout.splitlines()[-1:]

        whole = run("whole", options.workers)
        run("parts", options.workers, kill_after=64)
        rest = run("parts again", options.workers + 1)
        print("the same weights" if whole == rest else "other weights: this is a bug")


if __name__ == "__main__":
    main()
