"""`default_batchify`, and batchify functions that can be combined; their names are those of `gluon.data.batchify`.

A batchify function takes the list of samples and returns the batch. The functions here write into the memory of the
batch (`gluonloader.empty`). If a sample does not fit, they raise a `BatchifyError` that names the sample and the path.
"""

from .default import Batchify as Batchify
from .default import default_batchify
from .default import holds_large_array as holds_large_array
from .functions import Append, AsList, Dict, Group, List, NamedTuple, Pad, Stack, Tuple
from .functions import Split as Split
from .functions import on_field as on_field
from .functions import only_sample as only_sample
from .gathered import Gathered as Gathered

__all__ = ["Append", "AsList", "Dict", "Group", "List", "NamedTuple", "Pad", "Stack", "Tuple", "default_batchify"]
