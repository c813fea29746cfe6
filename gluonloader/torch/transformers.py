"""Makes the `Trainer` of Hugging Face transformers load its batches with gluonloader."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .accelerate import keep_gluonloader, skip_first_batches

__all__ = ["TrainerMixin"]


class TrainerMixin:
    """Loads the batches of a `transformers.Trainer` with `gluonloader.torch.DataLoader`.

    Name it before the class of the trainer. All arguments of the trainer keep their meaning:

        class Trainer(gluonloader.torch.transformers.TrainerMixin, transformers.Trainer):
            pass
    """

    def get_train_dataloader(self) -> Any:
        """The loader of the trainer, with ours in place of torch's."""
        return keep_gluonloader(super().get_train_dataloader())  # type: ignore[misc]

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """The loader of the trainer, with ours in place of torch's."""
        return keep_gluonloader(super().get_eval_dataloader(eval_dataset))  # type: ignore[misc]

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        """The loader of the trainer, with ours in place of torch's."""
        return keep_gluonloader(super().get_test_dataloader(test_dataset))  # type: ignore[misc]

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Trains as usual. A run that is resumed in mid-epoch reads the rest of that epoch with gluonloader, too."""
        with _keep_when_skipping():
            return super().train(*args, **kwargs)  # type: ignore[misc]


@contextmanager
def _keep_when_skipping() -> Iterator[None]:
    """Within the block, `skip_first_batches` of transformers' trainer is ours."""
    trainer: Any = importlib.import_module("transformers.trainer")
    original = trainer.skip_first_batches
    trainer.skip_first_batches = skip_first_batches
    try:
        yield
    finally:
        trainer.skip_first_batches = original
