"""Random programs of consumers of a served loader: who is late, slow, stopped or killed costs the others no batch.

In half of the programs consumers die, in the other half the server does, and a new one continues from its last state.
`GLUONLOADER_PROGRAMS=500` runs so many programs; a failure names the seed of its program.
"""

from __future__ import annotations

import os
import random
import signal
import time

import numpy as np
import pytest
from conftest import eventually, is_running
from samples import Numbered
from served import Served, new_server_name
from sharing import Rank, stop

import gluonloader as gl

pytestmark = [pytest.mark.numpy_only, pytest.mark.kill, pytest.mark.filterwarnings("ignore:resuming")]

PROGRAMS = int(os.environ.get("GLUONLOADER_PROGRAMS", "6"))
BATCHES, TOTAL = 15, 60  # of an epoch, and that a consumer reads
ACTIONS = ("is slow", "stops", "keeps batches", "keeps no batches", "forks", "reconnects")


def loader_of(count):
    executor = {"num_workers": count, "start_method": "fork"} if count else {}
    return gl.DataLoader(Numbered(4 * BATCHES), 4, shuffle=True, seed=1, **executor)


def read_kept_in_child(kept):
    """A forked child reads the batches that its parent keeps."""
    child = os.fork()
    if not child:
        os._exit(int(not all((batch == values).all() for batch, values in kept)))
    assert os.waitpid(child, 0)[1] == 0


def consume(one, name, seed, is_late, dies):
    """The batches that a consumer gets, with random actions; it notices if a batch that it keeps changes."""
    rng, found, kept, keeps = random.Random(f"{seed} {one}"), [], [], False
    time.sleep(0.05 * is_late)
    with gl.attach(name, wait=60) as loader:
        while len(found) < TOTAL:
            try:
                for batch in loader:
                    found.append(batch[:, 0].tolist())
                    if keeps:
                        kept.append((batch, np.array(batch)))
                    if len(found) == TOTAL:
                        break
                    if rng.random() < 0.9:
                        continue
                    action = rng.choice(ACTIONS)
                    if action == "is slow":
                        time.sleep(0.02)
                    elif action == "stops":
                        stop(os.getpid())
                    elif action.startswith("keeps"):
                        assert all((batch == values).all() for batch, values in kept)
                        keeps, kept = action == "keeps batches", []
                    elif action == "forks":
                        read_kept_in_child(kept)
                    else:
                        loader.reconnect()
                    if dies and rng.random() < 0.3:
                        os.kill(os.getpid(), signal.SIGKILL)
            except gl.errors.LoaderClosed:
                loader.reconnect(wait=60)
    assert all((batch == values).all() for batch, values in kept)
    return found


def restarted(make, name, number, rng):
    """A server whose forerunners were killed."""
    state = None
    for _ in range(3):
        with Served(make, name, state, consumers=number) as server:
            enough = rng.randint(3, 10)
            while server.ask("stats").batches < enough:
                state = server.ask("state_dict")
            server.kill()
    return Served(make, name, state, consumers=number)


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_a_random_program_loses_doubles_and_changes_nothing(seed):
    rng, name = random.Random(seed), new_server_name()
    number, count, restarts = rng.randint(1, 4), rng.randint(0, 2), rng.random() < 0.5
    dies = [one > 0 and not restarts and rng.random() < 0.4 for one in range(number)]
    is_late = [one > 0 and not restarts and rng.random() < 0.3 for one in range(number)]
    readers = [Rank(one, consume, name, seed, is_late[one], dies[one]) for one in range(number)]
    first = number - sum(is_late)  # consumers for whom the first batch waits

    def make():
        return loader_of(count)

    with restarted(make, name, number, rng) if restarts else Served(make, name, consumers=first) as server:
        answers = [reader.answer() for reader in readers]
        assert eventually(lambda: not server.ask("stats").consumers)
        pid = server.pid
    with loader_of(0) as own:
        expected = [batch[:, 0].tolist() for _ in range(2 * TOTAL // BATCHES + 2) for batch in own]
    latest = TOTAL + 10 if any(is_late) else 0  # where a consumer may start: a late one may come before another
    for found, dead in zip(answers, dies, strict=True):
        assert found is not None or dead
        assert found is None or any(expected[start : start + TOTAL] == found for start in range(latest + 1))
    assert not is_running(pid)
