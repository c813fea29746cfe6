"""What is special to one framework: JAX's integers, torch's unusual tensors, MXNet's two interfaces and late errors."""

import sys

import numpy as np
import pytest
from conftest import FORK, SERIAL, THREAD, load_or_skip
from framework_arrays import Plain, values

from gluonloader import DataLoader, default_batchify
from gluonloader.errors import BatchifyError, BatchTimeout
from gluonloader.frameworks.base import warn_once


class TestJax:
    @pytest.fixture(autouse=True)
    def jax(self):
        return pytest.importorskip("jax")

    @pytest.mark.parametrize(("number", "dtype"), [(2**31, np.int64), (-(2**31) - 1, np.int64), (2**32, np.uint64)])
    def test_integers_are_never_cut_silently(self, jax, any_way, number, dtype):
        samples = [np.array(1, dtype), np.array(number, dtype), np.array(2, dtype)]
        with any_way.loader(samples, 1, output="jax") as loader:
            iterator = iter(loader)
            assert next(iterator).tolist() == [1]
            with pytest.raises(OverflowError, match=f"{number} does not fit JAX's .*jax_enable_x64"):
                next(iterator)
            assert next(iterator).tolist() == [2]

    def test_bfloat16(self, jax, every_way):
        samples = [jax.numpy.full((4,), i / 2, jax.numpy.bfloat16) for i in range(6)]
        with every_way.loader(samples, 3) as loader:
            batches = list(loader)
        assert [batch.dtype for batch in batches] == [jax.numpy.bfloat16] * 2
        assert [float(batch[i, 0]) for batch in batches for i in range(3)] == [i / 2 for i in range(6)]

    def test_a_dataset_that_uses_it_in_a_forked_worker_is_told_what_to_do(self, jax):
        jax.numpy.ones(2).block_until_ready()
        with FORK.loader(range(2), 1, batchify_fn=jax.numpy.asarray, timeout=3) as loader:
            with pytest.raises(BatchTimeout, match="JAX can hang in a forked process; .*start_method='forkserver'"):
                next(iter(loader))

    def test_with_64_bits_they_stay_as_they_are(self, jax):
        jax.config.update("jax_enable_x64", True)
        try:
            (batch,) = DataLoader([2**40 + 7], 1, output="jax")
            assert batch.tolist() == [2**40 + 7]
        finally:
            jax.config.update("jax_enable_x64", False)


