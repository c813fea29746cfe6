"""Samples -> one batch: `default_batchify` and the pieces to build one's own, named as in `gluon.data.batchify`.

A batchify function takes the list of samples and returns the batch. Those here write straight into the batch's own
memory (`gluonloader.empty`) and raise `BatchifyError` with the position and path of a sample that does not fit.

default         the batch that keeps the structure of its samples
as_read         the same, while the samples are being read
functions       pieces
"""

from .as_read import Gathered as Gathered
from .as_read import gather as gather
from .default import Batchify as Batchify
from .default import default_batchify as default_batchify
from .functions import Append as Append
from .functions import AsList as AsList
from .functions import Dict as Dict
from .functions import Group as Group
from .functions import List as List
from .functions import NamedTuple as NamedTuple
from .functions import Pad as Pad
from .functions import Stack as Stack
from .functions import Tuple as Tuple
from .functions import on_field as on_field

__all__ = ["Append", "AsList", "Dict", "Group", "List", "NamedTuple", "Pad", "Stack", "Tuple", "default_batchify"]
