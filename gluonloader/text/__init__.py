"""Text that is tokenized: documents in files, rows of several documents, windows, and orders by length.

`import gluonloader` does not import this package: write `from gluonloader import text`.
"""

from .pack_rows import PackRows
from .packed_dataset import PackedDataset
from .packed_stream import PackedStream
from .packing import PackingSampler
from .token_batches import TokenBatchSampler
from .tokens import TokenDataset

__all__ = ["PackRows", "PackedDataset", "PackedStream", "PackingSampler", "TokenBatchSampler", "TokenDataset"]
