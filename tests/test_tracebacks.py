"""Tracebacks of errors in a dataset: they show the frames of the user's code, and not those of the library."""

import builtins
import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path

import numpy as np
import pytest
from conftest import FORK, SERIAL, THREAD
from interrupting import SignalAt

import gluonloader
from gluonloader import SimpleDataset
from gluonloader.errors import BatchifyError, BatchTimeout, RemoteTraceback, hide_own_frames
from gluonloader.executors.lanes.remote import decode_error, encode_error

PACKAGE = str(Path(gluonloader.__file__).parent)
SCRIPT = """
from gluonloader import DataLoader

def read(index):
    if index == 6:
        raise OSError(f"cannot read {index}.jpg")
    return index

class Images:
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return read(index)

with DataLoader(Images(), 4, num_workers=2, start_method="fork") as loader:
    for batch in loader:
        pass
"""


class Raising:
    def __init__(self, make):
        self.make = make

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return self.read(index)

    def read(self, index):
        local = index  # for the test of debuggers
        return self.make(local)


def first(index):
    raise LookupError(f"sample {index}")


def chained(index):
    try:
        first(index)
    except LookupError as error:
        raise ValueError("second") from error


def stops(index):
    raise StopIteration(index)


def grouped(index):
    errors = []
    for function in (first, chained):
        try:
            function(index)
        except Exception as error:
            errors.append(error)
    raise builtins.ExceptionGroup("several", errors)


def error_of(way, dataset, **arguments):
    with way.loader(dataset, 2, **arguments) as loader:
        with pytest.raises(Exception) as caught:  # noqa: PT011
            next(iter(loader))
    return caught.value


def text_of(error):
    """What a user sees of the error."""
    return "".join(traceback.format_exception(error))


def own_frames(text):
    return [line for line in text.splitlines() if f'File "{PACKAGE}' in line]


def functions_of(error):
    return [frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)]


def run_script(tmp_path, **variables):
    file = tmp_path / "train.py"
    file.write_text(SCRIPT)
    environment = {**os.environ, **variables}
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 1
    return done.stderr.splitlines()


@pytest.mark.spawn
def test_an_error_in_a_worker_takes_25_lines_and_starts_with_the_note(tmp_path):
    lines = run_script(tmp_path)
    assert len(lines) <= 25, lines
    start, _, worker = lines[0].partition(", in worker ")
    assert start == "gluonloader.errors.RemoteTraceback: in dataset[6], batch 1 of epoch 0"
    assert worker.endswith(")")
    shown = "\n".join(lines[:10])
    assert "in __getitem__\n    return read(index)\n" in shown
    assert 'raise OSError(f"cannot read {index}.jpg")' in shown
    assert "OSError: cannot read 6.jpg" in shown
    [own] = own_frames("\n".join(lines))
    assert own.endswith("in __next__")
    assert any("GLUONLOADER_FULL_TRACEBACK=1 shows all frames" in line for line in lines)


@pytest.mark.spawn
def test_a_variable_shows_all_frames(tmp_path):
    assert len(run_script(tmp_path, GLUONLOADER_FULL_TRACEBACK="0")) <= 25
    lines = run_script(tmp_path, GLUONLOADER_FULL_TRACEBACK="1")
    assert lines[0].startswith("gluonloader.errors.RemoteTraceback: in dataset[6], batch 1 of epoch 0, in worker ")
    functions = [line.rpartition(" in ")[2] for line in own_frames("\n".join(lines))]
    assert {"answer", "make", "_read", "__next__", "next", "_accept"} <= set(functions)


def test_only_the_frames_of_the_user_are_shown(any_way):
    error = error_of(any_way, Raising(first))
    text = text_of(error)
    assert [line.rpartition(" in ")[2] for line in own_frames(text)] == ["__next__"]
    assert text.index(" in __getitem__") < text.index(" in read") < text.index(" in first")


@pytest.mark.parametrize("way", [SERIAL, THREAD], ids=str)
def test_a_debugger_reaches_the_frames_of_the_user(way):
    error = error_of(way, Raising(first))
    assert functions_of(error) == ["error_of", "__next__", "__getitem__", "read", "first"]
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    assert (frames[-1].f_locals["index"], frames[-2].f_locals["local"]) == (0, 0)


def test_causes_are_shown_without_the_frames_of_the_library(any_way):
    text = text_of(error_of(any_way, Raising(chained)))
    assert text.index("LookupError: sample 0") < text.index("ValueError: second")
    assert [line.rpartition(" in ")[2] for line in own_frames(text)] == ["__next__"]
    text = text_of(error_of(any_way, Raising(stops)))
    assert text.index("StopIteration: 0") < text.index("RuntimeError: dataset[0] raised StopIteration(0)")
    # In this process, `_read` has raised the RuntimeError.
    assert {line.rpartition(" in ")[2] for line in own_frames(text)} <= {"__next__", "_read"}


