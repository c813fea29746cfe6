"""Faults of the wire: names, the door, messages with descriptors, and how ranks meet."""

from __future__ import annotations

from mutation import Mutation

MUTATIONS = [
    Mutation(
        "a connect waits for ever for a process that accepts nobody",
        "wire/names.py",
        "        if time.monotonic() > deadline:\n",
        "        if False:\n",
    ),
    Mutation(
        "a process connects to the server of another user",
        "wire/names.py",
        "    if (uid := peer(connection).uid) != os.geteuid():\n        raise OtherUser(uid)\n",
        "",
    ),
    Mutation(
        "a failed connect leaves its socket open",
        "wire/names.py",
        "        if not connected:\n            close_end(connection)\n",
        "        pass\n",
    ),
    Mutation(
        "processes of other users are let in",
        "wire/door.py",
        "        if peer(connection).uid != os.geteuid():\n",
        "        if False:\n",
    ),
    Mutation(
        "guests that say nothing are kept",
        "wire/door.py",
        "        if len(self._silent) > _MOST_SILENT:\n",
        "        if False:\n",
    ),
    Mutation(
        "the newest guest is dropped instead of the oldest",
        "wire/door.py",
        "            first = self._silent.pop(next(iter(self._silent)))\n",
        "            first = self._silent.popitem()[1]\n",
    ),
    Mutation(
        "a door that has paused stays closed",
        "wire/door.py",
        "        self._poll.register(self._listener, select.POLLIN)\n",
        "",
    ),
    Mutation(
        "a descriptor that is lost is not noticed",
        "wire/descriptors.py",
        "    return Incoming(data, list(numbers), bool(flags & socket.MSG_CTRUNC))\n",
        "    return Incoming(data, list(numbers), False)\n",
    ),
    Mutation(
        "the second of two descriptors is dropped",
        "wire/descriptors.py",
        "    return Incoming(data, list(numbers), bool",
        "    return Incoming(data, list(numbers)[:1], bool",
    ),
    Mutation(
        "a worker keeps all slabs",
        "executors/process/lane_end.py",
        "        if len(self._slabs) > self._most:\n",
        "        if False:\n",
    ),
    Mutation(
        "a worker forgets the slab that it has used last",
        "executors/process/lane_end.py",
        "            self.forget(*next(iter(self._slabs)))\n",
        "            self.forget(*list(self._slabs)[-1])\n",
    ),
    Mutation(
        "the main program does not learn that a worker has forgotten a slab",
        "executors/process/socket_lane.py",
        "                self._known.discard(reply.slab)\n",
        "                pass\n",
        note="forgotten slabs",
    ),
    Mutation(
        "the slabs of a rank that leaves stay mapped",
        "executors/process/lane_end.py",
        "        self._slabs.forget_all(self)\n",
        "",
    ),
    Mutation(
        "programs with other arguments meet",
        "executors/shared/program.py",
        "    return [*started, script, *_same_arguments(sys.argv[1:])]\n",
        "    return [*started, script]\n",
    ),
    Mutation(
        "an argument after an option of the rank is left out",
        "executors/shared/program.py",
        "            is_value = not equals\n",
        "            is_value = True\n",
    ),
    Mutation(
        "a launcher counts that has not made the rank",
        "ranks.py",
        "        if [os.environ.get(name) for name in pair] == [str(index), str(count)]\n",
        "        if all(name in os.environ for name in pair)\n",
    ),
    Mutation(
        "a server that is stopped stays when the last rank leaves",
        "executors/shared/meeting.py",
        "                signal.pidfd_send_signal(pidfd.fileno(), signal.SIGKILL)\n",
        "                pass\n",
    ),
    Mutation(
        "the server is killed although other ranks use it",
        "executors/shared/crew.py",
        "            await_end(server, alone=self.ranks == 1)\n",
        "            await_end(server, alone=True)\n",
    ),
    Mutation(
        "what the queue of a client does not take is not tried again",
        "wire/clients.py",
        "        return _RETRY_S if any(client.pending for client in self.clients.values()) else retry_s\n",
        "        return retry_s\n",
        note="slow clients",
    ),
    Mutation(
        "a process with another version of the library is let in",
        "wire/clients.py",
        "        if hello.version == self._version:\n",
        "        if True:\n",
    ),
    Mutation(
        "a rank that leaves is not told that the server goes on",
        "executors/shared/server.py",
        "                send(connection, Goodbye())\n",
        "                pass\n",
    ),
    Mutation(
        "close waits for a thread that waits for a server which reads nothing",
        "serving/connection.py",
        "            if not self._wait(select.POLLOUT | select.POLLRDHUP, deadline):",
        "            if not self._wait(select.POLLOUT, deadline):",
    ),
    Mutation(
        "a server that reads nothing is an error that does not say so",
        "serving/connection.py",
        "                raise self._no_answer(self._timeout)\n",
        "                raise BlockingIOError\n",
    ),
    Mutation(
        "a loader that is deleted while Python ends uses names that are gone",
        "executors/shared/meeting.py",
        "        if not ends():\n",
        "        if True:\n",
        note="exit",
    ),
    Mutation(
        "a server that has ended is asked again without end",
        "serving/connection.py",
        "        self._asks_again = False  # nobody hears it any more\n",
        "",
    ),
]
