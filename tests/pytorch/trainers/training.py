"""What the programs of this folder train on, and how the tests run them."""

import atexit
import json
import os
import subprocess
import sys
from pathlib import Path

import torch

import gluonloader

FOLDER = Path(__file__).parent
SAMPLES, BATCH = 44, 2


class Points(torch.utils.data.Dataset):
    """A sample is its index, four numbers with random noise, and what the model should make of them."""

    def __init__(self, length=SAMPLES, noise=0.1, reader="gluonloader"):
        self.length, self.noise, self.reader = length, noise, reader

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        assert self.reader == ("torch" if gluonloader.get_worker_info() is None else "gluonloader")
        x = torch.linspace(0, index / self.length, 4) + self.noise * torch.rand(4)
        return {"index": index, "x": x, "labels": torch.tensor([index % 3 - 1.0])}


def model(dropout=0.0):
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Dropout(dropout), torch.nn.Linear(8, 1))


def loss_of(model, batch):
    return torch.nn.functional.mse_loss(model(batch["x"]), batch["labels"])


def run(program, *arguments, processes=1):
    """What each process of a program of this folder prints in its last line, which is JSON."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command = [sys.executable, *(launcher if processes > 1 else []), FOLDER / f"{program}.py", *arguments]
    root = FOLDER.parent.parent.parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(FOLDER)]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=400, env=environment)
    assert done.returncode == 0, done.stderr
    return [json.loads(line[2:]) for line in done.stdout.splitlines() if line.startswith("> ")]


def report(result):
    """Prints the result of this process; in one write, so that lines of several processes do not mix."""
    os.write(1, f"> {json.dumps(result)}\n".encode())


@atexit.register
def end_group():
    """Otherwise the threads of gloo may abort the process at its end."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
