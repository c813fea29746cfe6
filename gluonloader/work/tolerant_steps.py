"""Steps of an iterable dataset that tolerate samples which raise errors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from ..checks import ErrorAction
from ..dataset.iterable import Filter, Step, Transform
from .caught import tolerable
from .tolerance import SKIP, Bad, decided, describe_error


class TolerantStep:
    """A step of an iterable dataset; a sample that raises an error in it becomes a `Bad`, as the policy says.

    Later steps do not apply to a `Bad`.
    """

    def __init__(self, step: Transform | Filter, policy: ErrorAction) -> None:
        self._step, self._policy = step, policy

    def __call__(self, sample: Any) -> Any:
        """The sample after the step; `_DROPPED` if the step is a filter that drops it."""
        if type(sample) is Bad:
            return sample
        try:
            if isinstance(self._step, Transform):
                return self._step(sample)
            return sample if self._step.fn(sample) else _DROPPED
        except (Exception, SystemExit) as error:
            tolerated = tolerable(error, type(self._step).__name__.lower())
        policy, text = self._policy, describe_error(tolerated)
        try:
            return Bad(text, decided(policy, tolerated, sample, "a sample") if callable(policy) else SKIP)
        finally:
            del tolerated  # or this frame, to which the traceback refers, would keep the sample; see `forget_variables`

    def over(self, samples: Iterator[Any]) -> Iterator[Any]:
        return filter(_is_kept, map(self, samples))


_DROPPED: Final = object()


def _is_kept(sample: Any) -> bool:
    return sample is not _DROPPED


def tolerant_steps(steps: Iterable[Step], policy: ErrorAction) -> list[Any]:
    """The same steps; with a policy other than "raise", steps that call user code tolerate errors."""
    calls_user = (Transform, Filter) if policy != "raise" else ()
    return [TolerantStep(step, policy) if isinstance(step, calls_user) else step for step in steps]
