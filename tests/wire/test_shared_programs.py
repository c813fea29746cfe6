"""Random programs of ranks that share workers: who is late, slow, stopped, forked or killed costs no batch.

Each rank reads an epoch of one loader, and the next epoch of a second loader with the same name.
`GLUONLOADER_PROGRAMS=500` runs so many programs; a failure names the seed of its program.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time

import pytest
from conftest import crew, eventually, is_running, workers
from samples import Numbered
from sharing import Rank, lists, loader_of, new_name, stop

from gluonloader.options import Processes

pytestmark = [pytest.mark.numpy_only, pytest.mark.kill, pytest.mark.filterwarnings("ignore:resuming")]

PROGRAMS = int(os.environ.get("GLUONLOADER_PROGRAMS", "6"))
BATCHES = 40  # of a rank in an epoch
ACTIONS = ("worker is killed", "server is killed", "worker stops", "server stops", "rank stops", "rank is slow",
           "rank forks", "rank leaves the epoch", "rank resumes")  # fmt: skip


def processes_of(loader):
    """The pids of the server and of the workers, as far as this rank knows them now."""
    server = crew(loader)._server
    return [] if server is None else [server.welcome.pid], workers(loader)


def read_in_child(loader, expected):
    """A forked child gets the same batches from workers of its own."""
    child = os.fork()
    if not child:
        status = 1
        try:
            loader.set_epoch(0)
            iterator = iter(loader)
            status = int([next(iterator).tolist() for _ in range(2)] != expected[:2])
            loader.close()
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


def take_part(rank, number, name, seed, count, dies):
    """Reads two epochs, with random actions; returns all pids that this rank has seen."""
    rng, seen = random.Random(f"{seed} {rank}"), set()
    dataset = Numbered(4 * BATCHES * number)
    arguments = {"num_workers": count, "shuffle": True, "executor": Processes(max_retries=1000)}
    with loader_of(rank, number, None, dataset, shuffle=True) as own:
        expected = [lists(own), lists(own)]
    time.sleep(rng.choice([0, 0, 0.02]))
    for epoch in range(2):
        with loader_of(rank, number, name, dataset, **arguments) as loader:
            loader.set_epoch(epoch)
            found, iterator = [], iter(loader)
            while len(found) < BATCHES:
                found.append(next(iterator).tolist())
                if rng.random() < 0.93:
                    continue
                server, running = processes_of(loader)
                seen.update(server, running)
                action = rng.choice(ACTIONS)
                if action == "rank is slow":
                    time.sleep(0.02)
                elif action == "rank stops":
                    stop(os.getpid())
                elif action == "rank forks":
                    read_in_child(loader, expected[0])
                elif action == "rank leaves the epoch":
                    loader.set_epoch(epoch)
                    found, iterator = [], iter(loader)
                elif action == "rank resumes" and len(found) < BATCHES:
                    state = loader.state_dict()
                    del iterator
                    loader.load_state_dict(state)
                    iterator = iter(loader)
                elif pids := {"server": server, "worker": running}.get(action.split()[0]):
                    pid = rng.choice(pids)
                    if action.endswith("stops"):
                        stop(pid)
                    else:
                        with contextlib.suppress(ProcessLookupError):  # another rank has killed it
                            os.kill(pid, signal.SIGKILL)
                if dies and rng.random() < 0.2:
                    os.kill(os.getpid(), signal.SIGKILL)
            assert next(iterator, None) is None
            seen.update(*processes_of(loader))
        assert found == expected[epoch], f"epoch {epoch} of rank {rank}"
    return seen


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_a_random_program_loses_doubles_and_leaves_nothing(seed):
    rng, name = random.Random(seed), new_name()
    number, count = rng.randint(1, 4), rng.randint(1, 3)
    dies = [number > 1 and rng.random() < 0.25 for _ in range(number)]
    ranks = [Rank(rank, take_part, number, name, seed, count, dies[rank]) for rank in range(number)]
    answers = [rank.answer() for rank in ranks]
    assert all(answer is not None or dead for answer, dead in zip(answers, dies, strict=True))
    seen = set().union(*[answer for answer in answers if answer is not None])
    assert eventually(lambda: not any(map(is_running, seen)), seconds=10)
