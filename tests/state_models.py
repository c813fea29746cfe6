"""What a loader has to deliver after it has loaded a state, computed from the fields of the state alone.

A batch is (its number, the keys of its samples, a random number of its seed).
"""

import base64
import zlib

import numpy as np

from gluonloader.randomness import batch_seed


def drawn(seed, epoch, number):
    """The random number that a batch with these numbers draws from `get_rng()`."""
    return int(np.random.default_rng(batch_seed(seed, epoch, number)).integers(2**40))


def is_ahead(state, number):
    return any(start <= number < stop for start, stop in state["ahead"])


# -- map-style datasets ---------------------------------------------------------------------------------------


def weights_in(value, given):
    if isinstance(value, str):
        return given
    return np.frombuffer(zlib.decompress(base64.b64decode(value["zlib"])), "<f8")


def cut(batch_sampler, keys, carried):
    """The batches of a `BatchSampler` from these keys on."""
    keys, size = [*carried, *keys], batch_sampler.batch_size
    batches = [keys[start : start + size] for start in range(0, len(keys), size)]
    if batches and len(batches[-1]) < size and batch_sampler.last_batch != "keep":
        batches.pop()
    return batches


def of_indices(state, batches, seed=None, most=40):
    """The rest of an epoch that has these batches from the position on."""
    rest = []
    for number, keys in enumerate(batches, state["batch"]):
        if not is_ahead(state, number) and len(rest) < most:
            rest.append((number, list(keys), drawn(state["seed"] if seed is None else seed, state["epoch"], number)))
    return rest


# -- iterable datasets ----------------------------------------------------------------------------------------


def of_shards(state, shards):
    """The rest of an epoch over lists of samples, and whether leftovers have other samples than the state says."""
    count, size, epoch, batch = state["num_shards"], state["batch_size"], state["epoch"], state["batch"]
    owned = range(state.get("rank", 0), count, state.get("ranks", 1))
    ended, leftovers, wrong = dict(map(tuple, state["ended"])), {}, False
    in_leftovers = len(ended) == len(owned) and batch >= (max(ended.values()) + 1) * count
    for part in state["leftovers"]:
        samples = shards[part["shard"]][part["chunk"] * size :][:size]
        samples = samples[part["start"] : part["stop"]] if len(samples) < size else []
        wrong |= len(samples) < part["stop"] - part["start"]
        key = (-1, len(leftovers)) if part["carried"] else (part["shard"], part["start"])
        leftovers[key] = samples
    rest = []
    for shard in owned:
        chunk, samples = -((shard - batch) // count), shards[shard]
        while chunk <= ended.get(shard, chunk):  # until the shard is known to end
            number = chunk * count + shard
            past = [stop for start, stop in state["ahead"] if start <= number < stop]
            if past:
                chunk = -((shard - past[0]) // count)
            elif len(read := samples[chunk * size :][:size]) == size:
                rest.append((number, read, drawn(state["seed"], epoch, -2 - 2 * number)))  # see NOTE [streams]
                chunk += 1
            else:
                ended[shard] = chunk
                if read:
                    leftovers[shard, 0] = read
                break
    rest.sort()
    first = (max(ended.values()) + 1) * count
    left = [sample for _, samples in sorted(leftovers.items(), key=lambda item: item[0][0]) for sample in samples]
    for number in range(max(first, batch), first + len(left)):
        last = left[(number - first) * size :][:size]
        short = len(last) < size and state["last_batch"] != "keep"
        if last and not short and not (in_leftovers and is_ahead(state, number)):
            rest.append((number, last, drawn(state["seed"], epoch, number)))
    return rest, wrong
