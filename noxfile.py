"""The environments that the project is tested in: `nox` runs them all, `nox -s core` is for daily work.

core     the default Python, newest NumPy, nothing else; without the tests that are marked slow, spawn or kill, and with
         fewer random examples
newest   NumPy alone. Python 3.15: the tests that are marked numpy_only, most of which are about processes. Python 3.14:
         the other tests of `core`. `.ci/pythons` gets these two if they are not installed. And the oldest, if it is
         installed: Python 3.10 with NumPy 1.23, for the same tests as 3.14
free     a free-threaded Python, NumPy and Pillow: all tests; skipped where there is none (not part of a plain `nox`)
modern   Python 3.11, newest NumPy, torch, JAX, MXNet 1.9.1 by `gluonloader.mxnet.patch_numpy`, and what has tables and
         streams: pyarrow, pandas, polars, h5py, zarr, fsspec, obstore, Hugging Face datasets, WebDataset, and moto, a
         server of S3; all tests that are not marked numpy_only, of the Gluon drop-in only those of `core`; then those
         of `trainers` that are not slow
gluon    Python 3.11, NumPy 1.23, MXNet 1.9.1, GluonNLP, GluonCV, torch, pyarrow, h5py, zarr: where Gluon users are; all
         tests of the Gluon drop-in and of arrays of frameworks; those of `core` that use these libraries most
ray      Python 3.11, Ray: the tests of the executors over actors of Ray, and Ray's own tests
lint     ruff, mypy --strict
docs     the documentation, warnings are errors
package  the wheel for each Python at hand, and the source distribution for the newest: each is installed into an empty
         environment, and runs the example of README.md
trainers Python 3.11, torch with Lightning, Fabric, Hugging Face Accelerate and transformers: only the tests with them
         (not part of a plain `nox`, since `modern` runs them)
dlio     Python 3.11, DLIO, torch and TensorFlow: runs the benchmark behind MLPerf Storage (not part of a plain `nox`)
wild     Python 3.11, torch and libraries that derive from its loader or make loaders: prints a table of whether their
         batches and losses are torch's under `python -m gluonloader.torch` (not part of a plain `nox`)
soak     the tests that are marked soak, at full length: hundreds of kills, gigabytes; and all tests of executors over
         each start method (not part of a plain `nox`)

`nox -s modern -- --cov` takes half as long again, and tells the coverage. The markers are explained in pyproject.toml.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import nox

# `.ci/run` runs these two rows side by side.
ROWS = [["package", "lint", "docs", "newest", "gluon"], ["ray", "modern"]]
nox.options.sessions = [*ROWS[0], *ROWS[1]]
nox.options.default_venv_backend = "virtualenv"

TEST = ["pytest>=9", "pytest-xdist", "pytest-rerunfailures", "pytest-cov", "hypothesis"]
# Many tests wait more than they work.
RUNNERS = ["-n", str((os.cpu_count() or 1) + 1), "--dist", "worksteal"]
VERSIONS = [f"3.{minor}" for minor in range(20, 9, -1)]
QUICK = "not slow and not spawn and not kill"
OTHERS_OF_CORE = ["-m", f"{QUICK} and not numpy_only", "--hypothesis-profile=quick"]
NEWEST = {"3.15": ["-m", "numpy_only"], "3.14": OTHERS_OF_CORE}
FREE = ["3.15t", "3.14t", "3.13t"]
TORCH = "torch==2.13.0"
MXNET = "mxnet==1.9.1"
TRAINERS = ["lightning", "accelerate", "transformers"]
TRAINERS_TESTS = "tests/pytorch/trainers"
# Tests that give arrays of other libraries to NumPy 1.23, or compare with MXNet; `newest` runs the others with it.
WITH_ARRAYS = ["tests/batchify", "tests/dataset", "tests/randomness", "tests/records", "tests/tables", "tests/vision"]
BLOCKS = "tests/test_docs.py::test_blocks_run_and_print_what_the_page_shows"


def pythons(*versions: str) -> Iterator[str]:
    """Yields the path of one CPython of each of these versions that runs here; those of pyenv included."""
    of_pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for version in versions:
        number, suffix = version.removesuffix("t"), version[len(version.removesuffix("t")) :]
        in_pyenv = of_pyenv.glob(f"{number}.*{suffix}/bin/python{version}")
        for path in (shutil.which(f"python{version}"), *sorted(map(str, in_pyenv))):
            if path and subprocess.run([path, "-c", ""], capture_output=True).returncode == 0:
                yield path
                break


def example(page: str) -> tuple[str, str]:
    """Returns the first Python block of a page, and the output that the page shows below it."""
    match = re.search(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", Path(page).read_text(), re.MULTILINE | re.DOTALL)
    assert match is not None, f"{page} has no example with its output"
    return match[1], match[2]


def install(session: nox.Session, *packages: str) -> None:
    """Installs packages into the environment; not compiled, since tests import only a small part of them."""
    session.install("--no-compile", *packages)


# pytest compiles all tests, which takes 11 s of processor time: once here, not in each process of a run.
COMPILE = ["-m", "pytest", "-q", "--collect-only", "-p", "no:xdist"]


def install_to_test(session: nox.Session, *packages: str) -> None:
    """Installs packages, what all tests need, and this library."""
    install(session, *packages, *TEST, "-e", ".")
    session.run_install("python", *COMPILE, env={"PYTHONDONTWRITEBYTECODE": ""}, silent=True)


def run_tests(session: nox.Session, *arguments: str) -> None:
    # Tests start many interpreters, which load modules faster from bytecode.
    session.env["PYTHONDONTWRITEBYTECODE"] = ""
    session.run("python", "-m", "pytest", *RUNNERS, *arguments, *session.posargs)


@nox.session
def core(session: nox.Session) -> None:
    """NumPy alone, quick."""
    install(session, "numpy", *TEST, "-e", ".")
    # Each pytest process imports all test modules: as many as there are cores.
    run_tests(session, "-n", str(os.cpu_count() or 1), "-m", QUICK, "--hypothesis-profile=quick")


@nox.session(python="3.11")
def gluon(session: nox.Session) -> None:
    """NumPy 1.23, MXNet with its toolkits and torch."""
    toolkits = ["gluonnlp==0.10.0", "gluoncv==0.10.5.post0"]
    files = ["pyarrow<20", "h5py<3.11", "zarr==2.18.2", "numcodecs==0.13.1"]  # the last ones that work beside NumPy 1
    install_to_test(session, "numpy<1.24", MXNET, *toolkits, TORCH, *files, "scikit-learn", "tqdm")
    if session.posargs:
        run_tests(session)
        return
    run_tests(session, "tests/gluon")
    # In processes of their own: Gluon's loader forks, and sometimes hangs if another framework has started threads.
    run_tests(session, "tests/frameworks", "tests/test_patch_numpy.py")
    run_tests(session, "-m", QUICK, "--hypothesis-profile=quick", *WITH_ARRAYS)


@nox.session(python="3.11")
def modern(session: nox.Session) -> None:
    """The newest NumPy, torch, JAX, MXNet, tables and streams."""
    data = ["pyarrow", "pandas", "polars", "datasets", "webdataset", "torchdata==0.11.0", "h5py", "zarr"]
    network = ["fsspec", "aiohttp", "requests", "obstore", "moto[server]"]
    images = ["simplejpeg", "opencv-python-headless", "pillow", "albumentations"]
    examples = ["scikit-learn", "tqdm", "rich", "matplotlib"]
    install(session, "--no-deps", MXNET)  # its metadata ask for an older NumPy
    install_to_test(session, "numpy>=2", TORCH, "jax", *data, *network, *images, *examples, *TRAINERS)
    if session.posargs:
        run_tests(session)
        return
    # In processes of their own: the loaders of Gluon and torch fork, and then they sometimes hang if another framework
    # has started threads.
    run_tests(session, "-m", "not numpy_only", "tests/pytorch", f"--ignore={TRAINERS_TESTS}")
    run_tests(session, "-m", QUICK, "tests/gluon")
    run_tests(session, "-m", "not numpy_only", "--ignore=tests/pytorch", "--ignore=tests/gluon")
    run_tests(session, "-m", "not slow", TRAINERS_TESTS)


@nox.session(python="3.11")
def trainers(session: nox.Session) -> None:
    """Lightning, Fabric, Accelerate and the Trainer of transformers."""
    install(session, "numpy>=2", TORCH, "torchdata", *TRAINERS, *TEST, "-e", ".")
    run_tests(session, TRAINERS_TESTS, f"{BLOCKS}[torch.md]")


@nox.session(python="3.11")
def wild(session: nox.Session) -> None:
    """Libraries that use torch's loader, unedited."""
    science = ["torch_geometric", "monai", "torchio", "lhotse", "skorch", "pytorch-metric-learning", "mmengine"]
    streams = ["litdata", "mosaicml-streaming", "webdataset"]
    install(session, "numpy>=2", TORCH, "torchdata==0.11.0", *science, *streams, *TRAINERS, "-e", ".")
    session.run("python", "-m", "pip", "uninstall", "-q", "-y", "torchvision")  # it is built for another torch
    session.env["PYTHONDONTWRITEBYTECODE"] = ""
    session.run("python", "tests/pytorch/wild", *session.posargs)


