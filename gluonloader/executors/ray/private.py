"""What keeps the other users of a machine out of a local instance of Ray: its address, its token and its folder.

    with private() as folder --> ray.init(_temp_dir=folder) --> Ray's servers: they keep the environment of the block
    Ray drops its node, whoever has shut it down --> the token is forgotten, the folder is removed

The environment of the program is the same before and after the block. Ray itself has read the token by then.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import secrets
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

# Ray puts sockets into its folder. The longest path is FOLDER/r/session_2026-11-24_06-14-13_865708_4194304/sockets/
# plasma_store; macOS takes 103 bytes, Linux takes 107.
_LONGEST_FOLDER: Final = 103 - 66  # bytes
_PREFIX: Final = "glray-"  # 8 random characters follow

_nodes: Final[set[weakref.ref[Any] | None]] = set()  # those that Ray has not dropped yet


@contextlib.contextmanager
def private() -> Iterator[str]:
    """Makes the local instance private that `ray.init` starts in the block; yields its `_temp_dir`."""
    folder = _make_folder()
    try:
        with _loopback(), _environment():
            yield os.path.join(folder, "r")  # Ray lets everybody write into its `_temp_dir`
        # Not `weakref.finalize`: at the end of a program it may be too early, as Ray needs the token to shut down.
        _nodes.add(weakref.ref(node_of_ray(), partial(_forget, folder, os.getpid())))
    except BaseException:
        _forget(folder, os.getpid())
        raise


def node_of_ray() -> Any:
    """An object that Ray drops when it is shut down, after the last of its servers has been told to end."""
    return importlib.import_module("ray._private.worker")._global_node


def _make_folder() -> str:
    """A folder that only this user can enter, in Ray's usual place if its path is short enough there."""
    usual = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    is_short = len(os.fsencode(usual)) + len(f"/{_PREFIX}") + 8 <= _LONGEST_FOLDER
    return tempfile.mkdtemp(prefix=_PREFIX, dir=usual if is_short else "/tmp")


@contextlib.contextmanager
def _loopback() -> Iterator[None]:
    """Makes Ray listen on 127.0.0.1 only.

    On Linux, Ray listens on all addresses, even if its node is to have the address 127.0.0.1. On other systems, the
    constant ENABLE_RAY_CLUSTER is False, so Ray listens on 127.0.0.1 only. No argument of Ray does this on Linux.
    """
    constants: Any = importlib.import_module("ray._private.ray_constants")
    before = constants.ENABLE_RAY_CLUSTER
    constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


@contextlib.contextmanager
def _environment() -> Iterator[None]:
    """Switches Ray's usage statistics off and its token authentication on, unless the user has decided otherwise.

    The token is new. Ray's own default is a file in the user's home that every user of the machine may read.
    """
    names = "RAY_USAGE_STATS_ENABLED", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"
    before = {name: os.environ.get(name) for name in names}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    if "RAY_AUTH_TOKEN_PATH" not in os.environ:
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    _read_settings_again()
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _read_settings_again() -> None:
    """Makes Ray read the mode of authentication and the token from the environment again when it needs them."""
    raylet: Any = importlib.import_module("ray._raylet")
    if hasattr(raylet, "AuthenticationTokenLoader"):  # from Ray 2.52 on
        # In this order: a thread of Ray that still ends would otherwise look for a token that is not there any more.
        raylet.Config.initialize("")
        raylet.AuthenticationTokenLoader.instance().reset_cache()


def _forget(folder: str, pid: int, node: weakref.ref[Any] | None = None) -> None:
    """Undoes what `private` has done, once the instance has ended."""
    _nodes.discard(node)
    if os.getpid() == pid:  # a forked child has copies of the objects of its parent
        _read_settings_again()
        shutil.rmtree(folder, ignore_errors=True)
