"""The Ray executor: workers are Ray actors, perhaps on other machines. It imports Ray only when it is used."""

from .ray_executor import RayExecutor as RayExecutor
