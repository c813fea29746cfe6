"""Errors of the library: what they can be caught by, and that their texts survive a process."""

import pickle

import pytest

from gluonloader.errors import BatchifyError, explain_arguments


def test_a_batchify_error_names_row_path_and_reason():
    error = BatchifyError("shape (3,)", 4, "['x']")
    assert str(error) == "sample 4 of the batch at ['x']: shape (3,)"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert str(BatchifyError("no samples")) == "no samples"


def test_position_is_the_old_name_of_row():
    error = BatchifyError("shape (3,)", 4)
    assert error.position == error.row == 4
    with pytest.raises(AttributeError):
        error.position = 5


def test_an_argument_of_torch_is_explained_and_others_are_passed_on():
    @explain_arguments(generator="pass seed instead")
    def draw(seed, *, count=1):
        return seed, count

    assert draw(3, count=2) == (3, 2)
    with pytest.raises(TypeError, match=r"draw\(\) has no argument generator: pass seed instead"):
        draw(3, generator=None)
    with pytest.raises(TypeError, match="unexpected keyword argument 'other'"):
        draw(3, other=None)
