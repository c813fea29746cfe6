"""MosaicML Streaming: shards in its own format, and a resume in the middle by its own loader."""

import tempfile

import numpy as np
from show import show, workers
from streaming import MDSWriter, StreamingDataLoader, StreamingDataset

count = workers()
with tempfile.TemporaryDirectory() as folder:
    with MDSWriter(out=folder, columns={"x": "ndarray:float64", "y": "int"}, size_limit=1 << 10) as out:
        for n in range(60):
            out.write({"x": np.random.rand(4), "y": n})
    dataset = StreamingDataset(local=folder, shuffle=True, shuffle_seed=1, batch_size=8, num_canonical_nodes=1)
    loader = StreamingDataLoader(dataset, batch_size=8, num_workers=count)
    for _ in range(2):
        for batch in loader:
            show(batch)
    batches = iter(loader)
    for _ in range(3):
        show(next(batches))
    state = loader.state_dict()
    del batches
    loader.load_state_dict(state)
    for batch in loader:
        show(batch)
