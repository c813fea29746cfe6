"""Pretrains a tiny language model on three corpora, is killed twice, and resumes on other ranks with the same losses.

    python examples/pretrain.py

The corpora come with Python: texts about the language, source code, and names of characters. A token is a byte. Files
of tokens, a mixture whose shares change on the way, packed rows, and an evaluation with documents that were held out
work as for a large model; see docs/text.md.
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

from gluonloader import ConcatDataset, DataLoader, MixtureSampler, Ranks, random_split
from gluonloader.text import PackedDataset, PackingSampler, PackRows, TokenDataset

SIZE, ROWS, STEPS, SAVE_EVERY = 512, 8, 60, 10  # tokens in a row; rows in a step of all ranks; steps
FIRST = {"texts": 0.6, "code": 0.3, "characters": 0.1}  # the shares of the tokens
LAST = {"texts": 0.2, "code": 0.2, "characters": 0.6}
MODULES = [argparse, ast, json, subprocess, tempfile]


def write_corpora(folder):
    """Writes three files of tokens, each with the documents of one kind."""
    texts = [part for text in topics.values() for part in text.split("\n\n")]
    code = [part for module in MODULES for part in Path(module.__file__).read_text().split("\n\n")]
    characters = [" ".join(unicodedata.name(chr(code), "") for code in range(i, i + 16)) for i in range(32, 8192, 16)]
    for name, documents in zip(FIRST, (texts, code, characters), strict=True):
        tokens = (np.frombuffer(f"{document}\0".encode(), np.uint8) for document in documents)
        print(TokenDataset.write(Path(folder) / name, tokens, "uint8"))


def open_corpora(folder):
    """The corpora for the training, and the documents that are held out for the evaluation."""
    parts = {name: random_split(TokenDataset(Path(folder) / name), [0.95, 0.05], seed=0) for name in FIRST}
    return [ConcatDataset({name: split[number] for name, split in parts.items()}) for number in (0, 1)]


def make_loader(corpora, rank, ranks, workers):
    mixture = MixtureSampler(corpora, FIRST, unit="tokens", num_samples=5000, seed=0)
    mixture.schedule([(256, FIRST), (768, LAST)], linear=True)  # from document 256 to document 768
    rows = PackingSampler(corpora.lengths, SIZE, sampler=mixture, window=128, seed=0)
    options = {"batchify_fn": PackRows(), "num_workers": workers, "ranks": (rank, ranks), "seed": 0}
    return DataLoader(PackedDataset(corpora), ROWS // ranks, sampler=rows, **options)


def make_evaluation(held_out, rank, ranks):
    rows = PackingSampler(held_out.lengths, SIZE, shuffle=False)
    options = {"batchify_fn": PackRows(), "ranks": Ranks(rank, ranks, "uneven")}  # each row comes once
    return DataLoader(PackedDataset(held_out), ROWS, sampler=rows, **options)


def losses_of(weights, tokens, labels):
    """The losses of a model that predicts a byte from the byte before it, and their gradients."""
    scores = np.exp(weights[tokens])
    scores /= scores.sum(1, keepdims=True)
    losses = -np.log(scores[np.arange(len(labels)), labels])
    scores[np.arange(len(labels)), labels] -= 1
    return losses, scores


def step_of(weights, tokens, labels, rate=100.0):
    """One step of the training; returns the loss."""
    tokens, labels = tokens[labels >= 0], labels[labels >= 0]
    losses, gradients = losses_of(weights, tokens, labels)
    np.subtract.at(weights, tokens, rate / len(labels) * gradients)
    return float(losses.mean())


def evaluate(weights, held_out, ranks):
    """The loss over all documents that are held out."""
    total, count = 0.0, 0  # usually added up over the processes
    for rank in range(ranks):
        for batch in make_evaluation(held_out, rank, ranks):
            known = batch["labels"] >= 0
            total += losses_of(weights, batch["tokens"][known], batch["labels"][known])[0].sum()
            count += known.sum()
    return float(total / count)


def train(folder, ranks, workers, kill_after):
    """Trains to the last step, from the checkpoint if there is one; returns the losses by step."""
    path, losses, weights = Path(folder) / "checkpoint", {}, np.zeros((256, 256))
    corpora, held_out = open_corpora(folder)
    loaders = [make_loader(corpora, rank, ranks, workers) for rank in range(ranks)]  # usually one in each process
    if path.exists():
        losses, weights, state = pickle.loads(path.read_bytes())
        for loader in loaders:
            loader.load_state_dict(state)
        print(f"resumes at step {len(losses)}", flush=True)
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
    return {**losses, "evaluation": round(evaluate(weights, held_out, ranks), 9)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--kill-after", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.folder is not None:
        losses = train(options.folder, options.ranks, options.workers, options.kill_after)
        print(f"loss: {losses[0]:.2f} at first, {losses[STEPS - 1]:.2f} at last, {losses['evaluation']:.2f} held out")
        print(json.dumps(losses))
        return
    with tempfile.TemporaryDirectory() as folder:
        write_corpora(folder)

        def run(what, ranks, workers, kill_after=0):
            print(f"-- {what}, ranks: {ranks}, workers of each: {workers}", flush=True)
            command = [sys.executable, __file__, "--folder", folder, "--ranks", str(ranks), "--workers", str(workers)]
            done = subprocess.run([*command, "--kill-after", str(kill_after)], stdout=subprocess.PIPE, text=True)
            killed = [f"killed by signal {-done.returncode}", ""] if done.returncode else []
            *lines, losses = [*done.stdout.splitlines(), *killed]
            print(*lines, sep="\n", flush=True)
            return losses

        expected = run("uninterrupted", 1, options.workers)
        run("until it is killed", 2, options.workers, kill_after=37)
        run("resumed until it is killed", 1, options.workers + 1, kill_after=47)
        found = run("resumed", 4, options.workers)
        print("identical losses" if found == expected else "different losses: this is a bug")


if __name__ == "__main__":
    main()
