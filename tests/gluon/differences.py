"""The differences between `gluonloader.mxnet` and Gluon that docs/gluon.md lists; for each, Gluon fails a test.

`differs` marks a test that must fail with Gluon; `cases` is a table of calls with the results of both.
"""

from parity import differences_on, differing, differing_cases

DIFFERENCES = differences_on("gluon.md")

differs = differing(DIFFERENCES, "gdata", "gluon")
cases = differing_cases(DIFFERENCES, "gdata", "gluon")
