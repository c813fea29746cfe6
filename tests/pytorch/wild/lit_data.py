"""LitData: chunks that were optimized before, read by its own stateful loader, and a resume in the middle."""

import tempfile

import numpy as np
from litdata import StreamingDataLoader, StreamingDataset
from litdata.streaming.writer import BinaryWriter
from show import show, workers

count = workers()
with tempfile.TemporaryDirectory() as folder:
    writer = BinaryWriter(folder, chunk_size=10)
    for n in range(60):
        writer[n] = {"x": np.random.rand(4), "y": n}
    writer.done()
    writer.merge()
    dataset = StreamingDataset(folder, shuffle=True, seed=1)
    loader = StreamingDataLoader(dataset, batch_size=8, num_workers=count)
    for _ in range(2):
        for batch in loader:
            show(batch)
    loader = StreamingDataLoader(StreamingDataset(folder, shuffle=True, seed=1), batch_size=8, num_workers=count)
    batches = iter(loader)
    for _ in range(3):
        show(next(batches))
    state = loader.state_dict()
    resumed = StreamingDataLoader(StreamingDataset(folder, shuffle=True, seed=1), batch_size=8, num_workers=count)
    resumed.load_state_dict(state)
    for batch in resumed:
        show(batch)
