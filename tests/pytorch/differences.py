"""The differences between our loader and torch's that docs/torch.md lists; for each, torch fails a test.

`differs` marks a test that must fail with torch; `cases` is a table of calls with the results of both.
"""

from parity import differences_on, differing, differing_cases

DIFFERENCES = differences_on("torch.md", "Differences of gluonloader.torch.DataLoader")

differs = differing(DIFFERENCES, "loader_class", "torch")
cases = differing_cases(DIFFERENCES, "loader_class", "torch")
