"""What the fetcher of a cache and its clients send each other."""

import json
from types import SimpleNamespace

import pytest

from gluonloader.stores import messages
from gluonloader.stores.cache import tell
from gluonloader.stores.messages import (
    AskCounts,
    Counts,
    Find,
    Found,
    List,
    Listed,
    Ready,
    Soon,
    Trouble,
    Unavailable,
    Want,
)
from gluonloader.stores.objects import Block, Remote
from gluonloader.wire.greeting import MESSAGE_BYTES, encode

OBJECTS = [["s3://b/a", 10, "tag"], ["s3://b/c", 5, "tag"]]
FROM_CLIENT = [Find("s3://b/a"), List("s3://b/", "s3://b/a"), Want(OBJECTS, [[0, 0, 5], [1, 0, 5]], 0.5), AskCounts(),
               Soon(OBJECTS, [[1, 0, 5]], 3, [1, 3], goes_on=True)]  # fmt: skip
FROM_FETCHER = [Found("s3://b/a", 10, "tag"), Listed("s3://b/", "", ["a"], [10], ["tag"]), Ready(), Trouble("503"),
                Unavailable("s3://b/a", "missing", "gone"), Counts({"hits": 1})]  # fmt: skip


def test_each_message_arrives_as_it_was_sent():
    assert [messages.from_client(encode(message)) for message in FROM_CLIENT] == FROM_CLIENT
    assert [messages.from_fetcher(encode(message)) for message in FROM_FETCHER] == FROM_FETCHER


STRANGERS = [b"", b"GET / HTTP/1.1", b"\xff\xfe", b"[]", b"{}", b"null", b'["Want", {"url": "x"}]', b'["Find", 3]',
             b'["Find", {"url": "x", "more": 1}]', b'["exit", {}]', b"[" * 100_000]  # fmt: skip


@pytest.mark.parametrize("data", STRANGERS, ids=lambda data: repr(data[:20]))
@pytest.mark.parametrize("decode", [messages.from_client, messages.from_fetcher])
def test_bytes_of_strangers_are_refused(decode, data):
    with pytest.raises(ValueError, match="not a message of gluonloader"):
        decode(data)


def test_each_side_takes_only_the_messages_of_the_other_side():
    for message in FROM_FETCHER:
        with pytest.raises(ValueError, match="not a message"):
            messages.from_client(encode(message))
    for message in FROM_CLIENT:
        with pytest.raises(ValueError, match="not a message"):
            messages.from_fetcher(encode(message))


def test_the_values_of_environment_variables_are_not_sent(monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "topsecret")
    first = messages.environment_hashes()
    assert "AWS_SECRET_ACCESS_KEY" in first
    assert "topsecret" not in json.dumps(first)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "other")
    assert messages.environment_hashes() != first


def test_very_many_blocks_are_told_in_several_messages():
    told = []
    cache = SimpleNamespace(reader=SimpleNamespace(tell=told.append, numbers=lambda loader: (0, [0])))
    remotes = [Remote(f"s3://bucket/object{number}", 1 << 40, "tag") for number in range(3)]
    blocks = [Block(remotes[place % 3].key, place << 22, (place + 1) << 22) for place in range(20_000)]
    tell(cache, "loader", blocks, {remote.key: remote for remote in remotes})
    assert all(len(data) <= MESSAGE_BYTES for data in told)
    soons = list(map(messages.from_client, told))
    assert [soon.goes_on for soon in soons] == [False] + [True] * (len(told) - 1)
    found = [(soon.objects[place][0], start) for soon in soons for place, start, _ in soon.blocks]
    assert found == [(remotes[place % 3].url, place << 22) for place in range(20_000)]
