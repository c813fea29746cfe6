"""WebDataset: shards of a tar file each, decoded in workers, and batched by its own loader."""

import io
import os
import tarfile
import tempfile

import numpy as np
import webdataset
from show import show, workers

count = workers()
with tempfile.TemporaryDirectory() as folder:
    for shard in range(4):
        with tarfile.open(os.path.join(folder, f"{shard}.tar"), "w") as tar:
            for n in range(10):
                file = io.BytesIO()
                np.save(file, np.random.rand(5))
                for suffix, content in (("npy", file.getvalue()), ("cls", str(n).encode())):
                    entry = tarfile.TarInfo(f"{shard}{n}.{suffix}")
                    entry.size = len(content)
                    tar.addfile(entry, io.BytesIO(content))
    urls = os.path.join(folder, "{0..3}.tar")
    dataset = webdataset.WebDataset(urls, shardshuffle=False).decode().to_tuple("npy", "cls").batched(4)
    for batch in webdataset.WebLoader(dataset, batch_size=None, num_workers=count).unbatched().batched(8):
        show(list(batch))
