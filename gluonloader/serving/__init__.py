"""One loader for several programs: `serve` in one of them, `attach` in the others."""

from .client import ServedLoader, attach
from .server import Server, serve

__all__ = ["ServedLoader", "Server", "attach", "serve"]
