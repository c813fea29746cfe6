"""Chunks of an iterable dataset, read by `Streams` as in a worker process."""

import itertools
import json

from gluonloader.randomness import batch_seed, seed_restorable
from gluonloader.work.streams import Chunk, Hint, Streams

SEED = 5


def seeder(epoch):
    """As in a worker process."""

    def seed(number):
        seed_restorable(batch_seed(SEED, epoch, number))

    return seed


def ask(streams, number, shard=0, num_shards=1, size=3, buffer=0, epoch=0, iteration=0, hint=None, on_row=None):
    chunk = Chunk(shard, num_shards, number, size, epoch, SEED, iteration, buffer, hint)
    return streams.read(chunk, seeder(epoch), on_row)


def through_json(hint):
    return None if hint is None else Hint(hint.group, json.loads(json.dumps(hint.state)))


def read_all(dataset, **kwargs):
    """The chunks of one plain reading, the short one last, and the hints before each."""
    streams, chunks, hints = Streams(dataset), [], [None]
    for number in itertools.count():
        read = ask(streams, number, **kwargs)
        chunks.append(read.samples)
        hints.append(read.hint)
        if len(read.samples) < kwargs.get("size", 3):
            return chunks, hints


def flat(chunks):
    return list(itertools.chain.from_iterable(chunks))
