"""`python -m gluonloader.mxnet script.py arg ...` runs a Gluon script unchanged, with gluonloader's classes."""

from __future__ import annotations

from ..dropin.script import run_script
from . import patch_numpy


def _install() -> None:
    patch_numpy()
    from .installing import install  # this imports MXNet, which needs the names that `patch_numpy` adds

    install()


if __name__ == "__main__":
    run_script("gluonloader.mxnet", "mxnet.gluon.data", _install)
