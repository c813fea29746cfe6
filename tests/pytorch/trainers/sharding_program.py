"""Prepares pairs of loaders with Accelerate, torch's and ours, and prints what this process reads from both.

For each case: the name, the batches of torch's loader, and the batches of ours. A batch is its indices, with what
Accelerate says at that time: whether it is the last one, and how many of its samples are no repetitions.
"""

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import DataLoaderConfiguration, set_seed
from training import Points, report

import gluonloader.torch
from gluonloader.torch.accelerate import prepare, skip_first_batches


class Stream(torch.utils.data.IterableDataset):
    def __init__(self, length, reader):
        self.points = Points(length, reader=reader)

    def __iter__(self):
        return (self.points[index] for index in range(self.points.length))


SHUFFLED = {"batch_size": 3, "shuffle": True, "num_workers": 1}
CASES = {
    "even": (Points, 20, {}, {"batch_size": 4}),
    "shuffled": (Points, 23, {}, SHUFFLED),
    "seedable": (Points, 23, {"use_seedable_sampler": True}, SHUFFLED),
    "uneven": (Points, 23, {"even_batches": False}, SHUFFLED),
    "drop_last": (Points, 23, {}, {**SHUFFLED, "drop_last": True}),
    "split": (Points, 23, {"split_batches": True}, {**SHUFFLED, "batch_size": 4}),
    "dispatched": (Points, 23, {"dispatch_batches": True}, SHUFFLED),
    "stream": (Stream, 22, {}, {"batch_size": 3}),
    "stream in shards": (Stream, 22, {"dispatch_batches": False}, {"batch_size": 3}),
}


def read(accelerator, loader, skip):
    """The batches of one epoch, and of the second epoch without its first two batches."""
    state, epochs = accelerator.gradient_state, []
    for batches in (loader, skip(loader, 2)):
        epochs.append([])
        for batch in batches:
            gathered = accelerator.gather_for_metrics(batch["index"]).tolist() if accelerator.even_batches else None
            epochs[-1].append([batch["index"].tolist(), state.end_of_dataloader, state.remainder, gathered])
    return epochs


def main():
    for name, (dataset, length, config, arguments) in CASES.items():
        found = []
        for reader in ("torch", "gluonloader"):
            set_seed(1)
            accelerator, data = accelerator_with(**config), dataset(length, reader=reader)
            if reader == "torch":
                loader = accelerator.prepare(torch.utils.data.DataLoader(data, **arguments))
                found.append(read(accelerator, loader, accelerator.skip_first_batches))
            else:
                loader = prepare(accelerator, gluonloader.torch.DataLoader(data, **arguments))
                found.append(read(accelerator, loader, skip_first_batches))
        report([name, *found])


def accelerator_with(**config):
    AcceleratorState._reset_state()
    GradientState._reset_state()
    return Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**config))


def error_of_a_dispatched_state():
    accelerator = accelerator_with(dispatch_batches=True, use_stateful_dataloader=True)
    try:
        prepare(accelerator, gluonloader.torch.DataLoader(range(8)))
    except ValueError as error:
        return str(error)
    return "no error"


main()
report(["error", error_of_a_dispatched_state(), None])
