"""`patch_numpy`: MXNet 1.9.1 on the installed NumPy.

What changes `numpy` or imports MXNet runs in a program of its own: this file, called with the name of a probe.
"""

import ast
import importlib
import json
import subprocess
import sys
import tempfile
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from gluonloader.mxnet import patch_numpy

pytestmark = pytest.mark.spawn  # each test patches NumPy in a program of its own

VERSION = tuple(map(int, np.__version__.split(".")[:2]))
DOCUMENTED = {
    (1, 24): "bool int",
    (2, 0): "Inf NAN NINF NZERO NaN PINF PZERO alltrue compat mirr msort npv pmt ppmt product pv rate round_ sometrue",
    (2, 4): "in1d trapz",
}
NAMES = sorted({name for since, names in DOCUMENTED.items() if VERSION >= since for name in names.split()})
if VERSION >= (2, 0):
    NAMES.remove("bool")  # NumPy 2 has one of its own

needs_mxnet = pytest.mark.skipif(
    not all(map(find_spec, ("mxnet", "distutils"))), reason="needs MXNet and, since Python 3.12, setuptools"
)


def run(probe, *flags):
    """What a probe returns, from a program of its own."""
    command = [sys.executable, *flags, __file__, probe]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, f"{probe}:\n{done.stderr[-6000:]}"
    return json.loads(done.stdout.splitlines()[-1])


# ---- probes ----------------------------------------------------------------------------------------------------------


def patched():
    """MXNet as a user gets it; a warning that our code causes is an error, MXNet's own are not shown."""
    warnings.simplefilter("ignore")
    warnings.filterwarnings("error", module=r"gluonloader\.")
    patch_numpy()
    import mxnet

    return mxnet


class NoMXNet:
    """An import hook for a machine without MXNet; it also shows that nobody tried."""

    asked: list[str] = []

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "mxnet":
            self.asked.append(name)
            raise ModuleNotFoundError(name)


def probe_names():
    import logging

    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append((record.name, record.levelname, record.getMessage()))
    logging.getLogger("gluonloader").addHandler(handler)
    logging.getLogger("gluonloader").setLevel(logging.INFO)
    sys.meta_path.insert(0, NoMXNet())
    modules = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "numpy"}
    before = {name: dict(vars(module)) for name, module in modules.items()}
    first, second = patch_numpy(), patch_numpy()
    changed = []
    for name, module in modules.items():
        old, new = before[name], vars(module)
        changed += [f"{name}.{key}" for key in old.keys() | new.keys() if old.get(key, old) is not new.get(key, new)]
    assert not hasattr(sys.modules["gluonloader.mxnet"], "per_tensor_affine")  # so does pickle look for a name
    return {"first": first, "second": second, "changed": sorted(changed), "lines": lines, "asked": NoMXNet.asked}


def probe_values():
    """The names mean what they meant, on every NumPy."""
    warnings.simplefilter("ignore")  # of a NumPy that still has the name
    patch_numpy()
    square = np.array([[3, 1], [2, 5]])
    zeros = [str(np.PZERO), str(np.NZERO), str(np.PINF), str(np.NINF), str(np.Inf), str(np.NaN), str(np.NAN)]
    assert zeros == ["0.0", "-0.0", "inf", "-inf", "inf", "nan", "nan"]
    assert np.in1d(square, [1, 2]).tolist() == [False, True, True, False]
    assert np.in1d(3, [3]).tolist() == [True]
    assert np.in1d([1, 2], [2], invert=True).tolist() == [True, False]
    assert np.msort(square).tolist() == [[2, 1], [3, 5]]
    assert square[0, 0] == 3
    assert (np.alltrue([1, 0]), np.sometrue([1, 0]), np.product([2, 3])) == (False, True, 6)
    assert np.round_(2.55, 1) == np.round(2.55, 1)
    assert np.trapz([1.0, 2.0, 4.0], dx=2.0) == 9.0
    assert np.dtype(np.bool) == np.bool_
    assert np.zeros(1, np.int).dtype.kind == "i"
    assert isinstance("", np.compat.basestring)
    texts = {}
    for name in ("mirr", "npv", "pmt", "ppmt", "pv", "rate"):
        try:
            getattr(np, name)(0.1, 2, 3)
        except RuntimeError as error:
            texts[name] = str(error)
    return texts


def probe_nothing_missing():
    """Which of the names in `taken_from_numpy` are still not there."""
    warnings.simplefilter("ignore")
    patch_numpy()
    return [name for name in taken_from_numpy()[0] if not hasattr(np, name)]