@nox.session(python="3.11")
def dlio(session: nox.Session) -> None:
    """The benchmark DLIO, with gluonloader and with its own loaders."""
    needed = ["mpich", "mpi4py", "hydra-core", "omegaconf", "pydftracer==1.0.2", "psutil", "h5py", "pandas", "Pillow"]
    install(session, "numpy>=2", TORCH, "tensorflow-cpu", *needed, "-e", ".")
    install(session, "--no-deps", "dlio_benchmark==2.0.0")  # it asks for a version of DALI for CUDA
    session.run("python", "-m", "benchmarks", "dlio", *session.posargs)


@nox.session(python="3.11")
def ray(session: nox.Session) -> None:
    """Workers that are actors of Ray."""
    install_to_test(session, "numpy>=2", "ray", "simplejpeg", "pillow", "scikit-learn", "tqdm")
    session.env.update(
        GLUONLOADER_RAY="1", RAY_USAGE_STATS_ENABLED="0", GLUONLOADER_INTERRUPTS="8", GLUONLOADER_KILLS="20"
    )
    tests = [
        "tests/executors",
        "tests/test_iterable.py",
        "tests/test_live.py",
        "tests/text",
        "tests/test_docs.py",
        "tests/test_examples.py",
    ]
    run_tests(session, "-n", "2", *([] if session.posargs else tests))  # more of them are slower, since each starts Ray


