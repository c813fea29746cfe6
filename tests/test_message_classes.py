"""Tests of `message`: all but the refusal of an assignment is as for a frozen dataclass."""

import dataclasses
import pickle

import pytest

from gluonloader.messages import message


@message(frozen=True, slots=True)
class Sent:
    number: int
    body: list = dataclasses.field(default_factory=list, repr=False)


@message(frozen=True, slots=True)
class SentBy(Sent):
    name: str = "a"


@message(frozen=True, slots=True, eq=False)
class Unique:
    number: int

    def __repr__(self):
        return "its own"


def test_is_a_dataclass():
    sent = SentBy(1, [2], "b")
    assert repr(sent) == "SentBy(number=1, name='b')"
    assert sent == SentBy(1, [2], "b") == pickle.loads(pickle.dumps(sent))
    assert dataclasses.replace(sent, name="c") == SentBy(1, [2], "c") != sent
    assert Sent(1, [2]) != SentBy(1, [2])
    assert not hasattr(sent, "__dict__")


def test_hash_is_that_of_the_fields():
    assert hash(Sent(1, ())) == hash(Sent(1, ()))
    with pytest.raises(TypeError, match="unhashable"):
        hash(Sent(1))


def test_without_eq_each_is_unique():
    assert Unique(1) != Unique(1)
    assert len({Unique(1), Unique(1)}) == 2
    assert repr(Unique(1)) == "its own"
