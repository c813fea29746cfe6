"""The fetcher: the only process of a machine that talks to a store for a folder, and writes and removes its files.

    loader --Soon--> fetcher --requests--> store
    worker --Want--> fetcher <--blocks---- store
    worker <--Ready- fetcher --writes, checks, removes--> files --mapped--> worker

A client starts it if there is none; it ends with its last client. It is started by exec, so it inherits no memory, and
a library that does not survive a fork can run in it.

NOTE [one fetcher]: a fetcher holds the lock of the folder, and only then takes the name of its socket. The kernel frees
both when the process has ended, in whatever way. So several clients may start fetchers at the same time: all but one of
these end at once.

NOTE [room]: room for a block is counted before it is requested, so the files, with those that are being written, never
occupy more than the limit. Blocks that nobody needs go first. If there are none left, a block makes room for one that
is needed sooner: a client waits for it, or at least wants it now. So a client that wants many blocks, or is stopped,
occupies the room of only one block, which `Ready` has announced. The client that has waited longest comes first.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from ..units import size
from ..wire.clients import Client, Clients
from ..wire.descriptors import receive_bytes
from ..wire.ends import close_end
from ..wire.greeting import MESSAGE_BYTES, Refused, Welcome, encode
from ..wire.names import listen
from .contents import Contents, is_worth_pruning
from .folder import LINGER_S, LOCK, Folder, space_of
from .messages import (
    AskCounts,
    Blocks,
    CacheHello,
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
    environment_hashes,
    from_client,
)
from .objects import Block, Remote
from .requests import End, Requests, is_disk_full, is_final
from .source import Fault, Source

_QUEUE: Final = 256  # clients that may wait to be accepted
_FEWEST_BLOCKS: Final = 2  # with which a fetcher can go on, if the disk is full
_TROUBLE_S: Final = 1.0  # how often clients are told of trouble
_GROW_S: Final = 10.0  # after the disk was full, when to look whether it has room again; and how often
_GROWTH: Final = 8  # by which part of its limit the cache grows then, at most
_LOOK_S: Final = 0.1  # how often to look for room for a client that waits; nobody says when a block was closed

Question = Find | List

_AWAITED, _WANTED, _SOON, _RECENT = range(4)  # how soon a block is needed; see NOTE [room]
_RECENT_SHARE: Final = 0.5  # of the limit, for blocks that were wanted lately


@dataclass(eq=False, slots=True)
class Program(Client):
    """A process that uses the cache.

    Attributes:
        wants: the blocks that it needs now, in order; they stay until it has said that it needs others, or none.
        answered: `Ready` was sent for the first of these.
        soon: the blocks that each of its loaders will need next, in order.
        asked: when it has said what it wants.
        told: when `Trouble` was sent last.
    """

    wants: dict[Block, None] = field(default_factory=dict)
    answered: bool = False
    soon: dict[int, dict[Block, None]] = field(default_factory=dict)
    asked: float = 0.0
    told: float = 0.0

    @property
    def waits(self) -> bool:
        return bool(self.wants) and not self.answered


class Fetcher(Clients[Program]):
    """Serves the clients of one folder.

    Args:
        facts: of the client that has started it; see `CacheHello`.
        patience_s: a request fails if no byte arrives for so many seconds; it is made again after as many at most.
    """

    def __init__(self, path: str, listener: socket.socket, facts: dict[str, Any], patience_s: float) -> None:
        self._facts, self._environment = facts, environment_hashes()
        self._block_bytes: int = facts["block"]
        super().__init__(listener, Welcome(os.getpid()), CacheHello)
        self._source, self._remotes = Source(patience_s), dict[str, Remote]()
        self._folder, self._contents = Folder(path), Contents(facts["limit"])
        self._contents.add_all({left.block: left.space for left in self._folder.take_over()})
        self._blocks = Requests[Block](self._receive, self._folder.write, self.wake, facts["requests"], patience_s)
        self._checks = Requests[Block](self._check, self._nothing, self.wake, 2, patience_s)
        self._questions = Requests[Question](self._ask, self._nothing, self.wake, facts["requests"], patience_s)
        self._recent: dict[Block, None] = {}  # blocks that were wanted, the last one comes last
        self._known: dict[Question, Found | Listed] = {}
        self._asked: dict[Question, list[Program]] = {}  # who waits for the answer
        self._failed: dict[Block, Unavailable] = {}
        self._met: set[Block] = set()  # blocks that were counted as a hit or a miss, while they are needed
        self._hits = self._misses = self._removed = self._damaged = 0
        self._waited_s = 0.0
        self._alone_since: float | None = time.monotonic()
        self._may_grow = 0.0  # when to look whether there is room again on a disk that was full
        self._is_changed = False  # what clients need
        self._needed: dict[Block, int] = {}
        self._missing: dict[Block, None] = {}  # of these, those that are not there yet
        self._to_check: dict[Block, None] = {}  # needed blocks of an earlier fetcher, whose check was not started yet
        self._make_room(0, _SOON)  # the limit may have been larger

    def run(self) -> None:
        """Serves until no client is left."""
        while not self._is_alone():
            self._work()
            requests_s = [requests.wait_s() for requests in (self._blocks, self._questions)]
            waits = [self.send_pending(), *requests_s, self._look_s(), self._alone_s()]
            wait_s = min([seconds for seconds in waits if seconds is not None], default=None)
            for descriptor, _ in self.poll.poll(None if wait_s is None else 1000 * wait_s + 1):
                self.handle(descriptor)

    def _is_alone(self) -> bool:
        """Whether no client is left, and none has come for some time."""
        if self.clients:
            self._alone_since = None
        elif self._alone_since is None:
            self._alone_since = time.monotonic()
        seconds = self._alone_s()
        return seconds is not None and seconds <= 0

    def _alone_s(self) -> float | None:
        return None if self._alone_since is None else self._alone_since + LINGER_S - time.monotonic()

    def _look_s(self) -> float | None:
        return _LOOK_S if any(client.waits for client in self.clients.values()) else None

    # -- clients -------------------------------------------------------------------------------------------------------

    def admit(self, connection: socket.socket, pid: int, hello: CacheHello) -> Program | Refused:
        refused = self._refusal(hello)
        if refused is None:
            return Program(connection, pid)
        if not self.clients:  # this fetcher only lingers; the process starts another one as it likes it
            self._alone_since = -math.inf
            raise ValueError("this fetcher has ended")
        return refused

    def _refusal(self, hello: CacheHello) -> Refused | None:
        if not hello.facts:  # it only looks
            return None
        for name, ours in self._facts.items():
            if hello.facts.get(name) != ours:
                here, there = f"{name}={hello.facts.get(name)!r} here", f"{name}={ours!r} in another program"
                what = f"{here}, but {there} (pid {self._others}) that uses this cache"
                return Refused(f"{what}; pass the same, or use another folder")
        theirs, known = hello.environment, self._environment
        if changed := sorted(name for name in {**theirs, **known} if theirs.get(name) != known.get(name)):
            what = f"another program (pid {self._others}) uses this cache with another value of {changed[0]}"
            return Refused(f"{what}; set the same in both, or use another folder")
        return None

    @property
    def _others(self) -> str:
        return ", ".join(sorted({str(client.pid) for client in self.clients.values()}))

    def joined(self, client: Program) -> None:
        pass

    def hear(self, client: Program) -> None:
        try:
            data = receive_bytes(client.connection, MESSAGE_BYTES)
            if data:
                self._obey(client, from_client(data))
                return
        except BlockingIOError:
            return
        except (OSError, ValueError):  # it is gone, or no process of this library
            pass
        self.forget(client)
        close_end(client.connection)

    def forget(self, client: Program) -> None:
        super().forget(client)
        others = {what: [other for other in asked if other is not client] for what, asked in self._asked.items()}
        self._asked = {what: asked for what, asked in others.items() if asked}
        self._questions.forget_others(self._asked)
        self._is_changed = True
        client.wants.clear()
        client.soon.clear()

    def send(self, client: Program, what: Any) -> None:
        client.connection.send(encode(what))

    def _obey(self, client: Program, message: Any) -> None:
        if isinstance(message, (Find, List)):
            self._asked.setdefault(message, []).append(client)
        elif isinstance(message, Want):
            for block in client.wants:
                self._recent.pop(block, None)
                self._recent[block] = None
            if is_worth_pruning(self._recent, len(self._contents)):
                self._lately()
            client.wants = self._blocks_of(message)
            for block in client.wants:
                self._failed.pop(block, None)  # it asks again, so the store is asked again, too
            client.answered, client.asked = False, time.monotonic()
            client.told = client.asked
            self._waited_s += message.waited_s
        elif isinstance(message, Soon):
            before = client.soon.get(message.loader, {}) if message.goes_on else {}
            others = {loader: blocks for loader, blocks in client.soon.items() if loader in message.loaders}
            client.soon = {**others, message.loader: {**before, **self._blocks_of(message)}}
        elif isinstance(message, AskCounts):
            client.pending.append(Counts(self._counts()))

    def _blocks_of(self, message: Blocks) -> dict[Block, None]:
        self._is_changed = True
        keys = [self._know(*about).key for about in message.objects]
        return dict.fromkeys(Block(keys[place], start, stop) for place, start, stop in message.blocks)

    def _know(self, url: str, nbytes: int, etag: str) -> Remote:
        remote = Remote(url, nbytes, etag)
        if remote.key not in self._remotes:
            self._remotes[remote.key] = remote
            self._contents.know(remote.key)
        return self._remotes[remote.key]

    def _counts(self) -> dict[str, Any]:
        requests = self._blocks.made + self._questions.made
        return {
            "hits": self._hits,
            "misses": self._misses,
            "requests": requests,
            "repeated": self._blocks.repeated,
            "failed": self._blocks.failed + self._questions.failed,
            "fetched": self._blocks.fetched,
            "removed": self._removed,
            "damaged": self._damaged,
            "waited_s": self._waited_s,
            "nbytes": self._contents.used,
            "limit": self._contents.limit,
            "blocks": len(self._contents),
            "pid": os.getpid(),
        }

    # -- blocks --------------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        """Takes what has arrived, answers, and starts what is needed next."""
        for known in self._questions.ended():
            self._answer_question(known)
        for checked in self._checks.ended():
            self._take_checked(checked)
        for received in self._blocks.ended():
            self._take(received)
        for question in list(self._asked):
            if self._questions.free and self._questions.may_start(question):
                self._questions.start(question)
        if self._is_changed:
            self._update_needed()
        self._check_all()
        self._provide_all()
        self._blocks.repeat_slow()
        self._answer_wants()

    def _update_needed(self) -> None:
        """Collects what clients need; not after each event, since there may be thousands of blocks."""
        self._is_changed = False
        self._needed = needed = self._need()
        coming = [block for block, when in needed.items() if when != _RECENT]
        self._to_check = dict.fromkeys(filter(self._folder.is_unchecked, coming))
        self._missing = dict.fromkeys(block for block in coming if block not in self._to_check)
        self._met &= needed.keys()
        self._failed = {block: failed for block, failed in self._failed.items() if block in needed}
        self._blocks.forget_others(needed)
        if is_worth_pruning(self._remotes, len(needed) + len(self._blocks.running)):
            keys = {block.key for block in (*needed, *self._blocks.running)}
            self._remotes = {key: remote for key, remote in self._remotes.items() if key in keys}
            self._contents.forget_others(keys)

    def _check_all(self) -> None:
        """Checks blocks of an earlier fetcher that are needed."""
        while self._to_check and self._checks.free:
            block = next(iter(self._to_check))
            del self._to_check[block]
            if self._folder.is_unchecked(block) and self._checks.may_start(block):
                self._checks.start(block)

    def _provide_all(self) -> None:
        settled = []
        for block in self._missing:
            when = self._needed[block]
            if not self._provide(block, when) and when != _AWAITED:
                break
            if self._is_settled(block):
                settled.append(block)
            elif not self._blocks.free:
                break
        for block in settled:
            del self._missing[block]

    def _is_settled(self, block: Block) -> bool:
        """Whether nothing more has to be done for a block."""
        return self._is_there(block) or block in self._failed

    def _need(self) -> dict[Block, int]:
        """All blocks that clients need, and how soon; first come those that are needed first."""
        clients = sorted(self.clients.values(), key=lambda client: client.asked)
        needed = {next(iter(client.wants)): _AWAITED for client in clients if client.wants}
        for block in _in_turn([iter(client.wants) for client in clients if client.wants]):
            needed.setdefault(block, _WANTED)
        soon = [blocks for client in clients for blocks in client.soon.values() if blocks]
        for block in _in_turn(list(map(iter, soon))):
            needed.setdefault(block, _SOON)
        if not soon:  # nobody knows what comes next, so probably what was wanted lately
            needed.update(dict.fromkeys((block for block in self._lately() if block not in needed), _RECENT))
        return needed

    def _lately(self) -> list[Block]:
        """The blocks that were wanted lately and are still there, the last one first; forgets the others."""
        left = _RECENT_SHARE * self._contents.limit
        kept = []
        for block in reversed(self._recent):
            left -= space_of(block.nbytes)
            if left >= 0 and block in self._contents:
                kept.append(block)
        self._recent = dict.fromkeys(reversed(kept))
        return kept

    def _provide(self, block: Block, when: int) -> bool:
        """Makes a block available, if that is possible now; returns False if there is no room for it."""
        if block in self._failed or block in self._blocks.running or block in self._checks.running:
            return True
        if block in self._contents:
            self._meet(block, hit=True)
        elif self._blocks.free and self._blocks.may_start(block):
            space = space_of(block.nbytes)
            if not self._make_room(space, when):
                return False
            self._contents.add(block, space)
            self._meet(block, hit=False)
            self._blocks.start(block)
        return True

    def _meet(self, block: Block, hit: bool) -> None:
        if block not in self._met:
            self._met.add(block)
            self._hits += hit
            self._misses += not hit

    def _make_room(self, space: int, when: int) -> bool:
        """See NOTE [room]."""
        if not self._contents.has_room(space):
            self._grow()
        while not self._contents.has_room(space):
            if not any(map(self._remove, self._contents.unneeded(self._needed))):
                break
        while not self._contents.has_room(space):
            later = [block for block, other in self._needed.items() if other > when and block in self._contents]
            if not any(map(self._remove, reversed(later))):
                break
        return self._contents.has_room(space)

    def _remove(self, block: Block) -> bool:
        """Removes a block from the folder, unless it is read just now."""
        if block in self._blocks.running or block in self._checks.running or not self._folder.remove(block):
            return False
        self._contents.remove(block)
        self._removed += 1
        return True

    def _receive(self, block: Block) -> bytes:
        return self._source.read(self._remotes[block.key], block.start, block.stop)

    def _check(self, block: Block) -> bytes:
        if not self._folder.check(block):
            raise ValueError("it is damaged")
        return b""

    def _nothing(self, what: object, data: bytes) -> None:
        pass

    def _take_checked(self, end: End[Block]) -> None:
        if end.error is None:
            self._meet(end.request.what, hit=True)
        else:
            self._contents.remove(end.request.what)
            self._checks.forget(end.request.what)
            self._damaged += 1
            self._is_changed = True  # it is missing now

    def _take(self, end: End[Block]) -> None:
        block, error = end.request.what, end.error
        if error is None:
            return
        self._contents.remove(block)
        if is_disk_full(error):
            self._shrink(block)
        elif isinstance(error, Fault) and is_final(error):
            self._blocks.forget(block)
            started = end.request.started
            if any(block in client.wants and client.asked > started for client in self.clients.values()):
                return  # somebody asked after this request was made, and gets a new answer
            self._failed[block] = Unavailable(self._remotes[block.key].url, error.kind, str(error))

    def _shrink(self, block: Block) -> None:
        """The disk has less room than the limit, so the cache lives with what it has."""
        least = _FEWEST_BLOCKS * space_of(self._block_bytes)
        self._contents.limit = max(least, min(self._contents.limit, self._contents.used))
        self._may_grow = time.monotonic() + _GROW_S
        text = f"the disk of {self._folder.path} is full, so the cache uses only {size(self._contents.limit)} of it"
        self._blocks.trouble[block] = f"{text}; free some of the disk"

    def _grow(self) -> None:
        """If the disk was full and has room again, the cache may use half of that room.

        In small steps: a quota, or too many files, make a disk full that seems to have room.
        """
        now, most = time.monotonic(), self._facts["limit"]
        if self._contents.limit == most or now < self._may_grow:
            return
        self._may_grow = now + _GROW_S
        with suppress(OSError):
            disk = os.statvfs(self._folder.path)
            coming = sum(space_of(block.nbytes) for block in self._blocks.running)  # which `used` contains already
            room = max(0, disk.f_bavail * disk.f_frsize - coming) // 2
            limit = self._contents.used + min(room, max(most // _GROWTH, space_of(self._block_bytes)))
            self._contents.limit = min(most, max(self._contents.limit, limit))

    # -- answers -------------------------------------------------------------------------------------------------------

    def _ask(self, question: Question) -> bytes:
        url = question.url
        if isinstance(question, Find):
            remote = self._source.find(url)
            self._known[question] = Found(url, remote.size, remote.etag)
        else:
            page = self._source.page(url, question.after)
            names = [remote.url[len(url) :] for remote in page]
            sizes, etags = [remote.size for remote in page], [remote.etag for remote in page]
            self._known[question] = Listed(url, question.after, names, sizes, etags)
        return b""

    def _answer_question(self, end: End[Question]) -> None:
        question, error = end.request.what, end.error
        if error is not None and not is_final(error):
            for client in self._asked.get(question, ()):
                client.pending.append(Trouble(str(error)))
            return
        assert error is None or isinstance(error, Fault)
        answer = self._known.pop(question) if error is None else Unavailable(question.url, error.kind, str(error))
        for client in self._asked.pop(question, ()):
            client.pending.append(answer)
        self._questions.forget(question)

    def _answer_wants(self) -> None:
        now = time.monotonic()
        for client in self.clients.values():
            if not client.waits or client.pending:
                continue
            block = next(iter(client.wants))  # it reads them in this order
            if (failed := self._failed.get(block)) is not None:
                client.pending.append(failed)
                client.wants, client.answered, self._is_changed = {}, True, True
            elif self._is_there(block) and not self._folder.contains(block):  # somebody else has removed it
                self._contents.remove(block)
                self._is_changed = True
            elif self._is_there(block):
                client.pending.append(Ready())
                client.answered = True
            elif now - client.told > _TROUBLE_S:
                client.told = now
                client.pending.append(Trouble(self._blocks.trouble.get(block, self._state_of(block))))

    def _is_there(self, block: Block) -> bool:
        is_coming = block in self._blocks.running or block in self._checks.running or self._folder.is_unchecked(block)
        return block in self._contents and not is_coming

    def _state_of(self, block: Block) -> str:
        if block in self._blocks.running:
            return "no answer yet"
        if block in self._checks.running or block in self._contents:
            return "the file is being checked"
        if self._blocks.free:
            return f"there is no room: other processes use all {size(self._contents.limit)}; pass a larger limit"
        return f"{len(self._blocks.running)} other requests are running"


def _in_turn(iterators: list[Iterator[Block]]) -> Iterator[Block]:
    """The first item of each, then the second item of each, and so on."""
    while iterators:
        for iterator in list(iterators):
            try:
                yield next(iterator)
            except StopIteration:
                iterators.remove(iterator)


def main() -> None:
    """Runs a fetcher; its arguments, as JSON, are those of `start` in client.py."""
    given = json.loads(sys.argv[1])
    with suppress(OSError):
        os.setsid()  # so that Ctrl-C in a terminal does not reach it
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # the program may be content with fewer
    path: str = given["folder"]
    os.chdir(path)
    lock = open(os.path.join(path, LOCK), "ab")  # noqa: SIM115 - held until the process ends
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return  # see NOTE [one fetcher]
    if (listener := listen(given["address"], _QUEUE)) is None:
        return
    fetcher = Fetcher(path, listener, given["facts"], given["patience_s"])
    fetcher.run()
    fetcher.close()
