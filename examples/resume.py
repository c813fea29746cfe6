"""Kills itself in mid-epoch, resumes from a checkpoint of model and loader, and ends with identical weights.

    pip install ".[examples]"
    python examples/resume.py

Trains the classifier of train_digits.py three times: first without interruption; then until SIGKILL ends the training
in the middle of an epoch; and last from the checkpoint of the killed run, with another number of workers.
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
    """Saves the model and the position of the loader in one file, which replaces the previous one in a single step."""
    new = path.with_suffix(".new")
    new.write_bytes(pickle.dumps({"network": network, "loader": loader.state_dict()}))
    new.replace(path)


def train(path, workers, kill_after):
    """Trains to the last epoch, from the checkpoint if there is one; returns the sum of the absolute weights."""
    training, _ = load_datasets()
    network, step = Network(np.random.default_rng(0)), 0
    with DataLoader(training, batch_size=32, shuffle=True, seed=0, num_workers=workers) as loader:
        if path.exists():
            saved = pickle.loads(path.read_bytes())
            network = saved["network"]
            loader.load_state_dict(saved["loader"])
            print(f"resumes at {json.dumps({key: saved['loader'][key] for key in ('epoch', 'batch')})}")
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

        def run(what, name, workers, kill_after=0):
            print(f"-- {what}, {workers} workers", flush=True)
            command = [sys.executable, __file__, "--path", f"{folder}/{name}", "--workers", str(workers)]
            done = subprocess.run([*command, "--kill-after", str(kill_after)], stdout=subprocess.PIPE, text=True)
            print(done.stdout or f"killed by signal {-done.returncode}", flush=True)
            return done.stdout.splitlines()[-1:]

        expected = run("uninterrupted", "first", options.workers)
        run("until it is killed", "second", options.workers, kill_after=64)
        found = run("resumed", "second", options.workers + 1)
        print("identical weights" if found == expected else "different weights: this is a bug")


if __name__ == "__main__":
    main()
