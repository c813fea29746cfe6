"""Programs that import torch: Python keeps their variables until it has cleared the names of gluonloader.

The fork server imports torch once for all workers if the program has; a user's own list stays as it is.
"""

import json
import subprocess
import sys

import pytest
from conftest import load_or_skip, run_program
from served import new_server_name
from sharing import new_name

OPEN = {
    "share": "loader = gl.DataLoader(range(8), 2, num_workers=1, ranks={ranks})",
    "share, closed": "with gl.DataLoader(range(8), 2, num_workers=1, ranks={ranks}) as one:\n    loader = list(one)",
    "attach": "server = gl.serve(gl.DataLoader(range(8), 2, num_workers=1), {name!r})\nloader = gl.attach({name!r})",
    "streams": "loader = gl.DataLoader(gl.IterableDataset(range(8)), 2)",
    "workers": "loader = gl.DataLoader(range(8), 2, num_workers=2)",
    "threads": "loader = gl.DataLoader(range(8), 2, num_workers=2, thread_pool=True)",
    "bridge": "loader = gl.bridge([torch.arange(8)])",
    "torch": "data = torch.utils.data.TensorDataset(torch.arange(80))\n"
    "loader = gluonloader.torch.DataLoader(data, 2, num_workers=2)",
}


@pytest.mark.spawn
@pytest.mark.parametrize("kind", OPEN)
def test_a_program_with_torch_ends_without_a_message(kind):
    """It leaves the loader open, in the middle of an epoch."""
    load_or_skip("torch")
    make = OPEN[kind].format(ranks=f"gl.Ranks(0, 1, share={new_name()!r})", name=new_server_name())
    done = run_program(
        f"import torch\nimport gluonloader as gl\nimport gluonloader.torch\n{make}\n"
        "iterator = iter(loader)\nprint(len(next(iterator)) > 0)\n"
    )
    assert (done.stdout, done.stderr) == ("True\n", "")


SCRIPT = '''
import json, multiprocessing, sys
import gluonloader

class Modules:
    """Samples: which of these modules the worker had when it started."""

    def __len__(self):
        return 1

    def __getitem__(self, index):
        return {name: name in sys.modules for name in ("torch", "gluonloader.torch")}

if __name__ == "__main__":
    imported, preloaded = json.loads(sys.argv[1])
    for name in imported:
        __import__(name)
    if preloaded:
        multiprocessing.set_forkserver_preload(preloaded)
    with gluonloader.DataLoader(Modules(), 1, num_workers=1, start_method="forkserver") as loader:
        (batch,) = loader
    print(json.dumps({name: bool(seen[0]) for name, seen in batch.items()}))
'''


@pytest.mark.parametrize(
    ("imported", "preloaded", "found"),
    [
        ([], [], {"torch": False, "gluonloader.torch": False}),
        (["torch"], [], {"torch": True, "gluonloader.torch": False}),
        (["torch", "gluonloader.torch"], [], {"torch": True, "gluonloader.torch": True}),
        (["torch", "gluonloader.torch"], ["json"], {"torch": False, "gluonloader.torch": False}),
    ],
)
def test_what_workers_of_the_fork_server_find(imported, preloaded, found, tmp_path):
    load_or_skip("torch")
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "script.py"), json.dumps([imported, preloaded])]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    assert json.loads(printed) == found
