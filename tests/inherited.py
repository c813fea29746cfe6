"""What a dataset can share with the main program; new interpreters import this file.

Each kind makes an object, changes it in the main program (`tell`), says in a worker whether it sees the change, and
answers there (`use`), and says in the main program whether the answer has come (`heard`).
"""

from __future__ import annotations

import socket
from multiprocessing import shared_memory

SECONDS = 20.0


class Kind:
    """What a kind does unless it says otherwise: the answer is not checked, and there is nothing to close."""

    def hand_over(self, shared):
        """Called in the program when workers have the object."""

    def heard(self, shared):
        return True

    def end(self, shared):
        pass


class Value(Kind):
    def make(self, context):
        return context.Value("i", 0)

    def tell(self, shared):
        shared.value = 7

    def use(self, shared):
        seen, shared.value = shared.value, 9
        return seen == 7

    def heard(self, shared):
        return shared.value == 9


class RawValue(Value):
    def make(self, context):
        return context.RawValue("i", 0)


class Slots(Kind):
    """Anything with items: the program writes item 0, the worker item 1."""

    def tell(self, shared):
        shared[0], shared[1] = 7, 0

    def use(self, shared):
        shared[1] = 9
        return bool(shared[0] == 7)

    def heard(self, shared):
        return bool(shared[1] == 9)


class Array(Slots):
    def make(self, context):
        return context.Array("i", 2)


class RawArray(Slots):
    def make(self, context):
        return context.RawArray("i", 2)


class SharedMemory(Slots):
    def make(self, context):
        return shared_memory.SharedMemory(create=True, size=2)

    def tell(self, shared):
        super().tell(shared.buf)

    def use(self, shared):
        return super().use(shared.buf)

    def heard(self, shared):
        return super().heard(shared.buf)

    def end(self, shared):
        shared.close()
        shared.unlink()


class Managed(Slots):
    def make(self, context):
        self.manager = context.Manager()
        return self.manager.list([0, 0])

    def end(self, shared):
        self.manager.shutdown()


class Lock(Kind):
    """The program has it, so the worker cannot get it."""

    def make(self, context):
        return context.Lock()

    def tell(self, shared):
        shared.acquire(block=False)

    def use(self, shared):
        return not shared.acquire(block=False)


class RLock(Lock):
    def make(self, context):
        return context.RLock()


class Condition(Lock):
    def make(self, context):
        return context.Condition()


class Semaphore(Kind):
    def make(self, context):
        return context.Semaphore(0)

    def tell(self, shared):
        shared.release()

    def use(self, shared):
        return shared.acquire(timeout=SECONDS)

    def heard(self, shared):
        return not shared.acquire(block=False)


class Event(Kind):
    def make(self, context):
        return context.Event(), context.Event()

    def tell(self, shared):
        shared[0].set()
        shared[1].clear()

    def use(self, shared):
        shared[1].set()
        return shared[0].is_set()

    def heard(self, shared):
        return shared[1].is_set()


class Barrier(Kind):
    def make(self, context):
        return context.Barrier(2)

    def tell(self, shared):
        shared.reset()

    def use(self, shared):
        whole = not shared.broken
        shared.abort()
        return whole

    def heard(self, shared):
        return shared.broken


class SimpleQueue(Kind):
    def make(self, context):
        return context.SimpleQueue(), context.SimpleQueue()

    def tell(self, shared):
        shared[0].put(7)

    def use(self, shared):
        shared[1].put(9)
        return shared[0].get() == 7

    def heard(self, shared):
        return shared[1].get() == 9

    def end(self, shared):
        for queue in shared:
            queue.close()


class Queue(Kind):
    def make(self, context):
        return context.Queue()

    def tell(self, shared):
        shared.put(7)

    def use(self, shared):
        return shared.get(timeout=SECONDS) == 7

    def end(self, shared):
        shared.close()
        shared.join_thread()


class JoinableQueue(Queue):
    def make(self, context):
        return context.JoinableQueue()


class AnswerQueue(Kind):
    """A thread of the worker writes the answer under a lock. A worker that is killed just then never releases it."""

    def make(self, context):
        return context.Queue()

    def tell(self, shared):
        pass

    def use(self, shared):
        shared.put(9)
        return True

    def heard(self, shared):
        return shared.get(timeout=SECONDS) == 9

    def end(self, shared):
        shared.close()


class Pipe(Kind):
    def make(self, context):
        self.own, shared = context.Pipe()
        return shared

    def hand_over(self, shared):
        shared.close()

    def tell(self, shared):
        self.own.send(7)

    def use(self, shared):
        shared.send(9)
        return shared.recv() == 7

    def heard(self, shared):
        return self.own.poll(SECONDS) and self.own.recv() == 9

    def end(self, shared):
        self.own.close()


class Socket(Kind):
    def make(self, context):
        self.own, shared = socket.socketpair()
        return shared

    def hand_over(self, shared):
        shared.close()

    def tell(self, shared):
        self.own.send(b"7")

    def use(self, shared):
        shared.send(b"9")
        return shared.recv(1) == b"7"

    def heard(self, shared):
        return self.own.recv(1) == b"9"

    def end(self, shared):
        self.own.close()
        shared.close()


KINDS = {
    kind.__name__: kind
    for kind in (
        *(Value, RawValue, Array, RawArray, SharedMemory, Managed, Lock, RLock, Condition, Semaphore, Event, Barrier),
        *(SimpleQueue, Queue, JoinableQueue, AnswerQueue, Pipe, Socket),
    )
}


class Sharing:
    """A dataset with an object of each kind; sample `i` is whether a worker sees what the program did to object `i`."""

    def __init__(self, kinds, context):
        self.kinds = [kind() for kind in kinds]
        self.shared = [kind.make(context) for kind in self.kinds]

    def __getstate__(self):
        return {"kinds": [type(kind)() for kind in self.kinds], "shared": self.shared}

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, index):
        return self.kinds[index].use(self.shared[index])

    def hand_over(self):
        for kind, shared in zip(self.kinds, self.shared):
            kind.hand_over(shared)

    def tell(self):
        for kind, shared in zip(self.kinds, self.shared):
            kind.tell(shared)

    def missing(self, batches):
        """The kinds of which a worker did not see what the program did, or the program what the worker did."""
        seen = [bool(sample) for batch in batches for sample in batch]
        assert len(seen) == len(self)
        heard = [kind.heard(shared) for kind, shared in zip(self.kinds, self.shared)]
        return [type(kind).__name__ for kind, *both in zip(self.kinds, seen, heard) if not all(both)]

    def end(self):
        for kind, shared in zip(self.kinds, self.shared):
            kind.end(shared)
        self.kinds.clear()
        self.shared.clear()
