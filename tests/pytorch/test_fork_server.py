"""The fork server imports torch once for all workers if the program has; a user's own list stays as it is."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("torch")

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
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "script.py"), json.dumps([imported, preloaded])]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    assert json.loads(printed) == found