@pytest.mark.skipif(not hasattr(builtins, "ExceptionGroup"), reason="Python 3.10 has none")
def test_the_errors_of_a_group_are_shown_without_the_frames_of_the_library(any_way):
    def batchify(samples):
        inner = gluonloader.DataLoader(Raising(chained), 2)
        try:
            next(iter(inner))
        except ValueError as error:
            raise builtins.ExceptionGroup("several", [error, LookupError("other")]) from None

    text = text_of(error_of(any_way, range(4), batchify_fn=batchify))
    assert "ValueError: second" in text
    assert "LookupError: other" in text
    assert {line.rpartition(" in ")[2] for line in own_frames(text)} == {"__next__"}
    text = text_of(error_of(any_way, Raising(grouped)))
    assert text.index("LookupError: sample 0") < text.index("ValueError: second")


def test_notes_of_the_user_stay_below_the_error():
    error = ValueError("wrong")
    error.__notes__ = ["of the user", "gluonloader: in dataset[3], batch 1 of epoch 0"]
    there = decode_error(encode_error(error, "in worker 1 (pid 4711)"))
    first_line, *rest = str(there.__cause__).splitlines()
    assert first_line == "in dataset[3], batch 1 of epoch 0, in worker 1 (pid 4711)"
    if sys.version_info < (3, 11):
        rest = [*rest[:1], "of the user"]  # Python 3.10 shows notes only if the package exceptiongroup is imported
    assert rest == ["ValueError: wrong", "of the user"]


def test_the_frame_of_the_library_that_raised_another_error_than_its_own_is_shown(any_way):
    def out_of_range(sample):
        return SimpleDataset([1, 2])[5]

    text = text_of(error_of(any_way, SimpleDataset(range(4)).transform(out_of_range)))
    assert "in out_of_range" in text
    assert "return self._data[index]" in text


def test_errors_of_the_library_show_no_frame_of_the_library(any_way):
    error = error_of(any_way, [np.zeros(2), np.zeros(3)])
    assert type(error) is BatchifyError
    assert [line.rpartition(" in ")[2] for line in own_frames(text_of(error))] == ["__next__"]
    assert text_of(error).count("it has shape (3,)") == 1  # in a worker, nothing else led to it


@pytest.mark.parametrize("way", [SERIAL, THREAD, FORK], ids=str)
def test_ctrl_c_shows_one_frame_of_the_library(way):
    with way.loader(list(range(8)), 2) as loader:
        iterator = iter(loader)
        next(iterator)
        with pytest.raises(KeyboardInterrupt) as caught, SignalAt(10, signal.SIGINT) as interrupted:
            next(iterator)
        assert interrupted.where
        assert [line.rpartition(" in ")[2] for line in own_frames(text_of(caught.value))] == ["__next__"]
        assert [batch.tolist() for batch in iterator] == [[2, 3], [4, 5], [6, 7]]


def test_a_timeout_shows_the_program_and_the_stack_of_the_worker():
    def hang(index):
        import time

        time.sleep(60)

    error = error_of(FORK, Raising(hang), timeout=3)
    assert type(error) is BatchTimeout
    assert functions_of(error) == ["error_of", "__next__"]
    assert " in hang" in str(error)


def test_the_constructor_shows_the_call_of_the_user():
    with pytest.raises(ValueError, match="batch_size=0") as caught:
        gluonloader.DataLoader(range(4), 0)
    assert functions_of(caught.value)[1] == "checked"
    assert len(functions_of(caught.value)) == 3  # the last one has raised the error


def test_an_error_that_is_its_own_cause():
    error = ValueError("wrong")
    error.__cause__ = other = LookupError("other")
    other.__context__ = error
    assert hide_own_frames(error) is error


def test_the_cause_of_an_error_is_a_text_without_fences():
    error = error_of(FORK, Raising(first))
    assert isinstance(error.__cause__, RemoteTraceback)
    lines = str(error.__cause__).splitlines()
    assert lines[0].startswith("in dataset[0], batch 0 of epoch 0, in worker ")
    assert (lines[1], lines[-1]) == ("Traceback (most recent call last):", "LookupError: sample 0")


def test_ctrl_c_at_an_instruction_without_a_line():
    def interrupt():
        raise KeyboardInterrupt

    interrupt.__code__ = interrupt.__code__.replace(co_linetable=b"")
    with pytest.raises(KeyboardInterrupt) as caught:
        interrupt()
    assert hide_own_frames(caught.value) is caught.value