def probe_training():
    """`import mxnet` first: where that fails, it works after `patch_numpy`, and no submodule is missing."""
    warnings.simplefilter("ignore")
    try:
        importlib.import_module("mxnet")
    except AttributeError:
        failed = True
    else:
        failed = False
    added = patch_numpy()
    mx = patched()
    assert patch_numpy() == ()
    assert sys.modules["mxnet"] is mx
    split = [name.rpartition(".") for name in sys.modules if name.startswith("mxnet.")]
    unbound = [f"{package}.{name}" for package, _, name in split if not hasattr(sys.modules[package], name)]
    for dtype in ("float16", "float32", "float64", "uint8", "int8", "int32", "int64", "bool"):
        values = np.array([[0, 1, 1], [1, 0, 1]], dtype)
        there = mx.nd.array(values, dtype=dtype)
        back = there.asnumpy()
        assert there.dtype == back.dtype == values.dtype
        assert (back == values).all(), dtype
    x = mx.nd.array([1.0, 2.0])
    x.attach_grad()
    with mx.autograd.record():
        y = (x * x).sum()
    y.backward()
    assert x.grad.asnumpy().tolist() == [2.0, 4.0]

    mx.random.seed(1)
    draws = mx.nd.random.normal(shape=(1000,)).asnumpy()
    assert abs(draws.mean()) < 0.2
    assert abs(draws.std() - 1) < 0.2
    metric = mx.metric.CompositeEvalMetric([mx.metric.Accuracy(), mx.metric.MSE()])
    metric.update([mx.nd.array([0, 1])], [mx.nd.array([0, 1])])
    assert [float(value) for value in metric.get()[1]] == [1.0, 0.0]

    dense = mx.gluon.nn.Dense(3, in_units=4)
    conv = mx.gluon.nn.HybridSequential()
    conv.add(mx.gluon.nn.Conv2D(2, 2, activation="relu"), mx.gluon.nn.BatchNorm(), mx.gluon.nn.Dense(3))
    conv.hybridize()
    losses = [fit(mx, dense, mx.nd.array), fit(mx, conv, mx.nd.array, (1, 2, 2))]

    with tempfile.TemporaryDirectory() as folder:
        dense.save_parameters(f"{folder}/dense")
        other = mx.gluon.nn.Dense(3, in_units=4)
        other.load_parameters(f"{folder}/dense")
    ones = mx.nd.ones((2, 4))
    assert (other(ones).asnumpy() == dense(ones).asnumpy()).all()
    return {"failed": failed, "added": added, "unbound": unbound, "losses": losses}


def fit(mx, net, array, shape=(4,)):
    """The loss before and after 20 steps on 12 samples of 3 classes that are easy to tell apart."""
    labels = np.arange(12) % 3
    features, labels = array(np.eye(4, dtype=np.float32)[labels].reshape(12, *shape)), array(labels)
    mx.random.seed(0)
    net.initialize(mx.init.Xavier())
    trainer = mx.gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.1})
    loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    losses = []
    for _ in range(20):
        with mx.autograd.record():
            loss = loss_of(net(features), labels).mean()
        loss.backward()
        trainer.step(1)
        losses.append(loss.asnumpy().item())
    return losses[0], losses[-1]


def probe_numpy_arrays():
    """`mxnet.numpy`, and NumPy's own functions on its arrays, where they go through names that were put back."""
    mx = patched()
    mx.npx.set_np()
    square = mx.np.array([[3.0, 1.0], [2.0, 5.0]])
    for dtype in ("float16", "float32", "float64", "uint8", "int8", "int32", "int64", "bool"):
        assert mx.np.ones(2, dtype=dtype).asnumpy().dtype == dtype
    assert (mx.np.PZERO, mx.np.PINF, mx.np.NINF) == (0.0, np.inf, -np.inf)
    assert np.isnan(mx.np.NaN)
    assert mx.np.ones(2, dtype=mx.np.bool).dtype == np.bool_
    assert (square > 2)[0].tolist() == [True, False]
    assert square[square > 2].tolist() == [3.0, 5.0]
    assert bool(mx.np.alltrue(square > 0))
    assert not bool(mx.np.alltrue(square > 1))
    assert mx.np.in1d(square, mx.np.array([1.0, 2.0])).tolist() == [False, True, True, False]
    assert mx.np.msort(square).tolist() == [[2.0, 1.0], [3.0, 5.0]]
    assert mx.np.trapz(mx.np.array([1.0, 2.0, 4.0])) == 4.5
    assert (np.sometrue(square > 4).item(), np.product(square).item()) == (True, 30.0)
    assert np.round_(square / 2).tolist() == mx.np.round(square / 2).tolist()
    assert np.sum(square, axis=0).tolist() == [5.0, 6.0]
    assert isinstance(np.sum(square, axis=0), mx.np.ndarray)
    assert mx.np.pad(square, ((1, 0), (0, 0)), mode="edge").shape == (3, 2)
    assert mx.np.empty_like(square).shape == (2, 2)
    with pytest.raises(RuntimeError, match="numpy_financial"):
        mx.np.pv(0.1, 2, 3)
    net = mx.gluon.nn.Dense(3)
    net.hybridize()
    return fit(mx, net, mx.np.array)


