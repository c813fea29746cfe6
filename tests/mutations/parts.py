"""Faults outside the core: datasets, images, records, batchify, the drop-ins, commands, bridges, serving, sharing."""

from __future__ import annotations

from mutation import Mutation

MUTATIONS = [
    # -- dataset --------------------------------------------------------------------------------------------------
    Mutation(
        "longer shards come last, so two shards have a sample in common",
        "dataset/base.py",
        "        start = size * index + min(index, longer)\n",
        "        start = size * index\n",
    ),
    Mutation(
        "a bulk read of joined datasets returns the samples in the order of the datasets",
        "dataset/base.py",
        "        return interleave([read(self.datasets[owners[part[0]]], keys[part]) for part in parts], order)\n",
        "        return interleave([read(self.datasets[owners[part[0]]], keys[part]) for part in parts], "
        "np.arange(len(order)))\n",
    ),
    Mutation(
        "a bulk read of a subset ignores the step of a range",
        "dataset/base.py",
        "kept.start + kept.step * rows if isinstance(kept, range) else kept[rows])",
        "kept.start + rows if isinstance(kept, range) else kept[rows])",
    ),
    Mutation(
        "a batched transform may lose samples",
        "dataset/base.py",
        "        if len(samples) != len(indices):\n            what = f\"the batched transform",
        "        if not len(samples):\n            what = f\"the batched transform",
    ),
    Mutation(
        "a bulk read of a user may lose samples",
        "dataset/bulk.py",
        "    if len(samples) != len(indices):\n",
        "    if not len(samples):\n",
    ),
    Mutation(
        "a subclass with its own __getitem__ inherits the bulk read of its base",
        "dataset/bulk.py",
        'if "__getitems__" not in defining_namespace(kind, "__getitem__", "__getitems__") or not self',
        "if not self",
    ),
    Mutation(
        "fractions of random_split lose the samples that are left over",
        "dataset/split.py",
        "            rounded[i % len(rounded)] += 1\n",
        "            rounded[0] += not i\n",
    ),
    Mutation(
        "a list of mixed items loses those before the first that differs in kind",
        "dataset/compact.py",
        "            self._pack(chain(self, others, items), _OBJECT)\n",
        "            self._pack(chain(others, items), _OBJECT)\n",
    ),
    Mutation(
        "windows of tokens across two chunks repeat the first tokens of the second chunk",
        "text/tokens.py",
        "                begin = start + filled - (ends[number] - len(part))\n",
        "                begin = start - (ends[number] - len(part))\n",
    ),
    Mutation(
        "the last window of tokens is lost",
        "text/tokens.py",
        "(tokens.num_tokens - self._width) // self._stride + 1)",
        "(tokens.num_tokens - self._width) // self._stride)",
    ),
    Mutation(
        "an index of tokens is read although its neighbours disagree",
        "text/token_files.py",
        "        wrong = (lengths < 0) | (starts[:3] + lengths * self.dtype.itemsize != starts[1:]) | "
        "(starts[1:] > self._nbytes)\n",
        "        wrong = (lengths < 0) | (starts[1:] > self._nbytes)\n",
        note="damaged index",
    ),
    Mutation(
        "a token that does not fit in the dtype is written",
        "text/token_files.py",
        "        if least < limits.min or most > limits.max:\n",
        "        if least < limits.min:\n",
    ),
    Mutation(
        "a stream of rows is resumed in a window whose documents have other lengths",
        "text/packed_stream.py",
        "        if resumed is not None and resumed.content not in (None, self._content):\n",
        "        if False:\n",
        note="packed streams",
    ),
    Mutation(
        "steps of an iterable dataset are applied in the wrong order",
        "dataset/iterable.py",
        "        dataset, steps = dataset._source, dataset._steps + steps\n",
        "        dataset, steps = dataset._source, steps + dataset._steps\n",
    ),
    Mutation(
        "take is applied to each shard, not to all samples",
        "dataset/iterable.py",
        "    return has_shard(source) and not takes(steps)\n",
        "    return has_shard(source)\n",
    ),
    Mutation(
        "a dataset is set to its epoch after its shard was made",
        "dataset/opening.py",
        "        dataset = at_epoch(dataset, epoch)\n    shard = ",
        "        pass\n    shard = ",
        note="epochs of shards",
    ),
    Mutation(
        "a dataset that makes fewer shards than workers gives samples twice",
        "dataset/opening.py",
        "    return Part(make_shard(dataset, most, index % most, epoch), index // most, stride)\n",
        "    return Part(make_shard(dataset, most, index % most, epoch))\n",
    ),
    Mutation(
        "the rows of several row groups come in the order of the file",
        "tables/arrow.py",
        "        inverse[order] = np.arange(len(order))\n",
        "        inverse[...] = np.arange(len(order))\n",
    ),
    Mutation(
        "a row that was read alone refers to the row group",
        "tables/arrow_columns.py",
        "            return decoded[row].copy() if self.stored else decoded[row]  # the row group stays in use\n",
        "            return decoded[row]\n",
    ),
    Mutation(
        "a forked worker uses the HDF5 file that its parent has opened",
        "tables/stored.py",
        "        if opened is None or opened[0] != os.getpid():\n",
        "        if opened is None:\n",
    ),
    # -- records --------------------------------------------------------------------------------------------------
    Mutation(
        "a record that contains the magic word is not split",
        "records/frames.py",
        "    cuts = _aligned_magics(data, 0, len(data))\n",
        "    cuts: list[int] = []\n",
        note="frames",
    ),
    Mutation(
        "a frame that ends with data instead of zeros is accepted",
        "records/frames.py",
        "        if last != at and (flag in (_FIRST, _MIDDLE) or any(file[last:at])):\n",
        "        if last != at and flag in (_FIRST, _MIDDLE):\n",
    ),
    Mutation(
        "records of a bulk read come in the order of the file",
        "records/reader.py",
        "        for target, number in zip(order.tolist(), numbers[order].tolist(), strict=True):\n",
        "        for target, number in zip(range(len(order)), numbers[order].tolist(), strict=True):\n",
    ),
    Mutation(
        "a record that does not end where the next one starts is returned",
        "records/reader.py",
        "            if not self._partial:\n                what = f\"this record ends",
        "            if len(spans) > 9:\n                what = f\"this record ends",
    ),
    Mutation(
        "labels of a record are the flag",
        "records/headers.py",
        "        header = header._replace(label=np.frombuffer(record, _LABEL, header.flag, _HEADER.size))\n",
        "        header = header._replace(label=np.frombuffer(record, _LABEL, header.flag, 0))\n",
    ),
    Mutation(
        "an index with two equal keys is read",
        "records/index.py",
        "    if len(set(keys)) < len(keys):\n",
        "    if not keys and offsets:\n",
    ),
    # -- vision ---------------------------------------------------------------------------------------------------
    Mutation(
        "orientation 6 is rotated the other way",
        "vision/exif.py",
        "    if orientation in (2, 3, 6, 7):\n",
        "    if orientation in (2, 3, 5, 8):\n",
    ),
    Mutation(
        "a crop swaps left and top",
        "vision/geometry.py",
        "    return image[top : top + height, left : left + width]\n",
        "    return image[left : left + height, top : top + width]\n",
    ),
    Mutation(
        "an image is resized to the longer side",
        "vision/geometry.py",
        "    return (shorter, height * shorter // width) if height > width else (width * shorter // height, shorter)\n",
        "    return (shorter, height * shorter // width) if height < width else (width * shorter // height, shorter)\n",
    ),
    Mutation(
        "uint16 images are clipped at 255",
        "vision/colors.py",
        '    return int(np.iinfo(dtype).max) if dtype.kind == "u" else 255\n',
        "    return 255\n",
    ),
    Mutation(
        "the pipeline divides by the wrong standard deviation",
        "vision/colors.py",
        "    tables = (values - mean[:, None]) / std[:, None]\n",
        "    tables = (values - mean[:, None]) / std[::-1, None]\n",
    ),
    Mutation(
        "the pipeline crops a scaled image where the full image would be cropped",
        "vision/pipeline.py",
        "            box = _divided(box, divisor, image.shape)\n",
        "            box = (*_divided((0, 0, *box[2:]), divisor, image.shape),)\n",
    ),
    Mutation(
        "OpenCV returns blue, green and red",
        "vision/decoding.py",
        "    return cv2.cvtColor(image, cv2.COLOR_BGR2RGB, dst=",
        "    return image if image.ndim else cv2.cvtColor(image, cv2.COLOR_BGR2RGB, dst=",
    ),
    Mutation(
        "a truncated JPEG is decoded, its lower part gray",
        "vision/header.py",
        '    if data[-2:] != b"\\xff\\xd9" and data.find(b"\\xff\\xd9", end) < 0:\n',
        "    if not data:\n",
    ),
    Mutation(
        "a JPEG is intact although libjpeg warns of damage",
        "vision/decoding.py",
        '        raise damaged("JPEG", warning)\n',
        "        pass\n",
        note="strictness",
    ),
    Mutation(
        "a PNG with a wrong checksum is decoded",
        "vision/header.py",
        '        if unpack_from(">I", data, end - 4)[0] != crc32(view[start + 4 : end - 4]):\n',
        "        if end - 4 < start:\n",
    ),
    Mutation(
        "an image list may lead out of its folder",
        "vision/files.py",
        "    if os.path.commonpath([top, os.path.abspath(full)]) != top:\n",
        "    if not os.path.abspath(full):\n",
    ),
    # -- batchify -------------------------------------------------------------------------------------------------
    Mutation(
        "the mask of Pad marks the padding, too",
        "batchify/functions.py",
        "        mask[...] = False\n",
        "        mask[...] = True\n",
    ),
    Mutation(
        "lengths of Pad are those of the first axis, whatever the axis",
        "batchify/functions.py",
        "            lengths[:] = [array.shape[self._axis or 0] for array in arrays]\n",
        "            lengths[:] = [array.shape[0] for array in arrays]\n",
    ),
    Mutation(
        "the first parts of Split are the smaller ones",
        "batchify/functions.py",
        "        bounds = [part * smaller_size + min(part, larger_parts) for part in range(parts + 1)]\n",
        "        bounds = [count - b for b in reversed("
        "[part * smaller_size + min(part, larger_parts) for part in range(parts + 1)])]\n",
    ),
    Mutation(
        "arrays of big-endian bytes keep their byte order in a batch",
        "batchify/arrays.py",
        '    return dtype if dtype.isnative else dtype.newbyteorder("=")\n',
        "    return dtype\n",
    ),
    Mutation(
        "packed rows: the last token of a document has the next document's first token as its label",
        "text/pack_rows.py",
        "            labels[last] = [self._ignore if following is None else following for",
        "            _ = [self._ignore if following is None else following for",
    ),
    Mutation(
        "packed rows: positions do not start again in each document",
        "text/pack_rows.py",
        "            out[start : start + length] = numbers[:length]\n",
        "            out[start : start + length] = numbers[:length] + start\n",
    ),
    Mutation(
        "a sample that differs in dtype is cast into the batch that is being filled",
        "batchify/gathered.py",
        " and field.shape == column.shape[1:] and field.dtype == column.dtype\n",
        " and field.shape == column.shape[1:]\n",
    ),
    # -- torch ----------------------------------------------------------------------------------------------------
    Mutation(
        "a resumed order is drawn from the generators as they are now",
        "torch/order.py",
        "    def _start_again(self) -> Iterator[Any]:\n        restore(self._generators, self._states)\n",
        "    def _start_again(self) -> Iterator[Any]:\n",
    ),
    Mutation(
        "a pass that is drawn again forgets the batches that another library has skipped",
        "torch/order.py",
        "        self._count = self._skipped + offset\n",
        "        self._count = offset\n",
    ),
    Mutation(
        "drawing an order again leaves the generators changed",
        "torch/order.py",
        "            finally:\n                restore(self._generators, now)\n",
        "            finally:\n",
    ),
    Mutation(
        "the state of a pass that has ended is the start of the same pass",
        "torch/passes.py",
        '        ended = position["epoch"] != newest.epoch\n',
        "        ended = False\n",
    ),
    Mutation(
        "a loaded state does not set torch's generators",
        "torch/passes.py",
        '            restore(generators, as_states(state["generators"], generators))\n',
        "            pass\n",
    ),
    Mutation(
        "drop_last keeps the last batch of an iterable dataset",
        "torch/reading.py",
        "        if not batch or (self._ended and self._replicas.drop_last):\n",
        "        if not batch:\n",
    ),
    Mutation(
        "all workers have the same NumPy seed",
        "torch/reading.py",
        "        np.random.seed(worker._generate_state(self.base_seed, info.id))\n",
        "        np.random.seed(worker._generate_state(self.base_seed, 0))\n",
    ),
    Mutation(
        "arrays of different dtypes are stacked without torch's rules",
        "torch/collate.py",
        " or len(set(map(_DTYPE_AND_SHAPE, samples))) > 1):\n",
        "):\n",
    ),
    # -- mxnet ----------------------------------------------------------------------------------------------------
    Mutation(
        "Gluon's default batch of tuples is a tuple",
        "mxnet/structure.py",
        '    return [on_field(f"[{i}]", gluon_batchify, column) for i, column in enumerate(columns)]\n',
        '    return tuple(on_field(f"[{i}]", gluon_batchify, column) for i, column in enumerate(columns))\n',
    ),
    Mutation(
        "a sampler that was set later has no effect",
        "mxnet/dataloader.py",
        '            self.epochs.source = IndexSource(batch_sampler, getattr(source, "history", None))\n',
        "            self.epochs.source = source\n",
    ),
    Mutation(
        "batches of workers lie in cpu(0)",
        "mxnet/dataloader.py",
        '            options.setdefault("output", to_ndarray(shared=workers))\n',
        '            options.setdefault("output", to_ndarray(shared=False))\n',
    ),
    Mutation(
        "MXNet's engine needs the GIL to release an array",
        "frameworks/mxnet_memory.py",
        "        self._deleter = ctypes.cast(ctypes.CDLL(None).time, ctypes.c_void_p).value or 0\n",
        "        self._release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda at: ctypes.memset(at, 1, 8) and None)\n"
        "        self._deleter = ctypes.cast(self._release, ctypes.c_void_p).value or 0\n",
        note="no Python in the engine",
    ),
    Mutation(
        "an NDArray in a slab arrives in another process as the start of the slab",
        "frameworks/mxnet_memory.py",
        "        _send_copies(mx)\n",
        "",
        note="slices of a slab",
    ),
    # -- commands and tuning --------------------------------------------------------------------------------------
    Mutation(
        "a line that starts in the piece before is tokenized twice",
        "tools/make_tokens.py",
        "        start += len(file.readline()) - 1  # the rest",
        "        file.seek(start)  # the rest",
    ),
    Mutation(
        "tokens make continues a run of another tokenizer",
        "tools/make_tokens.py",
        '        if saved["recipe"] == asdict(recipe):\n',
        "        if saved:\n",
    ),
    Mutation(
        "tokens make continues behind a piece that was written in part",
        "tools/make_tokens.py",
        "            part.truncate(size)\n",
        "            pass\n",
        note="continuing",
    ),
    Mutation(
        "images of a folder are numbered from 0 in each class",
        "tools/make.py",
        "            images += [(len(images) + row, label, os",
        "            images += [(row, label, os",
    ),
    Mutation(
        "tune prefers the setting that needs most",
        "tools/tuning/search.py",
        "    return min(fast, key=lambda setting: setting.effort, default=None)\n",
        "    return max(fast, key=lambda setting: setting.effort, default=None)\n",
    ),
    Mutation(
        "tune measures settings with more worker memory than there is",
        "tools/tuning/search.py",
        "setting.num_workers == 1 or setting.num_workers * each <= self.memory\n",
        "True\n",
    ),
    Mutation(
        "the doctor takes the mean of slow and usual samples for the slowest",
        "tools/doctor/everywhere.py",
        "            self._slowest, self._now = max(self._slowest, (took_s, self._now[1])), None\n",
        "            self._slowest, self._now = (took_s, self._now[1]), None\n",
    ),
    # -- bridges --------------------------------------------------------------------------------------------------
    Mutation(
        "MXNet overwrites the arrays of earlier batches of a bridge",
        "bridges/source.py",
        '        [array.copy() if hasattr(array, "copy") else array for array in part or ()]\n',
        "        [array for array in part or ()]\n",
    ),
    Mutation(
        "a bridge to an iterator with reset reads the first epoch again",
        "bridges/source.py",
        "        if self._last() is made:\n            return max(1, epoch - self._epoch)\n",
        "        if self._last() is made:\n            return 0\n",
    ),
    Mutation(
        "a source that can be read only once is read a second time, empty",
        "bridges/source.py",
        "        if batches is made and not has_reset and self._last() is made:\n",
        "        if batches is made and not has_reset and self._last() is made and not made:\n",
    ),
    # -- serving --------------------------------------------------------------------------------------------------
    Mutation(
        "the memory of a served batch is free although a consumer refers to it",
        "serving/distribution.py",
        "        if item.settled and not item.holders and item.kind is Kind.BATCH:\n",
        "        if item.settled and item.kind is Kind.BATCH:\n",
    ),
    Mutation(
        "the position of a server counts batches that a consumer has not received",
        "serving/distribution.py",
        "            if any(place.next <= oldest.number or oldest.number in place.sent for place in "
        "self.places.values()):\n                return\n",
        "            if any(place.next <= oldest.number for place in self.places.values()):\n                return\n",
    ),
    Mutation(
        "a consumer does not get again what was lost on the way",
        "serving/consumers.py",
        "            one.pending = deque([*distribution.again(consumer), *answers])\n",
        "            one.pending = deque(answers)\n",
        note="again",
    ),
    Mutation(
        "a slab is used again although a forked child of a dead consumer reads it",
        "serving/consumers.py",
        "            _stop_using(item)  # it has died, and a forked child of it may still read them\n",
        "            pass\n",
    ),
    Mutation(
        "the memory of a served batch is free although a forked child may read it",
        "serving/mapping.py",
        "        mappings._inherited.update(mappings.lent)  # NOTE [kept memory]\n",
        "        pass\n",
        note="kept memory",
    ),
    Mutation(
        "a consumer gets batches of a new server that it has received from the old one",
        "serving/client.py",
        "        return packet.epoch < self.epoch or (packet.kind is Kind.BATCH and packet.batch in self._received)\n",
        "        return packet.epoch < self.epoch\n",
    ),
    Mutation(
        "a batch that is no view of its slab is sent without its bytes",
        "serving/parcel.py",
        "            if 0 <= offset <= slab.size - array.nbytes and array.flags.forc:\n",
        "            if offset <= slab.size - array.nbytes and array.flags.forc:\n",
    ),
    # -- executors/shared -----------------------------------------------------------------------------------------
    Mutation(
        "ranks may share workers that read another dataset",
        "executors/shared/server.py",
        "            if ours != theirs:\n",
        "            if ours != theirs and name != CONTENT:\n",
    ),
    Mutation(
        "two programs of the same name share workers",
        "executors/shared/server.py",
        "            if rank.index == hello.rank and rank.pid != pid:\n",
        "            if rank.index == hello.rank and rank.pid == -pid:\n",
    ),
    Mutation(
        "a rank is not told that a shared worker has died",
        "executors/shared/server.py",
        "                    rank.pending.append(Ended(death.pid, death.how))\n",
        "                    pass\n",
    ),
    Mutation(
        "the rank that has started the server keeps its name",
        "executors/shared/meeting.py",
        "            close_end(listener)\n        return starter\n",
        "            self._listener = listener\n        return starter\n",
        note="one server",
    ),
    Mutation(
        "the server waits for a rank that reads no messages",
        "executors/shared/server.py",
        '        if not is_ready(rank.connection, select.POLLOUT, 0):\n'
        '            raise BlockingIOError(errno.EAGAIN, "the rank has not read its messages")\n',
        "        is_ready(rank.connection, select.POLLOUT, 600)\n",
        note="slow ranks",
    ),
    Mutation(
        "shared workers use only the cores of the first rank",
        "executors/shared/server.py",
        "        if more == self._cores:\n            return\n",
        "        if self._cores:\n            return\n",
    ),
    Mutation(
        "a slab is used again that a shared worker which hangs may still write",
        "executors/shared/crew.py",
        "                attempt.slab.inherited = True\n",
        "                pass\n",
    ),
    Mutation(
        "large arrays count only by their shape when ranks compare their datasets",
        "executors/shared/fingerprint.py",
        "        hashed = zlib.crc32(piece.tobytes(), hashed)\n",
        "        hashed = zlib.crc32(piece.tobytes()[:0], hashed)\n",
    ),
    Mutation(
        "a dataset that was built again may have changed",
        "executors/shared/meeting.py",
        "            if self._built is not None and welcome.built != self._built:\n",
        "            if self._built is not None and welcome.built is None:\n",
    ),
]  # fmt: skip