def run_tests_with(session: nox.Session, python: str, packages: list[str], *arguments: str) -> None:
    """Tests in an environment for an interpreter that nox might not find by itself."""
    environment = Path(session.create_tmp()) / Path(python).name
    session.run_install("virtualenv", "-q", "--clear", "-p", python, str(environment))
    inside = str(environment / "bin" / "python")
    session.run_install(inside, "-m", "pip", "install", "-q", "--no-compile", *packages, "-e", ".", external=True)
    session.env["PYTHONDONTWRITEBYTECODE"] = ""
    session.run_install(inside, *COMPILE, external=True, silent=True)
    session.run(inside, "-m", "pytest", *RUNNERS, *(session.posargs or arguments), external=True)


@nox.session
def newest(session: nox.Session) -> None:
    """Python 3.15, 3.14 and 3.10, NumPy alone."""
    install(session, "virtualenv")
    folder = Path(session.create_tmp()).resolve() / "pythons"
    found = {version: next(pythons(version), None) for version in NEWEST}
    if missing := [version for version, python in found.items() if python is None]:
        session.run_install(".ci/pythons", str(folder), *missing, external=True, silent=True)
    for version, tests in NEWEST.items():
        python = found[version] or str(folder / "usr" / "bin" / f"python{version}")
        run_tests_with(session, python, ["numpy", *TEST], *tests)
    if oldest := next(pythons("3.10"), None):
        run_tests_with(session, oldest, ["numpy==1.23.*", *TEST], *OTHERS_OF_CORE)
    else:
        session.warn("Python 3.10 is not installed, so it is not tested: run `pyenv install 3.10`")


