"""Programs with several processes: torchrun with gloo, and processes that are told their ranks, as with JAX."""

import json
import shutil
import subprocess
import sys

import pytest
from conftest import load_or_skip

from gluonloader import merge_states

pytestmark = pytest.mark.spawn

READ = """
import json, sys, warnings
from pathlib import Path
import gluonloader as gl

warnings.filterwarnings("ignore", "resuming")

class Files(gl.IterableDataset):
    def __init__(self, lengths):
        self.lengths = lengths

    def shard(self, num_shards, index):
        own = range(index, len(self.lengths), num_shards)
        return [1000 * file + number for file in own for number in range(self.lengths[file])]

def read(folder, ranks, most, workers, step=lambda: None):
    files, samples = Files([40, 11, 25, 3, 38, 20]), []
    files = gl.IterableDataset(files, num_shards=6)
    with gl.DataLoader(files, 4, seed=1, ranks=ranks, num_workers=workers, shuffle=True) as loader:
        if (folder / "state.json").exists():
            loader.load_state_dict((folder / "state.json").read_text())
        iterator = iter(loader)
        for _, batch in zip(range(most), iterator):
            samples.append(batch.tolist())
            step()
        answer = {"batches": samples, "state": loader.state_dict()}
    (folder / f"{ranks.index}.json").write_text(json.dumps(answer))
"""
ALL = sorted(1000 * file + number for file, length in enumerate([40, 11, 25, 3, 38, 20]) for number in range(length))

JAX_STYLE = """
folder, index, count, most = Path(sys.argv[1]), *map(int, sys.argv[2:])
read(folder, gl.Ranks(index, count), most, workers=2)
"""

# Each step waits for all ranks, as an optimizer does.
TORCHRUN = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")

def gather(count):
    counts = [None] * dist.get_world_size()
    dist.all_gather_object(counts, count)
    return counts

folder, policy, most = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
ranks = gl.Ranks.of("torch", policy, gather=gather)
read(folder, ranks, most, workers=1, step=lambda: dist.all_reduce(torch.zeros(1)))
dist.destroy_process_group()
"""


def results(folder, count):
    """What the ranks have written; their states become the state of the next run."""
    answers = [json.loads((folder / f"{index}.json").read_text()) for index in range(count)]
    states = [answer["state"] for answer in answers]
    (folder / "state.json").write_text(json.dumps(merge_states(states) if count > 1 else states[0]))
    return [answer["batches"] for answer in answers]


def jax_style(folder, count, most):
    programs = [
        subprocess.Popen([sys.executable, "-c", READ + JAX_STYLE, *map(str, (folder, index, count, most))])
        for index in range(count)
    ]
    assert [program.wait(120) for program in programs] == [0] * count
    return results(folder, count)


def torchrun(folder, count, policy, most):
    (folder / "program.py").write_text(READ + TORCHRUN)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
    arguments = [folder / "program.py", folder, policy, str(most)]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    return results(folder, count)


def flat(batches):
    return [sample for rank in batches for batch in rank for sample in batch]


def test_processes_that_are_told_their_ranks(tmp_path):
    """Two ranks read the first batches once; each of the other programs goes on from their state."""
    first = tmp_path / "first"
    first.mkdir()
    before = jax_style(first, 2, 5)
    for then in (3, 1):
        after = jax_style(shutil.copytree(first, tmp_path / f"{then}"), then, 1000)
        assert sorted(flat(before) + flat(after)) == ALL


def test_torchrun(tmp_path):
    load_or_skip("torch")
    before = torchrun(tmp_path, 2, "drop", 5)
    assert [len(batches) for batches in before] == [5, 5]
    after = torchrun(tmp_path, 3, "repeat", 1000)
    assert len({len(batches) for batches in after}) == 1
    assert sorted(set(flat(before) + flat(after))) == ALL
