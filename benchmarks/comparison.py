"""Times gluonloader against other loaders, in the cases of `cases.py`.

python -m benchmarks
python -m benchmarks tiny small --rounds 5 --usage
python -m benchmarks --against COMMIT tiny small

If a library is not installed, the comparison runs without it, and the results say that it is missing.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .against import compare
from .cases import CASES, Case
from .harness import Table, Topic
from .measure import Result, measure
from .page import auto_table, page, section
from .usage import Usage, measure_usage
from .variants import LOADERS, measure_choices

_REPEATS: Final = ("inproc", "columns-f32", "copy-limit")  # for "auto", these cases equal other cases


def run(options: Namespace) -> Iterator[Table | str]:
    """Yields the results of each case as soon as it is done."""
    cases = [CASES[name] for name in options.names]
    if options.against is not None:
        yield from compare(options.against, cases, options.workers)
        return
    times: dict[str, list[Result]] = {}
    usage: dict[str, dict[str, Usage]] = {}
    auto: dict[str, list[Result]] = {}
    for case in cases:
        times[case.name] = measure(case, LOADERS, options.workers, options.rounds)
        if options.usage:
            usage[case.name] = _usage(case, times[case.name], options.workers)
        yield section(case, times[case.name], usage.get(case.name, {}))
        if options.auto and case.name not in _REPEATS:
            auto[case.name] = measure_choices(case.name, options.workers, options.rounds)
            yield auto_table({case.name: auto[case.name]})
        if options.markdown is not None:  # after each case, so that an interrupted run leaves results
            Path(options.markdown).write_text(page(times, usage, auto, options.about))


def _usage(case: Case, results: list[Result], workers: int) -> dict[str, Usage]:
    """Measures the usage of all loaders that were timed."""
    timed = {result.loader for result in results if result.times}
    return {loader.name: measure_usage(case, loader, workers) for loader in LOADERS if loader.name in timed}


TOPIC: Final = Topic(
    run,
    rounds=7,
    names=CASES,
    options={
        "usage": (False, "also measure processor time, page faults and memory"),
        "auto": (False, 'also compare executor="auto" with each fixed executor'),
        "against": (None, "only compare this tree with the package of this commit, in turn"),
        "markdown": (None, "write the results into this file, as a page of Markdown"),
    },
    packages=("torch", "mxnet", "grain", "spdl"),
)
