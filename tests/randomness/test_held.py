"""Generators that a dataset holds: what the search finds, and that their numbers depend only on the batch."""

import functools
import random
import sys
import types

import numpy as np
import pytest

from gluonloader.randomness import PreservedGenerators, find_generators, seed_also


class Plain:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class Slotted:
    __slots__ = ("rng", "unset")

    def __init__(self, rng):
        self.rng = rng


class SlottedToo(Slotted):
    __slots__ = ("other",)


class Items(list):
    def __iter__(self):
        raise AssertionError("user code was called")


class Hostile:
    """Whatever is looked up on it calls code of the user's."""

    def __init__(self, rng):
        object.__setattr__(self, "inner", [rng])

    def _fails(self, *arguments):
        raise AssertionError("user code was called")

    __getattribute__ = __getattr__ = __eq__ = __hash__ = __len__ = __iter__ = __bool__ = __repr__ = __getitem__ = _fails

    @property
    def rng(self):
        raise AssertionError("user code was called")


def closure_over(rng):
    return lambda x: x + rng.random()


def slotted(rng):
    made = SlottedToo(None)
    made.other = rng
    return made


def keyword_default(rng):
    def function(x, *, rng=rng):
        return x

    return function


def wrapper(rng):
    @functools.wraps(closure_over(rng))
    def function(x):
        return x

    return function


PLACES = {
    "attribute": lambda rng: Plain(rng=rng),
    "slot": Slotted,
    "slot of a base class": lambda rng: SlottedToo(rng),
    "slot of a derived class": slotted,
    "list": lambda rng: [1, [rng]],
    "subclass of list": lambda rng: Items([rng]),
    "tuple": lambda rng: (1, (rng,)),
    "dict": lambda rng: {"a": {1: rng}},
    "partial": lambda rng: functools.partial(print, 1, [rng]),
    "keyword of a partial": lambda rng: functools.partial(print, rng=rng),
    "bound method": lambda rng: types.MethodType(print, Plain(rng=rng)),
    "method of the generator": lambda rng: rng.random,
    "closure": closure_over,
    "default": lambda rng: lambda x, rng=rng: x,
    "keyword default": keyword_default,
    "wrapped function": wrapper,
    "hostile object": Hostile,
    "deep": lambda rng: functools.reduce(lambda inner, _: Plain(inner=[inner]), range(50), rng),
    "behind many files": lambda rng: Plain(
        files=[(str(i), i) for i in range(10**5)], labels=list(range(10**5)), t=[rng]
    ),
    "cycle": lambda rng: (made := Plain(rng=rng)).__dict__.update(me=made) or made,
}


@pytest.mark.parametrize("place", PLACES)
def test_the_search_finds_a_generator(place):
    rng = np.random.default_rng(1)
    (held,) = find_generators(PLACES[place](rng))
    held.seed(5)
    assert rng.random() == np.random.default_rng(np.random.PCG64(5)).random()


def of_torch():
    torch = pytest.importorskip("torch")
    generator = torch.Generator()
    return generator, lambda: [torch.rand(1, generator=generator).item(), torch.randn(1, generator=generator).item()]


def of_numpy(kind):
    generator = np.random.Generator(kind(1))
    return generator, lambda: [generator.random(), generator.normal(), generator.integers(5, dtype="i4")]


def of_numpy_legacy(kind):
    generator = np.random.RandomState(kind(1))
    return generator, lambda: [generator.rand(), generator.randn()]


def of_python():
    generator = random.Random(1)
    return generator, lambda: [generator.random(), generator.gauss(0, 1)]


BITS = (np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64, np.random.PCG64DXSM)
KINDS = {
    "torch": of_torch,
    "python": of_python,
    **{kind.__name__: functools.partial(of_numpy, kind) for kind in BITS},
    **{f"legacy {kind.__name__}": functools.partial(of_numpy_legacy, kind) for kind in BITS},
}


@pytest.mark.parametrize("seed", [0, 2**63, 2**64 - 1])
@pytest.mark.parametrize("kind", KINDS)
def test_a_found_generator_is_seeded_saved_and_restored(kind, seed):
    generator, draw = KINDS[kind]()
    (held,) = find_generators([generator])
    held.seed(seed)
    expected = [draw() for _ in range(3)]
    held.seed(seed)
    first = draw()
    with PreservedGenerators([held]):
        held.seed(3)
        other = [draw() for _ in range(2)]
    assert [first, draw(), draw()] == expected
    assert other[0] != expected[0]
    held.seed(3)
    assert draw() == other[0]


def test_generators_get_different_seeds_that_depend_on_the_batch():
    rngs = [random.Random(), random.Random()]
    seeded = []
    seed = seed_also(find_generators(rngs), seeded.append)

    def numbers(batch):
        seed(batch)
        return [rng.random() for rng in rngs]

    first, second = numbers(1), numbers(2)
    assert len({*first, *second}) == 4
    assert numbers(1) == first
    assert seeded == [1, 2, 1]


def test_without_generators_nothing_is_added():
    seed = [].append
    assert seed_also(find_generators(Plain(x=1)), seed) is seed


def test_global_generators_and_modules_are_left_alone():
    found = find_generators([random, np.random, random.seed, np.random.get_state, Plain, sys, random.SystemRandom()])
    assert found == []


def test_the_order_of_the_search_does_not_depend_on_addresses():
    def make():
        return Plain(a=[random.Random(1)], b=np.random.default_rng(2), c={"x": [np.random.RandomState(3)]})

    kinds = [[type(held.save()) for held in find_generators(make(), make())] for _ in range(3)]
    assert kinds[0] == kinds[1] == kinds[2] == [dict, dict, tuple, tuple, dict, dict]


def test_the_search_is_bounded():
    rng = random.Random(1)
    assert find_generators([1] * 99 + [rng])
    assert not find_generators([1] * 100 + [rng])
    assert find_generators([[object() for _ in range(100)] for _ in range(90)], [[[rng]]])
    assert not find_generators([[object() for _ in range(100)] for _ in range(100)], [[[rng]]])
