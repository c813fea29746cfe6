"""`python -m gluonloader.torch script.py arg ...` runs a script unchanged, with gluonloader's `DataLoader`."""

from __future__ import annotations

from ..dropin.script import run_script


def _install() -> None:
    from .installing import install  # this imports torch, or raises the error that `run_script` prints

    install()


if __name__ == "__main__":
    run_script("gluonloader.torch", "torch.utils.data", _install)
