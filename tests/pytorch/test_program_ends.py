"""Programs that import torch: Python keeps their variables until it has cleared the names of gluonloader."""

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
