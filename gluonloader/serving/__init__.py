"""One loader for several programs: `serve` in one of them, `attach` in the others."""

from .client import ServedIterator, ServedLoader, attach
from .server import Server, serve
from .stats import ConsumerStats, ServerStats

__all__ = ["ConsumerStats", "ServedIterator", "ServedLoader", "Server", "ServerStats", "attach", "serve"]