def probe_loader():
    mx = patched()
    data = mx.gluon.data.ArrayDataset(np.arange(20, dtype=np.float32).reshape(10, 2), np.arange(10))
    batches = {}
    for workers in (0, 2):
        for semantics in (mx.npx.reset_np, mx.npx.set_np):
            semantics()
            loader = mx.gluon.data.DataLoader(data, 4, num_workers=workers, timeout=60)
            kind = mx.np.ndarray if mx.util.is_np_array() else mx.nd.NDArray
            assert all(type(part) is kind for batch in loader for part in batch)
            batches[f"{workers} {kind.__name__}"] = [[part.asnumpy().tolist() for part in batch] for batch in loader]
    return batches


# ---- what MXNet's files say ------------------------------------------------------------------------------------------


def taken_from_numpy():
    """Names that the installed MXNet takes from the module numpy: as attributes, and as strings in its own lists."""
    root = Path(find_spec("mxnet").origin).parent  # does not import it
    attributes, strings = set(), set()
    for file in root.rglob("*.py"):
        text = file.read_text(errors="replace")
        if "import numpy" not in text:
            continue
        nodes = list(ast.walk(ast.parse(text)))
        aliases = {
            alias.asname or alias.name
            for node in nodes
            if isinstance(node, ast.Import)
            for alias in node.names
            if alias.name == "numpy"
        }
        attributes |= {
            node.attr
            for node in nodes
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases
        }
        if file.name == "numpy_dispatch_protocol.py":
            strings |= {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return attributes, strings


# ---- tests -----------------------------------------------------------------------------------------------------------


def test_adds_and_logs_the_documented_names_and_changes_nothing_else():
    seen = run("names", "-W", "error")  # so no warning, either
    assert seen["first"] == NAMES
    assert seen["second"] == []
    assert seen["changed"] == [f"numpy.{name}" for name in NAMES]
    assert seen["asked"] == []  # it never imports MXNet, and needs none
    (name, level, first), second = seen["lines"]
    assert (name, level) == ("gluonloader", "INFO")
    assert np.__version__ in first
    assert first.endswith(": " + (", ".join(NAMES) or "none"))
    assert second[2].endswith(": none")


def test_the_names_have_their_old_meaning():
    texts = run("values")
    assert set(texts) == {"mirr", "npv", "pmt", "ppmt", "pv", "rate"}
    for name, text in texts.items():
        assert name in text
        assert "numpy_financial" in text


@needs_mxnet
def test_mxnet_uses_every_name_that_is_added():
    attributes, strings = taken_from_numpy()
    assert set(NAMES) <= attributes | strings


@needs_mxnet
def test_every_name_that_mxnet_uses_is_there():
    assert run("nothing_missing") == []


@needs_mxnet
def test_mxnet_trains_also_if_its_import_has_failed_before():
    seen = run("training")
    assert seen["added"] == NAMES
    assert seen["failed"] == (VERSION >= (1, 24))
    assert seen["unbound"] == []
    for before, after in seen["losses"]:
        assert after < before / 2


@needs_mxnet
def test_mxnet_numpy_works():
    before, after = run("numpy_arrays")
    assert after < before / 2


@needs_mxnet
def test_mxnet_loads_data():
    expected = [
        [[[2.0 * i, 2.0 * i + 1] for i in part], list(part)] for part in (range(0, 4), range(4, 8), range(8, 10))
    ]
    seen = run("loader")
    assert sorted(seen) == ["0 NDArray", "0 ndarray", "2 NDArray", "2 ndarray"]
    assert all(batches == expected for batches in seen.values())


if __name__ == "__main__":
    print(json.dumps(globals()[f"probe_{sys.argv[1]}"]()))