@nox.session
def free(session: nox.Session) -> None:
    """A free-threaded Python, with NumPy and Pillow."""
    python = next(pythons(*FREE), None)
    if python is None:
        session.skip(".ci/free-threaded FOLDER builds a free-threaded Python: run it, and add FOLDER/bin to PATH")
    packages = ["numpy", "pillow", *TEST]
    if python.endswith("3.13t"):  # the last ones that have wheels for it
        packages = [
            "numpy==2.4.6",
            "pillow==12.2",
            *(name for name in TEST if name != "hypothesis"),
            "hypothesis==6.135",
        ]
    install(session, "virtualenv")
    run_tests_with(session, python, packages)


@nox.session
def lint(session: nox.Session) -> None:
    """Style and types."""
    install(session, "ruff", "mypy", "numpy>=2")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation as HTML, in docs/_build/html."""
    install(session, "-e", ".[docs]")
    session.run("sphinx-build", "-W", "--keep-going", "-q", "-b", "html", "docs", "docs/_build/html")


@nox.session
def package(session: nox.Session) -> None:
    """Builds the wheel and the source distribution, installs them into empty environments, and runs an example."""
    install(session, "build", "twine", "virtualenv")
    folder = Path(session.create_tmp())
    shutil.rmtree(folder)  # what an earlier run has left
    session.run("python", "-m", "build", "--outdir", str(folder), silent=True)
    files = sorted(map(str, folder.iterdir()))
    session.run("twine", "check", "--strict", *files)
    program = folder / "example.py"
    code, shown = example("README.md")
    program.write_text(code)
    environment = folder / "environment"
    inside = str(environment / "bin" / "python")
    for number, python in enumerate(pythons(*VERSIONS)):
        session.run("virtualenv", "-q", "--clear", "-p", python, str(environment))
        for file in files:
            if number > 0 and not file.endswith(".whl"):
                continue  # the wheel was built from the source distribution, so one Python is enough for that
            session.run(inside, "-m", "pip", "install", "-q", "--no-compile", file, external=True)
            # -I: Python does not look for modules in the working directory, which contains the package, too.
            printed = session.run(inside, "-I", "-W", "error", str(program), external=True, silent=True)
            if printed != shown:
                session.error(f"with {python} and {file}, the example of README.md printed:\n{printed}")
            session.run(inside, "-m", "pip", "uninstall", "-q", "-y", "gluonloader", external=True)


@nox.session(python="3.11")
def soak(session: nox.Session) -> None:
    """The fault and memory tests at full length."""
    install(
        session,
        "numpy<1.24",
        MXNET,
        TORCH,
        "pyarrow<20",
        "opencv-python-headless<4.12",
        "pillow",
        "simplejpeg",
        *TEST,
        "-e",
        ".",
    )
    session.env.update(GLUONLOADER_WAYS="all", GLUONLOADER_KILLS="300", GLUONLOADER_BIG="1")
    session.env.update(GLUONLOADER_DAMAGES="1000", GLUONLOADER_RECORDS="100000")
    session.env.update(GLUONLOADER_BATCHES="10000", GLUONLOADER_DELETES="300", GLUONLOADER_LOADERS="100")
    session.env.update(GLUONLOADER_INTERRUPTS="1000", GLUONLOADER_CLOSES="300", GLUONLOADER_BAD_SAMPLES="100000")
    session.env.update(GLUONLOADER_RANKS="1000", GLUONLOADER_RESUMES="2000", GLUONLOADER_STATES="20000")
    session.env.update(GLUONLOADER_LIMITS="500", GLUONLOADER_EXITS="300", GLUONLOADER_IMAGES="50000")
    session.run("python", "-m", "pytest", "-m", "soak", *session.posargs)
