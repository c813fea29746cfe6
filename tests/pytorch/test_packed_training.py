"""Models learn the same from packed rows as from single documents; prompts are not trained on."""

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from gluonloader import DataLoader, Dict, Pad  # noqa: E402
from gluonloader.text import PackedDataset, PackedStream, PackingSampler, PackRows  # noqa: E402

VOCABULARY, WIDTH, STEPS, IGNORE = 50, 16, 6, -100


class Model(torch.nn.Module):
    """Causal attention within each segment; positions start at 0 in each of them."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.tokens, self.places = torch.nn.Embedding(VOCABULARY, WIDTH), torch.nn.Embedding(64, WIDTH)
        self.queries, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, VOCABULARY)
        self.double()

    def forward(self, tokens, positions, segments):
        embedded = self.tokens(tokens) + self.places(positions)
        query, key, value = self.queries(embedded).chunk(3, -1)
        earlier = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).tril()
        seen = (segments[:, :, None] == segments[:, None, :]) & earlier
        return self.out(embedded + torch.nn.functional.scaled_dot_product_attention(query, key, value, seen))


def conversations(count=24):
    """Prompts and answers; only answers are trained on."""
    rng = np.random.default_rng(0)
    documents = []
    for _ in range(count):
        tokens, prompt = rng.integers(1, VOCABULARY, rng.integers(4, 20)), rng.integers(1, 4)
        documents.append({"input_ids": tokens, "labels": np.where(np.arange(len(tokens)) < prompt, IGNORE, tokens)})
    return documents


def losses(batches, shift):
    """The loss of each step of training, each over the whole data."""
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    found = []
    for _ in range(STEPS):
        total, count = torch.zeros(()), 0
        for batch in batches:
            logits, labels = model(batch["tokens"], batch["positions"], batch["segments"]), batch["labels"]
            if not shift:  # the model shifts
                logits, labels = logits[:, :-1], labels[:, 1:]
            total = total + torch.nn.functional.cross_entropy(
                logits.reshape(-1, VOCABULARY), labels.reshape(-1), ignore_index=IGNORE, reduction="sum"
            )
            count += int((labels != IGNORE).sum())
        loss = total / count
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def single(documents):
    """Batches of single documents, padded."""
    for document in documents:
        document |= {"positions": np.arange(len(document["input_ids"])), "segments": np.ones_like(document["labels"])}
    batchify = Dict({"input_ids": Pad(), "positions": Pad(), "segments": Pad(), "labels": Pad(IGNORE)})
    with DataLoader(documents, 8, batchify_fn=batchify, output="torch") as loader:
        return [{**batch, "tokens": batch["input_ids"]} for batch in loader]


def as_one_row(batch):
    """A batch of the layout 'flat' as a batch of one row, whose segments are the documents."""
    ends, tokens = batch["cu_seqlens"][1:], batch["tokens"]
    segments = torch.searchsorted(ends, torch.arange(len(tokens), dtype=ends.dtype), right=True)
    return {**{name: batch[name][None] for name in ("tokens", "positions", "labels")}, "segments": segments[None]}


@pytest.mark.parametrize(
    ("layout", "labels", "is_stream"),
    [*itertools.product(["rows"], ["shift", "same"], [False, True]), ("flat", "shift", False)],
)
def test_losses_of_packed_rows_are_those_of_single_documents(layout, labels, is_stream):
    expected = losses(single(conversations()), shift=False)
    documents = conversations()
    if is_stream:
        rows, sampler = PackedStream(documents, 64, field="input_ids", window=8), None
    else:
        rows = PackedDataset(documents, field="input_ids")
        sampler = PackingSampler([len(one["input_ids"]) for one in documents], 64, seed=0)
    batchify = PackRows(layout, labels)
    with DataLoader(rows, 2, sampler=sampler, batchify_fn=batchify, output="torch", seed=0) as loader:
        batches = [batch if layout == "rows" else as_one_row(batch) for batch in loader]
    assert sum(len(batch["tokens"]) for batch in batches) < len(documents) / 2
    assert losses(batches, shift=labels == "shift") == pytest.approx(expected, rel=1e-9)
    assert expected[-1] < expected[0]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_logits_of_transformers_are_those_of_single_documents(attention):
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        attn_implementation=attention,
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).double().eval()
    documents = conversations(10)
    sampler = PackingSampler([len(one["input_ids"]) for one in documents], 64, shuffle=False)
    rows = PackedDataset(documents, field="input_ids")
    batchify = PackRows("transformers", labels="same")
    with DataLoader(rows, 2, sampler=sampler, batchify_fn=batchify, output="torch", seed=0) as loader:
        for number, batch in enumerate(loader):
            found = model(**batch, use_cache=False)  # with a cache, it sees one long document
            losses, count, start = 0.0, 0, 0
            for document in [document for row in loader.indices(0, number) for document in row.documents]:
                tokens, labels = (torch.tensor(documents[document][name])[None] for name in ("input_ids", "labels"))
                alone = model(input_ids=tokens, labels=labels)
                end = start + tokens.shape[1]
                torch.testing.assert_close(found.logits[:, start:end], alone.logits)
                used = int((labels[:, 1:] != IGNORE).sum())
                losses, count, start = losses + alone.loss.item() * used, count + used, end
            assert start == found.logits.shape[1]
            assert found.loss.item() == pytest.approx(losses / count)
