"""Faults in the core: memory, executors, the window, plans and positions, seeds, samplers, and errors of samples."""

from __future__ import annotations

from mutation import Mutation

MUTATIONS = [
    # -- memory ---------------------------------------------------------------------------------------------------
    Mutation(
        "a slab is given back twice",
        "memory/slabs.py",
        "        self._end_flight(slab)\n        self._put(slab)\n",
        "        self._end_flight(slab)\n        self._put(slab)\n        self._put(slab)\n",
    ),
    Mutation(
        "a loan is forgotten, so a batch that the user keeps is overwritten",
        "memory/slabs.py",
        "        loan = self._loans.start(slab.number, slab, slab.memory, used, least)\n",
        "        loan = self._loans.start(slab.number, slab, slab.memory, used, least)\n"
        "        self._free.append(slab)\n",
        note="loans",
    ),
    Mutation(
        "a loan that ended is never free again",
        "memory/loans.py",
        "            del self.by_number[loan.number]\n            ended",
        "            continue\n            ended",
    ),
    Mutation(
        "a slab is used again although a framework holds it",
        "memory/loans.py",
        "            if loan.slab is not None and loan.slab.is_held:\n",
        "            if False:\n",
        note="holders",
    ),
    Mutation(
        "a slab that was on loan during a fork is used again",
        "memory/slabs.py",
        "        reference.slab.inherited = True  # NOTE [loans and fork]\n",
        "        pass\n",
        note="loans and fork",
    ),
    Mutation(
        "pages are given back that a forked child may read",
        "memory/loans.py",
        "        if not 0 < len(dead) < len(self._lent) or slab is None or slab.inherited or slab.holders:\n",
        "        if not 0 < len(dead) < len(self._lent) or slab is None or slab.holders:\n",
        note="loans and fork",
    ),
    Mutation(
        "pages are given back of a batch whose delivery was interrupted",
        "memory/loans.py",
        "        if not 0 < len(dead) < len(self._lent) or slab is None or slab.inherited or slab.holders:\n",
        "        if not dead or slab is None or slab.inherited or slab.holders:\n",
    ),
    Mutation(
        "a process can shorten a block that others have mapped",
        "memory/slab.py",
        "            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)\n",
        "            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL)\n",
    ),
    Mutation(
        "a sealed block of shared memory gives nothing back when it is closed",
        "memory/slab.py",
        "            give_back_pages(self.memory, size, self.mapped)\n",
        "            pass\n",
    ),
    Mutation(
        "pages are given back that the next array uses, too",
        "memory/slab.py",
        "    start, stop = align(start, mmap.PAGESIZE), stop // mmap.PAGESIZE * mmap.PAGESIZE\n",
        "    start, stop = align(start, mmap.PAGESIZE), align(stop, mmap.PAGESIZE)\n",
    ),
    Mutation(
        "a slab whose pages were given back is used again, without memory that is reserved",
        "memory/slabs.py",
        "        if slab.inherited or slab.given:\n",
        "        if slab.inherited:\n",
    ),
    Mutation(
        "arrays that share memory in the worker are apart in the program",
        "memory/allocator.py",
        "                return _joined(self._bounds)\n",
        "                pass\n",
        note="kept arrays",
    ),
    Mutation(
        "small arrays keep the slab of their batch",
        "memory/loans.py",
        "            if stop - start < least:\n",
        "            if False:\n",
        note="kept arrays",
    ),
    Mutation(
        "a slab in flight counts with its size, not with its allowance",
        "memory/slabs.py",
        "            if not self._reserve(budget, allowance - had):\n",
        "            if not self._reserve(budget, size - had):\n",
        note="memory limit",
    ),
    Mutation(
        "the budget allows one batch more than the limit",
        "memory/budget.py",
        "        if self.reserved + nbytes > self.most:\n",
        "        if self.reserved > self.most:\n",
        note="memory limit",
    ),
    Mutation(
        "a batch that has grown its slab is read from the old mapping",
        "memory/slabs.py",
        'map the slab again.\n        """\n        if slab.mapped < slab.size:\n            slab.map(slab.size)\n',
        'map the slab again.\n        """\n',
        note="slab growth",
    ),
    Mutation(
        "the growth of a slab by a worker is not noted",
        "memory/slabs.py",
        "        slab.size = max(slab.size, size)\n        self.largest",
        "        self.largest",
    ),
    Mutation(
        "arrays overlap, since the arena forgets the length of the last one",
        "memory/allocator.py",
        "        self.needed = offset + nbytes\n",
        "        self.needed = offset + nbytes - (nbytes > 4096)\n",
    ),
    Mutation(
        "a view in memory that the slab has outgrown counts as copied",
        "memory/allocator.py",
        "(*self._elsewhere, (slab.memory, slab.address, slab.size, 0))",
        "((slab.memory, slab.address, slab.size, 0),)",
    ),
    Mutation(
        "arrays that are not in the slab are copied before the head only if they are large",
        "memory/allocator.py",
        "            self._to_copy.append((array, offset))\n",
        "            if array.nbytes > 64:\n                self._to_copy.append((array, offset))\n",
    ),
    Mutation(
        "a buffer counts as idle while the user has a view of it",
        "memory/buffers.py",
        "lent[number]() is None and",
        "",
        note="idle buffers",
    ),
    Mutation(
        "strides of arrays in the slab are lost",
        "memory/allocator.py",
        "            strides = None if array.flags.c_contiguous else array.strides\n",
        "            strides = None\n",
    ),
    # -- executors ------------------------------------------------------------------------------------------------
    Mutation(
        "the batches of a dead worker are lost",
        "executors/lanes/dispatch.py",
        "                self.usage.retries += started\n                self.requeue(submission)\n",
        "                self.usage.retries += started\n",
        note="exactly once",
    ),
    Mutation(
        "one retry too many",
        "executors/lanes/dispatch.py",
        "lost = started and alone and deaths > self._max_retries",
        "lost = started and alone and deaths > self._max_retries + 1",
    ),
    Mutation(
        "a death counts against batches that were not started",
        "executors/lanes/dispatch.py",
        "            submission.deaths += started\n",
        "            submission.deaths += 1\n",
        note="exactly once",
    ),
    Mutation(
        "requeued batches come last",
        "executors/lanes/dispatch.py",
        "sorted((*self._backlog, submission), key=lambda other: other.number)",
        "(*self._backlog, submission)",
    ),
    Mutation(
        "the outcome of an attempt that was given up is delivered",
        "executors/base.py",
        "        return not self.cancelled and self.in_flight.has(task) and task.batch not in self.arrived\n",
        "        return not self.cancelled and task.batch not in self.arrived\n",
    ),
    Mutation(
        "the slab of a failed batch is not given back",
        "executors/lanes/dispatch.py",
        "        del lane.attempts[reply.ticket]\n        self._slabs.give_back(slab)\n",
        "        del lane.attempts[reply.ticket]\n",
    ),
    Mutation(
        "the slab of a batch that nobody wants is not given back",
        "executors/lanes/dispatch.py",
        "            if made not in wanted and self._claim(made):\n                self._slabs.give_back(made.slab)\n",
        "            if made not in wanted:\n                self._claim(made)\n",
    ),
    Mutation(
        "idle workers do not take over batches that wait behind a slow one",
        "executors/lanes/dispatch.py",
        "        return self._find_stalled() is not None\n",
        "        return False\n",
    ),
    Mutation(
        "after an interrupt, batches that were not sent are lost",
        "executors/lanes/dispatch.py",
        "self._backlog = deque(known.get(task) or Submission(task, window) for task, window in missing)",
        "self._backlog = deque(known[task] for task, window in missing if task in known)",
        note="interrupts",
    ),
    Mutation(
        "replies leave the socket before they are handled",
        "executors/lanes/lane_executor.py",
        "        for reply in replies:\n"
        "            if reply.status is Status.READY:\n"
        "                lane.ready = True\n"
        "            elif reply.status is Status.BROKEN:\n"
        "                self.crew.has_failed(fd, reply.size)\n"
        "            else:\n"
        "                if not lane.answered:\n"
        "                    self.crew.has_answered()\n"
        "                    lane.answered = True\n"
        "                self._dispatcher.handle(lane, reply)\n"
        "        lane.remove(replies)\n",
        "        lane.remove(replies)\n"
        "        for reply in replies:\n"
        "            if reply.status is Status.READY:\n"
        "                lane.ready = True\n"
        "            elif reply.status is Status.BROKEN:\n"
        "                self.crew.has_failed(fd, reply.size)\n"
        "            else:\n"
        "                if not lane.answered:\n"
        "                    self.crew.has_answered()\n"
        "                    lane.answered = True\n"
        "                self._dispatcher.handle(lane, reply)\n",
        note="lane and interrupts",
    ),
    Mutation(
        "a worker makes a batch although its attempt was cancelled",
        "executors/process/worker.py",
        "        if control[TICKET] != request.ticket:\n",
        "        if False:\n",
        note="tickets",
    ),
    Mutation(
        "a worker does not say that it has started on a batch",
        "executors/process/worker.py",
        "        control[STARTED] = request.ticket\n",
        "",
        note="exactly once",
    ),
    Mutation(
        "a swallowed error of a worker that cannot start",
        "executors/process/worker.py",
        "            self._lane.reply(Reply(Status.BROKEN, size=os.fstat(self._log).st_size))\n",
        "            pass\n",
    ),
    Mutation(
        "a worker outlives its parent",
        "executors/process/worker.py",
        "    time.sleep(_ORPHAN_S)\n    os._exit(1)\n",
        "    time.sleep(600)\n    os._exit(1)\n",
    ),
    Mutation(
        "workers compete with the training thread for its core",
        "work/core_wait.py",
        "        if os.sched_getscheduler(0) == os.SCHED_OTHER:\n",
        "        if False:\n",
        note="spinning",
    ),
    Mutation(
        "another thread than the one that asks for batches forks workers",
        "executors/process/supervisor.py",
        "        lane = process.start_as(worker)\n",
        "        lanes: list[socket.socket] = []\n"
        "        starter = util.threading.Thread(target=lambda: lanes.append(process.start_as(worker)))\n"
        "        starter.start()\n"
        "        starter.join()\n"
        "        (lane,) = lanes\n",
        note="who forks",
    ),
    Mutation(
        "a forked worker keeps the program's ends of lanes open",
        "wire/ends.py",
        '        if end is not getattr(starting, "lane", None):\n            end.close()\n',
        "        pass\n",
        note="lane ends",
    ),
    Mutation(
        "a death without an end-of-file is not noticed",
        "executors/process/socket_lane.py",
        "            return None if self.process.ended else []\n",
        "            return []\n",
        note="pidfd",
    ),
    Mutation(
        "a worker whose exit code nobody knows counts as running",
        "executors/process/supervisor.py",
        "        except ChildProcessError:\n            popen.returncode = UNKNOWN_EXIT\n",
        "        except ChildProcessError:\n            pass\n",
        note="pidfd",
    ),
    Mutation(
        "close waits for a worker that stays busy",
        "executors/process/supervisor.py",
        "            if process.is_alive():\n                process.kill()\n",
        "",
        note="closing",
    ),
    Mutation(
        "the bell of an actor's lane loses the bytes of replies that came meanwhile",
        "executors/ray/actor_lane.py",
        "self.bell.recv(max(1, len(replies)))",
        "self.bell.recv(4096)",
        note="bell",
    ),
    Mutation(
        "a fork does not wait for threads that open or close descriptors",
        "forks.py",
        "os.register_at_fork(before=no_fork.acquire, after_in_parent=no_fork.release, "
        "after_in_child=no_fork.release)\n",
        "",
        note="no fork",
    ),
    Mutation(
        "an interrupt in a loop leaves a lock locked",
        "executors/shared/meeting.py",
        "    with _reaping:\n        return _reap()\n",
        "    with _reaping:\n"
        "        for process in list(_started):\n"
        "            if process.exitcode is not None:\n"
        "                process.close()\n"
        "                _started.remove(process)\n"
        "    return any(process.ended for process in _started)\n",
        note="loops and try",
    ),
    Mutation(
        "the main thread holds a lock that an interrupt leaves locked in Python 3.14",
        "executors/lanes/lane_executor.py",
        "        self._lock = Lock()\n",
        "        self._lock = threading.RLock()\n",
        note="locks",
    ),
    Mutation(
        "a thread that has got its batch stays the leader",
        "executors/lanes/lane_executor.py",
        "            if self._leader == threading.get_ident():\n                self._leader = None\n",
        "",
        note="one leader",
    ),
    Mutation(
        "a batch that is late is waited for without end",
        "executors/lanes/lane_executor.py",
        "            if left <= 0 or window.ready is not None:\n                break\n",
        "            if window.ready is not None:\n                break\n            left = max(left, 0.01)\n",
    ),
    Mutation(
        "close does not tell waiting threads",
        "executors/lanes/lane_executor.py",
        "        if self._closed:\n            self.close()\n            raise LoaderClosed",
        "        if self._shut:\n            raise LoaderClosed",
        note="closing in a handler",
    ),
    Mutation(
        "a thread keeps its last batch in memory",
        "executors/thread.py",
        "            del submission, task, window  # or",
        "            pass  # or",
    ),
    Mutation(
        "after an interrupt, a thread makes a batch twice",
        "executors/thread.py",
        "window.wants(task) and not self._runs(task):",
        "window.wants(task):",
    ),
    Mutation(
        "a batch that is made again hides what a signal handler has raised",
        "executors/serial.py",
        "                        raise  # not hidden by a batch that is made again\n",
        "                        pass\n",
    ),
    Mutation(
        "the window delivers out of order",
        "executors/base.py",
        "        number = next(iter(self.in_flight), None)\n"
        "        return number if number in self.arrived else None\n",
        "        return next((number for number in list(self.arrived) if number in self.in_flight), None)\n",
    ),
    Mutation(
        "outcomes that arrive after a close are kept",
        "executors/base.py",
        "        if self.cancelled:\n            self.cancel()\n",
        "",
        note="cancelled",
    ),
    # -- the epoch, plans and positions ----------------------------------------------------------------------------
    Mutation(
        "an off-by-one in the window",
        "loading/epoch.py",
        "executor.window + spare",
        "executor.window + spare + 1",
    ),
    Mutation(
        "a batch counts as delivered before it is converted",
        "loading/epoch.py",
        "        self._window.arrived.pop(task.batch, None)\n        try:\n",
        "        self._window.arrived.pop(task.batch, None)\n        self.plan.in_flight.settle(task)\n        try:\n",
        note="positions",
    ),
    Mutation(
        "an error of the sampler is swallowed",
        "loading/epoch.py",
        "                self._drawn, self._final_error = True, error\n                return\n",
        "                self._drawn = True\n                return\n",
    ),
    Mutation(
        "another order after a resume is no warning",
        "position/first_keys.py",
        'if before[-1] != self._expected["checksum"]:',
        'if count > 64 and before[-1] != self._expected["checksum"]:',
    ),
    Mutation(
        "a sampler that ends before the position is no warning",
        "position/indices.py",
        "        if not skip(keys, count):\n",
        "        if not skip(keys, count) and not count:\n",
    ),
    Mutation(
        "other indices of a Subset are no warning",
        "loading/epochs.py",
        'if theirs.get("indices") != part["indices"]:',
        'if not theirs.get("indices"):',
    ),
    Mutation(
        "a state counts one batch more",
        "position/progress.py",
        'return {"batch": self.position, "ahead"',
        'return {"batch": self.position + (self.position > 0), "ahead"',
        note="positions",
    ),
    Mutation(
        "batches that were delivered ahead come again after a resume",
        "position/progress.py",
        "        is_new = not self._ahead or not self.settled_from(number)\n",
        "        is_new = True\n",
        note="positions",
    ),
    Mutation(
        "flush loses the batches in flight",
        "position/progress.py",
        "        self.upcoming = self.position\n        self._in_flight.clear()\n",
        "        self._in_flight.clear()\n",
    ),
    Mutation(
        "carried indices are lost",
        "loading/plan/indices.py",
        "            self._pass.commit()\n",
        "",
    ),
    Mutation(
        "a leftover of an iterable dataset is delivered twice",
        "loading/plan/shards.py",
        "        return NOTHING\n\n    def _compare_first_sample(",
        "        return result.samples or NOTHING\n\n    def _compare_first_sample(",
    ),
    Mutation(
        "two shards that read different sequences are not noticed",
        "loading/plan/shards.py",
        "        if first and first != self._first_sample:\n",
        "        if False:\n",
    ),
    Mutation(
        "the next epoch has the number of the last one",
        "loading/epochs.py",
        "            self._next = Next(epoch.plan.epoch + 1, epoch.plan)  # last",
        "            self._next = Next(epoch.plan.epoch, epoch.plan)  # last",
    ),
    Mutation(
        "merged states forget what one rank has delivered ahead",
        "position/merging.py",
        "        return [range(self.batch), *self._ahead]\n",
        "        return [range(self.batch)]\n",
    ),
    # -- seeds ------------------------------------------------------------------------------------------------------
    Mutation(
        "seeds are not set in workers",
        "randomness/seeds.py",
        '    seed_restorable(seed)\n    if "mxnet.random" in sys.modules:\n',
        '    if "mxnet.random" in sys.modules:\n',
        note="batch seeds",
    ),
    Mutation(
        "all epochs have the same seeds",
        "randomness/seeds.py",
        "words = _WORDS.pack(seed & _MASK, epoch & _MASK, batch & _MASK)",
        "words = _WORDS.pack(seed & _MASK, 0, batch & _MASK)",
        note="batch seeds",
    ),
    Mutation(
        "the generators of the program are not restored",
        "randomness/seeds.py",
        "        generator.restore(state)\n",
        "",
        note="batch seeds",
    ),
    Mutation(
        "all samples of a batch share one generator",
        "randomness/seeds.py",
        "_seed_quickly(self._of_sample, self.seed, self.row)",
        "_seed_quickly(self._of_sample, self.seed, 0)",
    ),
    Mutation(
        "generators that a dataset holds are not seeded",
        "randomness/held.py",
        "            generator.seed(batch_seed(seed, number))\n",
        "            pass\n",
        note="held generators",
    ),
    Mutation(
        "MXNet's generators get a batch's seed after the seed that the user has set",
        "randomness/mxnet.py",
        'for name in (*_RUN_OPERATORS, "MXRandomSeed", "MXRandomSeedContext"):\n',
        "for name in _RUN_OPERATORS:\n",
        note="late seeds",
    ),
    Mutation(
        "NumPy's generator forgets the second variate of a pair",
        "randomness/numpy.py",
        "    return generator, _memory_of(generator).raw, variate.raw\n",
        "    return generator, _memory_of(generator).raw, bytes(_VARIATE.size)\n",
        note="saving NumPy's state",
    ),
    Mutation(
        "a batch that draws from a generator that is not seeded is not made again",
        "executors/serial.py",
        "        if self._generators.missed:  # see NOTE [spared generators]\n",
        "        if False:  # see NOTE [spared generators]\n",
        note="spared generators",
    ),
    Mutation(
        "a finalizer sets context variables in the context of the program",
        "executors/serial.py",
        "            copy_context().run(self.close)",
        "            self.close()",
        note="finalizers",
    ),
    Mutation(
        "a dataset whose samples cannot be read twice may be read twice",
        "executors/serial.py",
        'self._iterable and reading.on_error == "raise" and not held\n',
        'self._iterable and reading.on_error == "raise"\n',
        note="spared generators",
    ),
    Mutation(
        "the memory of Python's generator is not compared with its state",
        "randomness/python.py",
        "    return memory if memory.raw == _STATE.pack(index, *key) else None\n",
        "    return memory\n",
        note="saving Python's state",
    ),
    # -- samplers ---------------------------------------------------------------------------------------------------
    Mutation(
        "a pass skips one key too few",
        "sampler/passes.py",
        "            self.seek(self._start + self._used + count)\n",
        "            self.seek(self._start + self._used + count - 1)\n",
    ),
    Mutation(
        "cells beyond the last index are taken modulo the length",
        "sampler/bijection.py",
        "            cells[beyond] = self._mapped(cells[beyond])\n",
        "            cells[beyond] %= self._length\n",
        note="bijection",
    ),
    Mutation(
        "a source pays for one token, not for all tokens of its sample",
        "sampler/mixing.py",
        "        now[source] -= WHOLE * tokens\n",
        "        now[source] -= WHOLE\n",
        note="shares",
    ),
    Mutation(
        "the loader does not count on from the epoch that the user has set",
        "sampler/users.py",
        "                changed = left[place : place + 1] != [epoch]\n",
        "                changed = False\n",
        note="epochs of users' samplers",
    ),
    Mutation(
        "a rank starts at the wrong sample after ranks were changed",
        "position/cut.py",
        "max(batches * (self.size or 1) - carried, 0) * self.ranks\n",
        "max(batches * (self.size or 1) - carried, 0)\n",
        note="offset",
    ),
    Mutation(
        "a last batch that is too short is kept although it should be discarded",
        "sampler/passes.py",
        'if len(batch) == size or (len(batch) and last_batch == "keep"):',
        "if len(batch):",
    ),
    Mutation(
        "the checksum of a state is not verified",
        "state.py",
        "    if check != right:\n",
        "    if False:\n",
    ),
    # -- what a worker does -------------------------------------------------------------------------------------------
    Mutation(
        "errors of settled batches are forgotten",
        "position/error_count.py",
        "            count += len(new[number])\n",
        "",
    ),
    Mutation(
        "a chunk that is read again has other samples",
        "work/streams.py",
        "        samples = fill.samples[-self._size :]\n",
        "        samples = fill.samples[-self._size :][::-1]\n",
        note="streams",
    ),
    Mutation(
        "StopIteration inside a dataset ends the epoch",
        "errors.py",
        "    if isinstance(error, Exception) and not isinstance(error, StopIteration):\n",
        "    if isinstance(error, Exception):\n",
    ),
    Mutation(
        "an epoch that was left early and is set again starts where it was left",
        "sampler/users.py",
        "            sampler.set_epoch(abs(epoch - 1))\n",
        "            pass\n",
    ),
    Mutation(
        "a replaced sample depends on the worker",
        "work/tolerance.py",
        "            index = others[batch_seed(seed, row, number) % len(others)]\n",
        "            index = others[id(self._tolerance) // 64 % len(others)]\n",
    ),
    # -- positions and changed orders -------------------------------------------------------------------------------
    Mutation(
        "new weights apply to each share at a place of its own",
        "sampler/sharded.py",
        "change_from(order, start + offset * self.num_shards)",
        "change_from(order, start + offset * self.num_shards + self.index)",
        note="changes",
    ),
    Mutation(
        "windows that were planned with the old weights stay after a change",
        "text/windowed.py",
        "        del self._before[number - self._first + 1 :]\n"
        "        self._kept = {known: window for known, window in self._kept.items() if known < number}\n",
        "",
    ),
    Mutation(
        "new weights apply to a window of which rows were delivered",
        "text/windowed.py",
        "        if not change_from(self._keys, number * self._size):\n",
        "        if not change_from(self._keys, max(number - 1, 0) * self._size):\n",
    ),
    Mutation(
        "a change may be scheduled inside of a window that is planned again",
        "sampler/mixture.py",
        "        self._least = max(self._least, self.epoch * self._count + count)\n",
        "",
    ),
    Mutation(
        "ranks that divide batches start at a sample instead of a batch",
        "position/indices.py",
        "cut.share.sampler is cut.order else -(-offset // (cut.size or 1))\n",
        "cut.share.sampler is cut.order else offset\n",
    ),
    Mutation(
        "the state that a rank has loaded stays that of the rank that has saved it",
        "position/indices.py",
        '    return {**state, **_about(cut), "carried": carried}\n',
        '    return {**_about(cut), **state, "carried": carried}\n',
    ),
    Mutation(
        "ranks at different places are merged",
        "position/merging_orders.py",
        '"epoch", "batch", "offset")\n',
        '"epoch", "batch")\n',
        note="offset",
    ),
    Mutation(
        "a block that a later batch needs, too, is forgotten with the first one",
        "loading/ahead.py",
        "                counts[block] -= 1\n",
        "                counts[block] = 0\n",
    ),
    Mutation(
        "what comes next forgets what an epoch carries over",
        "loading/ahead.py",
        "        for plan in plans:\n            plan.carry_over()\n        epoch,",
        "        epoch,",
    ),
    Mutation(
        "a batch is replayed although the order of its epoch has changed",
        "loading/known_order.py",
        "        if started.drawn is not None and _first_drawn(",
        "        if False and _first_drawn(",
        note="replay",
    ),
    Mutation(
        "what comes next is that of rank 0 for each rank",
        "loading/replay.py",
        "        own.index = rank\n",
        "        own.index = 0\n",
    ),
    Mutation(
        "to look at a batch lets new weights apply there",
        "position/indices.py",
        "            self._order = still(order)\n",
        "            self._order = order\n",
        note="changes",
    ),
    Mutation(
        "to look at what comes next loads the position into the sampler itself",
        "loading/replay.py",
        "        return [copy_of(batch_sampler)]\n",
        "        return [batch_sampler]\n",
    ),
    Mutation(
        "what was carried over comes again after a resume",
        "position/indices.py",
        "carried if self._first == 0 else []\n",
        "carried\n",
    ),
    Mutation(
        "an epoch that is left after a resume carries nothing into the next one",
        "position/indices.py",
        "    return carried if fits and is_ours else []\n",
        "    return carried if is_due else []\n",
    ),
    Mutation(
        "a resume plans all windows before the position",
        "text/windowed.py",
        "            start if epoch == loaded else Checkpoint(),\n",
        "            Checkpoint(),\n",
    ),
    Mutation(
        "without replacement, new weights apply to the epoch before",
        "sampler/weighted.py",
        "        first = 0 if self._replacement else self.epoch\n",
        "        first = 0\n",
    ),
    Mutation(
        "a start that was interrupted counts an epoch twice",
        "sampler/base.py",
        "            part.epoch = epoch\n\n    return restore\n",
        "            pass\n\n    return restore\n",
    ),
    Mutation(
        "the batches before a position with another batch size are named as if they had this one",
        "loading/index_source.py",
        "        has_new = start.number > 0 and (new_batch_size or not position.is_regular(batch_sampler, fields))\n",
        "        has_new = False\n",
    ),
    Mutation(
        "a position of a stateful sampler contains what it has drawn ahead",
        "sampler/users.py",
        "        return self._states[number] if number in self._states else snapshot(self._stateful)\n",
        "        return snapshot(self._stateful)\n",
    ),
    Mutation(
        "a position is loaded into a sampler that rearranges in another way",
        "sampler/base.py",
        "        for name in self._identifying:\n",
        "        for name in ():\n",
    ),
    Mutation(
        "states of batches that were delivered stay in memory",
        "sampler/users.py",
        "if drawn >= position} | {number: state}",
        "} | {number: state}",
    ),
]
