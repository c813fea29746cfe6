"""Main scripts and notebooks whose workers start by spawn or forkserver: one error with the cure, printed once."""

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.spawn, pytest.mark.numpy_only]

DATASET = """
import sys
from gluonloader import DataLoader

class Noisy:
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return index
"""
LOAD = "print(*map(sum, DataLoader({}, 2, num_workers=2, start_method={!r})))\n"
MOST_LINES = 25
WORKER = "gluonloader.errors.WorkerStartError: worker {} (pid {}) could not start: "
NOT_A_FILE = (
    "gluonloader.errors.TransportError: start_method={!r}: workers cannot import Noisy from __main__, which is a "
    "notebook, an interactive session, standard input or a package. Define it in a module (a .py file) and import it "
    "from there, or use start_method='fork' or executor='thread'"
)
# A notebook: `__main__` is no file, and the cells run one after another.
NOTEBOOK = """
import sys, types, code
module = sys.modules["__main__"] = types.ModuleType("__main__")
interpreter = code.InteractiveInterpreter(vars(module))
for cell in {!r}:
    interpreter.runsource(cell, "<cell>", "exec")
"""


def run(*arguments, **options):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120, **options)


def script(folder, text):
    file = folder / "train.py"
    file.write_text(text)
    return str(file)


def last_line(done, stdout=""):
    """The last line of an error, which is short and is printed once; with 0 for the numbers of the worker."""
    assert (done.returncode, done.stdout) == (1, stdout)
    lines = done.stderr.splitlines()
    assert len(lines) <= MOST_LINES, done.stderr
    assert sum(line.startswith("Traceback") for line in lines) <= 2, done.stderr
    start, pid, rest = lines[-1].partition(" (pid ")
    return start[:-1] + "0 (pid 0)" + rest.partition(")")[2] if pid else lines[-1]


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_script_without_a_main_guard(tmp_path, method):
    file = script(tmp_path, DATASET + LOAD.format("range(4)", method))
    done = run(file)
    assert last_line(done) == (
        WORKER.format(0, 0) + "WorkerStartError: the main script made a DataLoader with workers while a worker "
        f"imported it. Each worker imports the main script, {file}: put the code that workers must not run under "
        "`if __name__ == \"__main__\":`, or pass start_method='fork'"
    )
    assert f'  File "{file}", line 11, in <module>' in done.stderr.splitlines()[:10]


def test_a_script_that_raises_an_error_if_a_worker_imports_it(tmp_path):
    text = "import os\nos.mkdir('results')\nfrom gluonloader import DataLoader\nif __name__ == '__main__':\n"
    file = script(tmp_path, f"{text}    {LOAD.format('range(4)', 'spawn')}")
    error = last_line(run(file, cwd=tmp_path))
    assert error.startswith(f"{WORKER.format(0, 0)}FileExistsError: ")
    assert f"Each worker imports the main script, {file}: put the code" in error


def test_a_script_whose_workers_never_finish_its_import(tmp_path):
    text = "import time\nfrom gluonloader import DataLoader\nif __name__ != '__main__':\n    time.sleep(60)\n"
    file = script(
        tmp_path, f"{text}next(iter(DataLoader(range(4), 2, num_workers=1, timeout=8, start_method='spawn')))\n"
    )
    done = run(file)
    assert done.returncode == 1
    assert "because it still ran the main script, which each worker imports" in done.stderr
    assert f'  File "{file}", line 4 in <module>' in done.stderr


@pytest.mark.parametrize("arguments", [["train.py"], ["-m", "train"]], ids=["script", "module"])
def test_a_dataset_that_only_the_main_program_defines(tmp_path, arguments):
    body = DATASET.replace("\n", "\n    ") + "\n    " + LOAD.format("Noisy()", "spawn")
    script(tmp_path, f"if __name__ == '__main__':{body}")
    error = last_line(run(*arguments, cwd=tmp_path))
    missing = "Can't get attribute 'Noisy' on <module "
    if sys.version_info >= (3, 14):
        missing = "module '__mp_main__' has no attribute 'Noisy'"
    assert error.startswith(f"{WORKER.format(0, 0)}AttributeError: {missing}")
    assert error.endswith(
        "Workers import the main script, which does not define this name for them: define it at the top level of the "
        'script, not under `if __name__ == "__main__":`, or in a module'
    )


@pytest.mark.parametrize("arguments", [["train.py"], ["-m", "train"]], ids=["script", "module"])
def test_a_script_with_a_main_guard(tmp_path, arguments):
    script(tmp_path, f"{DATASET}\nif __name__ == '__main__':\n    {LOAD.format('Noisy()', 'forkserver')}")
    done = run(*arguments, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("1 5\n", "")


def test_a_script_that_handles_ctrl_c_does_not_change_the_workers(tmp_path):
    text = "import signal\nsignal.signal(signal.SIGINT, print)\ndef handler(i):\n"
    text += "    return signal.getsignal(signal.SIGINT) is signal.SIG_IGN\n"
    text += "if __name__ == '__main__':\n    from gluonloader import DataLoader, SimpleDataset\n"
    load = LOAD.format("SimpleDataset(range(4)).transform(handler)", "spawn")
    done = run(script(tmp_path, f"{text}    {load}"))
    assert (done.stdout, done.stderr) == ("2 2\n", "")


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_standard_input_as_script(method):
    """Workers import nothing, so it needs no guard, and cannot define their dataset."""
    done = run("-", input=DATASET + LOAD.format("range(4)", method) + LOAD.format("Noisy()", method))
    assert last_line(done, stdout="1 5\n") == NOT_A_FILE.format(method)


def test_a_dataset_that_is_defined_in_a_notebook():
    done = run("-c", NOTEBOOK.format([DATASET, LOAD.format("Noisy()", "forkserver"), LOAD.format("Noisy()", "fork")]))
    assert done.stderr.splitlines()[-1] == NOT_A_FILE.format("forkserver")
    assert len(done.stderr.splitlines()) <= MOST_LINES
    assert done.stdout == "1 5\n"
