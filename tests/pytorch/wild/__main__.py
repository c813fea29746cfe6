"""Prints a table in Markdown: which programs of this folder have equal batches with both loaders.

python tests/pytorch/wild [NAME ...]
"""

import sys
from importlib.metadata import version

from compare import PACKAGES, result

print("| Program | Library | Version | 0 workers | 2 workers |\n| --- | --- | --- | --- | --- |")
for name in sys.argv[1:] or sorted(PACKAGES):
    package = PACKAGES[name]
    print(f"| {name} | {package} | {version(package)} | {result(name, 0)} | {result(name, 2)} |", flush=True)
