"""Bridges: `bridge` gives the loader of another library the interface of `DataLoader`."""

from .bridge import Bridge as Bridge
from .bridge import BridgeIterator as BridgeIterator
from .bridge import BridgeStats as BridgeStats
from .bridge import bridge as bridge
