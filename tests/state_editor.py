"""Edits states at random, and opens and seals them."""

import copy
import json

from gluonloader.state import add_checksum

NUMBERS = [0, 1, 2, 3, 4, 5, 7, 10, 100, 10**6, 10**9, 10**12, 2**31, 2**62, 2**63, 2**64, 10**30, -1, -2, -(2**63)]
ODD = [None, True, False, 1.5, float("nan"), "", "text", "AAAA", [], {}, [[]], [0], {"a": 1}, [[5, 10**9]], [[1, 2, 3]]]
ODD += [{"zlib": "AAAA"}, {"gluonloader.tuple": 3}, {"gluonloader.array": "numpy", "dtype": "S0", "shape": [10**9]}]
ODD += [{"gluonloader.array": "numpy", "dtype": "<f8", "shape": [10**9, 10**9], "base64": ""}]


def paths(value, path=()):
    """The paths of all values inside a state."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items if len(path) < 20 else ():
        yield (*path, key)
        yield from paths(item, (*path, key))


def at(value, path):
    for key in path:
        value = value[key]
    return value


def edited(rng, states):
    """A copy of one of these states with one to three edits."""
    state, deep = copy.deepcopy(rng.choice(states)), []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        found = [path for path in paths(state) if path[-1] not in ("check", "version")]
        if found:
            edit(rng, state, rng.choice(found), states, deep)
    for within, key in deep:  # at last, since `paths` and `deepcopy` are recursive
        value = 1
        for _ in range(rng.choice([50, 900, 3000])):
            value = [value]
        if isinstance(within, dict) or key < len(within):  # otherwise a later edit has removed it
            within[key] = value
    return state


def edit(rng, state, path, states, deep):
    within, key = at(state, path[:-1]), path[-1]
    old = within[key]
    kind = rng.choice(["number", "number", "near", "near", "odd", "missing", "more", "other", "twice", "text", "deep"])
    if kind == "missing":
        del within[key]
    elif kind == "more":
        if isinstance(within, list):
            within.insert(key, copy.deepcopy(rng.choice([*NUMBERS, *ODD])))
        else:
            within[rng.choice(["more", "ranks", "rank", "stop", "errors", "source", "carried", "epoch", "hints"])] = 1
    elif kind == "twice" and isinstance(within, list):
        within.append(copy.deepcopy(old))
    elif kind == "other":  # the same field of another state, or another field of the same state
        other = rng.choice([state, *states])
        within[key] = copy.deepcopy(at(other, rng.choice(list(paths(other)) or [()])))
        try:
            within[key] = copy.deepcopy(at(rng.choice(states), path))
        except (KeyError, IndexError, TypeError):
            pass
    elif kind == "text" and isinstance(old, str) and old:
        place = rng.randrange(len(old))
        within[key] = old[:place] + rng.choice("A/=x0") + old[place + 1 :]
    elif kind == "deep":
        deep.append((within, key))
    elif kind == "near" and isinstance(old, int):
        within[key] = old + rng.choice([-2, -1, 1, 1, 2, 3])
    elif kind == "near" and isinstance(old, list) and old:
        rng.choice([old.reverse, old.pop, lambda: old.append(rng.choice(NUMBERS))])()
    elif kind == "odd":
        within[key] = copy.deepcopy(rng.choice(ODD))
    else:
        within[key] = rng.choice(NUMBERS)


def sealed(state):
    """The state with a fresh checksum; without one if JSON cannot store it."""
    if isinstance(position := state.get("position"), dict) and "batch" in position:
        state = {**state, "position": sealed(position)}
    try:
        return add_checksum({name: value for name, value in state.items() if name not in ("check", "version")})
    except (RecursionError, TypeError):
        return state


def as_saved(state):
    """The state as it comes back from a file."""
    return json.loads(json.dumps(state))
