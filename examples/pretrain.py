"""Pretrains a tiny language model on three corpora, is killed, and resumes on two ranks with the same losses.

    python examples/pretrain.py

The corpora come with Python: texts about the language, source code, and names of characters. A token is a byte. Files
of tokens, a mixture whose shares change on the way, and packed rows work as for a large model; see docs/text.md.
"""

import argparse
import ast
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import unicodedata
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np

from gluonloader import ConcatDataset, DataLoader, MixtureSampler
from gluonloader.text import PackedDataset, PackingSampler, PackRows, TokenDataset

SIZE, ROWS, STEPS, SAVE_EVERY = 512, 8, 60, 10  # tokens in a row; rows in a step of all ranks; steps
MODULES = [argparse, ast, json, subprocess, tempfile]


def make_corpora(folder):
    """Writes three files of tokens, each with the documents of one kind."""
    code = [part for module in MODULES for part in Path(module.__file__).read_text().split("\n\n\n")]
    characters = [" ".join(unicodedata.name(chr(code), "") for code in range(i, i + 16)) for i in range(32, 8192, 16)]
    for name, documents in (("texts", topics.values()), ("code", code), ("characters", characters)):
        tokens = (np.frombuffer(f"{document}\0".encode(), np.uint8) for document in documents)
        print(TokenDataset.write(Path(folder) / name, tokens, "uint8"))


def make_loader(folder, rank, ranks, workers):
    corpora = [TokenDataset(Path(folder) / name) for name in ("texts", "code", "characters")]
    mixture = MixtureSampler(corpora, weights=[0.6, 0.3, 0.1], unit="tokens", num_samples=5000, seed=0)
    mixture.schedule([(400, [0.2, 0.2, 0.6])])  # from document 400 on
    lengths = np.concatenate([corpus.lengths for corpus in corpora])
    rows = PackingSampler(lengths, SIZE, sampler=mixture, window=128, seed=0)
    return DataLoader(
        PackedDataset(ConcatDataset(*corpora)),
        batch_size=ROWS // ranks,
        sampler=rows,
        batchify_fn=PackRows(),
        ranks=(rank, ranks),
        num_workers=workers,
        seed=0,
    )


def step_of(weights, tokens, labels, rate=200.0):
    """One step of a model that predicts a byte from the byte before it; returns the loss."""
    tokens, labels = tokens[labels >= 0], labels[labels >= 0]
    scores = np.exp(weights[tokens])
    scores /= scores.sum(1, keepdims=True)
    loss = -np.log(scores[np.arange(len(labels)), labels]).mean()
    scores[np.arange(len(labels)), labels] -= 1
    np.subtract.at(weights, tokens, rate / len(labels) * scores)
    return float(loss)


def train(folder, ranks, workers, kill_after):
    """Trains to the last step, from the checkpoint if there is one; returns the losses by step."""
    path, losses, weights = Path(folder) / "checkpoint", {}, np.zeros((256, 256))
    loaders = [make_loader(folder, rank, ranks, workers) for rank in range(ranks)]  # usually one in each process
    if path.exists():
        losses, weights, state = pickle.loads(path.read_bytes())
        for loader in loaders:
            loader.load_state_dict(state)
        print(f"resumes at step {len(losses)}")
    for batches in zip(*loaders):  # noqa: B905, ranks have equal numbers of batches
        # What all ranks have read in this step, in the order of the rows.
        tokens, labels = (np.stack([batch[name] for batch in batches], 1) for name in ("tokens", "labels"))
        losses[len(losses)] = step_of(weights, tokens.reshape(-1), labels.reshape(-1))
        if len(losses) == kill_after:
            os.kill(os.getpid(), signal.SIGKILL)
        if len(losses) % SAVE_EVERY == 0:
            path.write_bytes(pickle.dumps((losses, weights, loaders[0].state_dict())))
        if len(losses) == STEPS:
            break
    for loader in loaders:
        loader.close()
    path.unlink()
    return losses


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--kill-after", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.folder is not None:
        losses = train(options.folder, options.ranks, options.workers, options.kill_after)
        print(f"loss: {losses[0]:.2f} at first, {losses[STEPS - 1]:.2f} at last")
        print(json.dumps(losses))
        return
    with tempfile.TemporaryDirectory() as folder:
        make_corpora(folder)

        def run(what, ranks, workers, kill_after=0):
            print(f"-- {what}, {ranks} ranks, {workers} workers", flush=True)
            command = [sys.executable, __file__, "--folder", folder, "--ranks", str(ranks), "--workers", str(workers)]
            done = subprocess.run([*command, "--kill-after", str(kill_after)], stdout=subprocess.PIPE, text=True)
            *lines, losses = done.stdout.splitlines() or [f"killed by signal {-done.returncode}", ""]
            print(*lines, sep="\n", flush=True)
            return losses

        expected = run("uninterrupted", 1, options.workers)
        run("until it is killed", 1, options.workers, kill_after=37)
        found = run("resumed", 2, options.workers + 1)
        print("identical losses" if found == expected else "different losses: this is a bug")


if __name__ == "__main__":
    main()