class TestTorch:
    @pytest.fixture(autouse=True)
    def torch(self):
        return pytest.importorskip("torch")

    def test_every_integer_of_numpy_becomes_a_tensor(self, torch, any_way):
        codes = np.typecodes["AllInteger"]
        with any_way.loader([[np.array(i, code) for code in codes] for i in range(2)], 2, output="torch") as loader:
            (batch,) = loader
        for tensor, code in zip(batch, codes, strict=True):
            assert (str(tensor.dtype), tensor.tolist()) == (f"torch.{np.dtype(code).name}", [0, 1])

    @pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental:UserWarning")
    def test_every_dtype_of_torch_keeps_its_bits(self, torch, any_way):
        bits = torch.arange(64, dtype=torch.uint8) % 2  # also valid as bool
        kinds = {kind for kind in vars(torch).values() if isinstance(kind, torch.dtype)}
        kinds = sorted((kind for kind in kinds if not str(kind).startswith("torch.q")), key=str)
        samples = [{str(kind): each.view(kind) for kind in kinds} for each in (bits, 1 - bits)]
        with any_way.loader(samples, 2) as loader:
            (batch,) = loader
        for kind in kinds:
            assert batch[str(kind)].dtype is kind
            assert torch.equal(batch[str(kind)].view(torch.uint8), torch.stack([bits, 1 - bits])), kind

    def test_a_structured_array_of_one_field_is_not_taken_for_bits(self, torch):
        samples = [np.array([1, 2], [("id", code)]) for code in ("u1", "u2", "u4")]
        with SERIAL.loader(samples, 1, output="torch") as loader:
            assert [batch.dtype for batch in loader] == [sample.dtype for sample in samples]

    def test_a_batch_of_tensors_is_their_stack(self, torch, every_way):
        names = ["uint16", "uint32", "uint64", "int64", "complex64", "bfloat16", "float8_e5m2"]
        parts = [(shape, getattr(torch, name)) for shape in [(), (3,), (0, 3), (2, 3)] for name in names]
        samples = [tuple(torch.full(shape, i).to(dtype) for shape, dtype in parts) for i in range(4)]
        with every_way.loader(samples, 3) as loader:
            batches = list(loader)
        for batch, tuples in zip(batches, (samples[:3], samples[3:]), strict=True):
            for tensor, expected in zip(batch, map(torch.stack, zip(*tuples)), strict=True):
                assert (tensor.dtype, tensor.shape) == (expected.dtype, expected.shape)
                assert tensor.tolist() == expected.tolist()

    def test_tensors_in_other_layouts_are_stacked(self, torch):
        whole = torch.arange(12.0).reshape(3, 4)
        numbers = torch.tensor([1 + 2j, 3j])
        for samples in ([whole, whole.T.reshape(4, 3).T], [numbers.conj(), numbers], [torch._neg_view(whole), whole]):
            assert torch.equal(default_batchify(samples), torch.stack(samples))

    @pytest.mark.filterwarnings("ignore::UserWarning")  # torch calls quantized tensors deprecated
    def test_tensors_that_cannot_be_stacked_are_named(self, torch):
        quantized = torch.quantize_per_tensor(torch.ones(3), 0.5, 1, torch.qint8)
        unusual = [torch.ones(3, requires_grad=True), torch.ones(3).to_sparse(), torch.ones(3, device="meta")]
        for sample in [torch.ones(4), *unusual, quantized]:
            with pytest.raises(BatchifyError, match="sample 2"):
                default_batchify([torch.ones(3), torch.ones(3), sample])
        with pytest.raises(BatchifyError, match=r"a Tensor that requires a gradient; return x.detach\(\)"):
            default_batchify(unusual[:1])
        with pytest.raises(BatchifyError, match=r"sample 0 .* at \[1\]: .*sparse or quantized, has a gradient"):
            default_batchify([(0, torch.eye(2).to_sparse())])
        with pytest.raises(BatchifyError, match="a Tensor that is sparse or quantized, has a gradient"):
            default_batchify([quantized, quantized])

    def test_numbers_without_a_numpy_dtype_need_ml_dtypes(self, torch):
        samples = [torch.ones(2, dtype=torch.bfloat16)] * 2
        with SERIAL.loader(samples, 2, output="numpy") as loader:
            if "ml_dtypes" in sys.modules:
                assert next(iter(loader)).dtype.name == "bfloat16"
            else:
                with pytest.raises(TypeError, match="NumPy has no dtype bfloat16; .*pip install ml_dtypes"):
                    next(iter(loader))

    @pytest.mark.filterwarnings("ignore::UserWarning")  # torch calls quantized tensors deprecated
    def test_unusual_tensors_travel_too(self, torch, every_way):
        with every_way.loader([1], 1, batchify_fn=unusual) as loader:
            (batch,) = loader
        assert batch["strided"].tolist() == [[0, 2], [1, 3]]
        assert batch["conjugate"].tolist() == [1 - 2j]
        assert batch["sparse"].is_sparse
        assert batch["sparse"].to_dense().tolist() == [[1, 0], [0, 1]]
        assert batch["gradient"].requires_grad
        assert batch["empty"].shape == (0, 3)
        assert batch["scalar"].item() == 4
        assert torch.equal(batch["quantized"].dequantize(), torch.ones(3))

    def test_the_statistics_count_the_bytes_of_sparse_tensors(self, torch):
        with SERIAL.loader([1], 1, batchify_fn=lambda _: torch.eye(3).to_sparse()) as loader:
            list(loader)
            assert loader.stats().nbytes == 3 * 4 + 2 * 3 * 8  # values, rows and columns

    @pytest.mark.parametrize("layout", ["strided", "jagged"])
    @pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
    def test_nested_samples_cannot_be_stacked_but_a_batch_may_be_nested(self, torch, layout):
        def nested(tensors):
            return torch.nested.nested_tensor(tensors, layout=getattr(torch, layout))

        samples = [torch.ones(2), torch.ones(3)]
        with SERIAL.loader([(0, nested(samples))], 1) as loader:
            with pytest.raises(BatchifyError, match=r"sample 0 .* at \[1\]: it is a nested tensor, .*; return plain"):
                next(iter(loader))
        with FORK.loader(samples, 2, batchify_fn=nested) as loader:
            (batch,) = loader
        assert batch.is_nested
        assert [tensor.tolist() for tensor in batch.unbind()] == [[1, 1], [1, 1, 1]]

    def test_read_only_and_foreign_layouts_are_copied(self, torch):
        def awkward(_):
            array = np.arange(6)
            frozen = array.copy()
            frozen.flags.writeable = False
            return array[::-1], frozen, array.astype(">i4")

        with SERIAL.loader([1], 1, batchify_fn=awkward, output="torch") as loader:
            (batch,) = loader
        assert [tensor.tolist() for tensor in batch] == [[5, 4, 3, 2, 1, 0], list(range(6)), list(range(6))]

    def test_subclasses_of_tensor_are_stacked(self, torch):
        class Labelled(torch.Tensor):
            pass

        samples = [torch.ones(2).as_subclass(Labelled)] * 2
        (batch,) = DataLoader(samples, 2)
        assert type(batch) is torch.Tensor

    def test_random_numbers_depend_on_the_batch_alone(self, torch, any_way):
        def draw(samples):
            return torch.rand(2)

        if any_way is THREAD:
            pytest.skip("threads share one generator")
        torch.manual_seed(5)
        expected = torch.rand(1)
        torch.manual_seed(5)
        with any_way.loader(range(4), 1, batchify_fn=draw) as loader:
            first = torch.stack(list(loader))
        with FORK.loader(range(4), 1, batchify_fn=draw) as loader:
            assert torch.equal(first, torch.stack(list(loader)))
        assert len(set(first[:, 0].tolist())) == 4
        assert torch.equal(torch.rand(1), expected), "the user's generator was not restored"

    def test_a_parent_that_computes_does_not_break_forked_workers(self, torch):
        """Forked processes have lost the threads of OpenMP's pool."""
        threads = torch.get_num_threads()
        torch.set_num_threads(2)
        try:
            assert torch.ones(512, 512).mm(torch.ones(512, 512))[0, 0] == 512

            def compute(samples):
                return torch.ones(512, 512).mm(torch.ones(512, 512)).sum()

            with FORK.loader(range(4), 1, batchify_fn=compute, timeout=30) as loader:
                assert [batch.item() for batch in loader] == [512.0**3] * 4
        finally:
            torch.set_num_threads(threads)

    def test_pinned_memory_without_a_device_warns_once(self, torch):
        if torch.cuda.is_available():
            pytest.skip("there is a device")
        warn_once.cache_clear()  # another test may have warned already
        with FORK.loader([torch.zeros(2)] * 4, 2, pin_memory=True) as loader:
            with pytest.warns(RuntimeWarning, match="torch sees no device") as warned:
                assert [batch.shape for batch in loader] == [(2, 2)] * 2
            assert len(warned) == 1


