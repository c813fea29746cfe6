"""A model that reads packed documents has the loss that it has for the documents one by one."""

import numpy as np
import pytest

from gluonloader.text import PackedDataset, PackingSampler, PackRows

torch = pytest.importorskip("torch")


class Model(torch.nn.Module):
    """One layer of causal attention, with positions."""

    def __init__(self):
        super().__init__()
        self.tokens, self.positions = torch.nn.Embedding(50, 16), torch.nn.Embedding(64, 16)
        self.mix, self.out = torch.nn.Linear(16, 48), torch.nn.Linear(16, 50)

    def forward(self, tokens, positions, mask):
        hidden = self.tokens(tokens) + self.positions(positions)
        parts = self.mix(hidden).chunk(3, -1)
        return self.out(torch.nn.functional.scaled_dot_product_attention(*parts, attn_mask=mask))


def causal(count):
    return torch.ones(count, count, dtype=torch.bool).tril()


def loss_of(scores, labels):
    return torch.nn.functional.cross_entropy(scores, labels, ignore_index=-100, reduction="sum")


@pytest.mark.parametrize("layout", ["rows", "flat"])
def test_the_loss_of_packed_documents_is_that_of_single_documents(layout):
    torch.manual_seed(0)
    model, rng = Model().double(), np.random.default_rng(0)
    documents = [rng.integers(1, 50, length) for length in rng.integers(1, 40, 60)]
    rows = list(PackingSampler(list(map(len, documents)), 64, seed=0))
    batch = PackRows(layout)(PackedDataset(documents).__getitems__(rows))
    tokens, positions, labels = (torch.from_numpy(batch[name]).long() for name in ("tokens", "positions", "labels"))
    if layout == "flat":
        ends = torch.from_numpy(batch["cu_seqlens"][1:])
        document = torch.searchsorted(ends, torch.arange(len(tokens)), right=True)
        same = document[:, None] == document[None, :]
    else:
        segments = torch.from_numpy(batch["segments"])
        same = segments[:, :, None] == segments[:, None, :]
    packed = loss_of(model(tokens, positions, same & causal(tokens.shape[-1])).reshape(-1, 50), labels.reshape(-1))
    single = 0.0
    for document in map(torch.from_numpy, documents):
        scores = model(document, torch.arange(len(document)), causal(len(document)))
        single += loss_of(scores[:-1], document[1:])
    torch.testing.assert_close(packed, single)
