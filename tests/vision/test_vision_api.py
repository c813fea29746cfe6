"""The public names of gluonloader.vision: documented, and with the arguments of Gluon's classes of the same names."""

import inspect
import re
from pathlib import Path

import pytest
from conftest import load_mxnet

from gluonloader import vision
from gluonloader.vision import transforms

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
NAMES = [f"vision.{name}" for name in vision.__all__ if name not in ("transforms", "ImageError")]
NAMES += [f"vision.transforms.{name}" for name in transforms.__all__]


def test_the_api_page_has_every_public_name():
    documented = re.findall(r"^   gluonloader\.(vision\.[\w.]+)$", PAGE, re.MULTILINE)
    assert sorted(documented) == sorted(NAMES)


@pytest.mark.parametrize("module", [vision, transforms], ids=["vision", "transforms"])
def test_every_public_name_is_documented(module):
    for name in module.__all__:
        assert len(inspect.getdoc(getattr(module, name)).split()) > 3, name


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of MXNet's own code
def test_the_arguments_start_with_those_of_gluon():
    mxnet = load_mxnet() or pytest.skip("needs mxnet")
    theirs = mxnet.gluon.data.vision
    compared = 0
    for ours, right in ((vision, theirs), (transforms, theirs.transforms)):
        for name in ours.__all__:
            if inspect.isclass(getattr(ours, name)) and hasattr(right, name):
                expected = list(inspect.signature(getattr(right, name)).parameters)
                assert list(inspect.signature(getattr(ours, name)).parameters)[: len(expected)] == expected, name
                compared += 1
    assert compared == 22
