"""Errors of the library: what they can be caught by, and that their texts survive a process."""

import importlib.metadata
import pickle

import pytest

from gluonloader import errors
from gluonloader.errors import BatchifyError, MissingExtraError, explain_arguments, import_extra


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


def test_the_text_of_a_missing_extra_survives_a_process():
    error = MissingExtraError("vision", "OpenCV")
    assert str(error) == 'OpenCV is not installed; run pip install "gluonloader[vision]"'
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_folder_with_the_name_of_a_missing_package_is_no_package(tmp_path, monkeypatch):
    (tmp_path / "absent_package").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    for module in ("absent_package", "absent_package.part"):
        with pytest.raises(MissingExtraError, match="^Ray is not installed"):
            import_extra(module, "ray", "Ray")


def test_a_package_that_lacks_another_one_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "broken_package.py").write_text("import absent_dependency")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="absent_dependency") as caught:
        import_extra("broken_package", "ray", "Ray")
    assert not isinstance(caught.value, MissingExtraError)


@pytest.mark.parametrize("is_clone", [True, False])
def test_a_library_that_is_not_installed_is_named_by_its_path(is_clone, monkeypatch, tmp_path):
    def none(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", none)
    monkeypatch.setattr(errors, "__file__", str(tmp_path / "gluonloader" / "errors.py"))
    if is_clone:
        (tmp_path / "pyproject.toml").touch()
    command = f'pip install -e "{tmp_path}[jax]"' if is_clone else 'pip install "gluonloader[jax]"'
    assert str(MissingExtraError("jax")) == f"jax is not installed; run {command}"