def unusual(_):
    import torch

    return {
        "strided": torch.arange(4).reshape(2, 2).T,
        "conjugate": torch.tensor([1 + 2j]).conj(),
        "sparse": torch.eye(2).to_sparse(),
        "gradient": torch.zeros(2, requires_grad=True),
        "empty": torch.zeros(0, 3),
        "scalar": torch.tensor(4),
        "quantized": torch.quantize_per_tensor(torch.ones(3), 0.5, 1, torch.qint8),
    }


class TestMXNet:
    @pytest.fixture(autouse=True)
    def mx(self):
        return load_or_skip("mxnet")

    def test_bfloat16_of_mxnet(self, mx):
        bits = np.array([0x3F80, 0x4000] * 20_000, np.uint16).view([("bfloat16", "<u2")])  # 1 and 2
        with FORK.loader([bits, bits[:2]], 1, output="mxnet") as loader:
            large, small = loader
        assert large.astype("float32").asnumpy().tolist() == [[1, 2] * 20_000]
        assert small.astype("float32").asnumpy().tolist() == [[1, 2]]
        assert [batch.context for batch in (large, small)] == [mx.Context("cpu_shared", 0), mx.cpu()]

    def test_the_numpy_like_interface_asks_for_its_own_arrays(self, mx):
        with FORK.loader(Plain(4), 4, output="mxnet") as loader:
            assert type(next(iter(loader)).x) is mx.nd.NDArray
            with mx.util.np_array(True):
                assert type(next(iter(loader)).x) is mx.np.ndarray

    def test_sparse_arrays_travel_too(self, mx):
        def sparse(_):
            return mx.nd.ones((2, 2)).tostype("csr")

        with FORK.loader([1], 1, batchify_fn=sparse) as loader:
            (batch,) = loader
            assert loader.stats().nbytes == 4 * 4 + 4 * 8 + 3 * 8  # values, columns, and where each row starts
        assert batch.stype == "csr"
        assert batch.asnumpy().tolist() == [[1, 1], [1, 1]]

    def test_an_operation_that_fails_late_raises_the_users_error(self, mx):
        """MXNet raises when the result is read, which is when the batch leaves its worker."""

        def negative_deviation(samples):
            return mx.nd.random.normal(0, -1 if samples[0] == 1 else 1, (2, 2))

        with FORK.loader(range(3), 1, batchify_fn=negative_deviation) as loader:
            iterator = iter(loader)
            next(iterator)
            with pytest.raises(mx.MXNetError, match="gaussian"):
                next(iterator)
            assert next(iterator).shape == (2, 2)

    def test_a_seed_that_the_dataset_sets_itself_stays(self, mx):
        def draw(samples):
            mx.random.seed(7)
            return mx.nd.random.uniform(shape=(2,))

        with FORK.loader(range(3), 1, batchify_fn=draw) as loader:
            first, *others = [batch.asnumpy().tolist() for batch in loader]
        assert others == [first] * 2

    def test_functions_transforms_and_networks_draw_numbers_from_the_seed_of_the_batch(self, mx):
        transforms, flips = mx.gluon.data.vision.transforms, mx.nd.arange(64).reshape((1, 64, 1))
        network = mx.gluon.nn.Dropout(0.5)
        network.hybridize()

        def draw(samples):
            with mx.autograd.train_mode():
                dropped = network(mx.nd.ones((64,)))
            flipped = [transforms.RandomFlipLeftRight()(flips)[0, 0, 0].asscalar() for _ in range(16)]
            uniform = mx.nd.random.uniform(shape=(2,)), mx.np.random.uniform(size=(3,)).as_nd_ndarray()
            return dropped, np.array(flipped), *uniform

        def epoch(**arguments):
            with FORK.loader(range(4), 1, batchify_fn=draw, **arguments) as loader:
                return [[values(array).tolist() for array in batch] for batch in loader]

        first = epoch()
        assert first == epoch(num_workers=1)
        assert all(len({str(batch[part]) for batch in first}) == 4 for part in range(4))
