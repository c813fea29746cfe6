"""How a loader has spent its time: counts, statistics, advice, traces."""
