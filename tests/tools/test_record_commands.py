"""`python -m gluonloader records make | list | check`."""

import json
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from conftest import load, load_mxnet
from damaged_images import warned
from terminals import shown_on_a_terminal

import gluonloader
from gluonloader.__main__ import main
from gluonloader.records import IndexedRecordIO, RecordFileDataset, pack, unpack, unpack_img
from gluonloader.vision import ImageRecordDataset

CV2, PILLOW, MXNET = load("cv2"), load("PIL.Image"), load_mxnet()
IM2REC = Path(MXNET.__file__).parent / "tools" / "im2rec.py" if MXNET else Path()
needs_cv2 = pytest.mark.skipif(CV2 is None, reason="needs OpenCV")
needs_decoder = pytest.mark.skipif(CV2 is None and PILLOW is None, reason="needs OpenCV or Pillow")


def picture(seed, height=40, width=60):
    """An image that is smooth, so that it survives JPEG."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:height, :width] / 60
    return np.stack([255 * rng.random() * (rows + columns) / 2 for _ in range(3)], 2).astype(np.uint8)


def encoded(array, suffix=".jpg"):
    return CV2.imencode(suffix, array)[1].tobytes()


@pytest.fixture
def folder(tmp_path):
    """Three classes of files, which are images by their names only, and other files."""
    for name in ("b/2.jpg", "b/10.JPG", "a/x.png", "a/notes.txt", "c/deep/y.jpeg"):
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    (tmp_path / "images" / "empty").mkdir()
    return tmp_path / "images"


def records(*arguments, workers=0):
    more = ["--num-workers", str(workers)] if arguments[0] in ("make", "check") else []
    return main(["records", *map(str, arguments), *more])


def content(path):
    """The key, the label, the id and the data of each record."""
    dataset = RecordFileDataset(path)
    parts = list(map(unpack, dataset))
    return [(key, np.asarray(h.label).tolist(), h.id, data) for key, (h, data) in zip(dataset.keys, parts)]


@pytest.mark.parametrize("workers", [0, 2])
def test_make_from_a_folder(folder, tmp_path, capsys, workers):
    assert records("make", tmp_path / "o.rec", folder, workers=workers) == 0
    names = ["a/x.png", "b/10.JPG", "b/2.jpg", "c/deep/y.jpeg"]
    assert content(tmp_path / "o.rec") == [
        (key, label, key, name.encode()) for key, (label, name) in enumerate(zip([0, 1, 1, 2], names))
    ]
    out, err = capsys.readouterr()
    labels = ["label 0: a (images: 1)", "label 1: b (images: 2)", "label 2: c/deep (images: 1)"]
    assert out.splitlines() == [*labels, f"{tmp_path}/o.rec: 4 of 4 images"]
    assert err == ""
    assert sorted(os.listdir(tmp_path)) == ["images", "o.idx", "o.rec"]


def test_make_prints_json(folder, tmp_path, capsys):
    (folder / "b" / "2.jpg").write_bytes(b"")
    assert records("make", tmp_path / "o.rec", folder, "--json") == 1
    out, err = capsys.readouterr()
    assert json.loads(out) == {
        "file": f"{tmp_path}/o.rec",
        "images": 4,
        "packed": 3,
        "labels": {"a": 1, "b": 2, "c/deep": 1},
        "skipped": [f"{folder}/b/2.jpg: the file is empty"],
    }
    assert err == ""


@pytest.mark.spawn
@pytest.mark.skipif(not (CV2 and MXNET and IM2REC.exists()), reason="needs MXNet with its tools, and OpenCV")
@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) >= "1.24.0", reason="MXNet itself needs NumPy older than 1.24")
def test_make_writes_what_im2rec_writes(folder, tmp_path):
    command = [sys.executable, "-W", "ignore", IM2REC, tmp_path / "theirs", folder]
    for options in (["--list", "--recursive", "--no-shuffle"], ["--pass-through", "--pack-label"]):
        subprocess.run([*command, *options], check=True, capture_output=True, timeout=120)
        (tmp_path / "theirs.lst").write_text((tmp_path / "theirs.lst").read_text().replace("2.0", "2.5\t7"))
    assert records("make", tmp_path / "ours.rec", tmp_path / "theirs.lst", "--root", folder) == 0
    for ending in ("rec", "idx"):
        assert (tmp_path / f"ours.{ending}").read_bytes() == (tmp_path / f"theirs.{ending}").read_bytes()


def test_make_from_a_flat_folder_and_through_links(folder, tmp_path):
    (folder / "b" / "back").symlink_to(folder)
    assert records("make", tmp_path / "o.rec", folder / "b") == 0
    assert [label for _, label, _, _ in content(tmp_path / "o.rec")] == [0, 0, 1, 2]
    (folder / "b" / "back").unlink()
    assert records("make", tmp_path / "o.rec", folder / "b") == 0
    assert [label for _, label, _, _ in content(tmp_path / "o.rec")] == [0, 0]


def test_a_link_to_another_folder_is_a_class_of_its_own(folder, tmp_path, capsys):
    (folder / "d").symlink_to("b")
    assert records("make", tmp_path / "o.rec", folder) == 0
    assert [label for _, label, _, _ in content(tmp_path / "o.rec")] == [0, 1, 1, 2, 3, 3]
    assert "label 3: d (images: 2)" in capsys.readouterr().out


def test_a_folder_that_cannot_be_read_stops_make(folder, tmp_path, monkeypatch, capsys):
    """If it were skipped, the classes after it would get wrong labels."""
    scandir = os.scandir

    def refusing(path):
        if os.path.basename(path) == "b":
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    assert records("make", tmp_path / "o.rec", folder) == 2
    assert f"Permission denied: '{folder}/b'" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["images"]


def test_make_from_a_list(folder, tmp_path):
    (folder / "l.lst").write_text("7\t1.5\tb/2.jpg\n\n3\t1\t2\t-4\ta/x.png \n\t\n")  # two lines are blank
    assert records("make", tmp_path / "o.rec", folder / "l.lst") == 0
    wanted = [(7, 1.5, 7, b"b/2.jpg"), (3, [1, 2, -4], 3, b"a/x.png")]
    assert content(tmp_path / "o.rec") == wanted
    (folder / "l.lst").rename(tmp_path / "l.lst")
    assert records("make", tmp_path / "p.rec", tmp_path / "l.lst", "--root", folder) == 0
    assert content(tmp_path / "p.rec") == wanted


@pytest.mark.parametrize("line", ["1", "1\tx.jpg", "a\t1\tx.jpg", "1\tone\tx.jpg"])
def test_a_wrong_line_of_a_list_is_named(line, tmp_path, capsys):
    (tmp_path / "l.lst").write_text(f"0\t1\tx.jpg\n{line}\n")
    assert records("make", tmp_path / "o.rec", tmp_path / "l.lst") == 2
    assert "l.lst, line 2: must be INDEX<tab>LABEL<tab>PATH" in capsys.readouterr().err


def test_shuffle_changes_only_the_order_and_repeats_with_the_seed(tmp_path):
    for number in range(30):
        (tmp_path / f"{number:02}.jpg").write_bytes(b"%d" % number)
    orders = []
    for seed in (0, 0, 1):
        assert records("make", tmp_path / "o.rec", tmp_path, "--shuffle", "--seed", seed, workers=2) == 0
        found = content(tmp_path / "o.rec")
        assert all(key == number == int(data) for key, _, number, data in found)
        orders.append([key for key, *_ in found])
    assert sorted(orders[0]) == list(range(30))
    assert orders[0] == orders[1] != orders[2]
    assert orders[0] != sorted(orders[0])


@pytest.fixture
def odd(folder):
    """Adds names of images that are no files to read, and returns these names and their errors."""
    os.mkfifo(folder / "b" / "fifo.jpg")
    (folder / "b" / "loop.jpg").symlink_to("loop.jpg")
    (folder / "b" / "loop").symlink_to("loop")  # neither an image nor a folder
    (folder / "a" / "zero.png").symlink_to("/dev/zero")
    (folder / "c" / "deep" / "gone.jpg").symlink_to("nowhere")
    with open(folder / "c" / "deep" / "huge.jpg", "wb") as file:
        file.truncate(40 * 2**30)  # the file is sparse
    return {
        "a/zero.png": "this is a character device; only regular files can be read",
        "b/fifo.jpg": "this is a FIFO; only regular files can be read",
        "b/loop.jpg": "Too many levels of symbolic links",
        "c/deep/gone.jpg": "[Errno 2] No such file",
        "c/deep/huge.jpg": "the file has 42,949,672,960 bytes, more than 536,870,911",
    }


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("listed", [False, True])
def test_only_regular_files_are_read_and_all_others_are_named(folder, odd, tmp_path, capsys, listed, workers):
    names = ["a/x.png", "a/zero.png", "b/10.JPG", "b/2.jpg", "b/fifo.jpg", "b/loop.jpg"]
    names += ["c/deep/gone.jpg", "c/deep/huge.jpg", "c/deep/y.jpeg"]
    lines = [f"{key}\t0\t{name}\n" for key, name in enumerate(names)]
    (tmp_path / "l.lst").write_text("".join(lines))
    source = [tmp_path / "l.lst", "--root", folder] if listed else [folder]
    assert records("make", tmp_path / "o.rec", *source, "--json", workers=workers) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["images"], found["packed"]) == (9, 4)
    assert [data for *_, data in content(tmp_path / "o.rec")] == [b"a/x.png", b"b/10.JPG", b"b/2.jpg", b"c/deep/y.jpeg"]
    assert len(found["skipped"]) == len(odd)
    for text, (name, error) in zip(found["skipped"], odd.items(), strict=True):
        assert text.startswith(f"{folder}/{name}: ")
        assert error in text


def test_make_ends_at_the_first_error_if_it_has_to(folder, odd, tmp_path, capsys):
    assert records("make", tmp_path / "o.rec", folder, "--on-error", "raise") == 2
    err = capsys.readouterr().err
    assert f"{folder}/a/zero.png: [Errno 22] this is a character device" in err
    assert "no file was written: remove the image, or pass --on-error skip" in err
    assert os.listdir(tmp_path) == ["images"]


@pytest.fixture
def deep(tmp_path):
    yield tmp_path / "deep"
    subprocess.run(["rm", "-rf", tmp_path / "deep"], check=True)  # shutil.rmtree is recursive, too


@pytest.mark.slow
def test_folders_may_be_nested_deeply(deep, tmp_path):
    """1,100 folders are more than Python's limit of recursion; each has an image, so each has a label."""
    deep.mkdir()
    here = os.open(deep, os.O_RDONLY)
    try:
        for depth in range(1100):
            with open("x.jpg", "wb", opener=lambda path, flags: os.open(path, flags, dir_fd=here)) as file:  # noqa: B023
                file.write(b"%d" % depth)
            os.mkdir("d", dir_fd=here)
            here, above = os.open("d", os.O_RDONLY, dir_fd=here), here
            os.close(above)
    finally:
        os.close(here)
    assert records("make", tmp_path / "o.rec", deep) == 0
    expected = [(depth, b"%d" % depth) for depth in range(1100)]
    assert [(label, data) for _, label, _, data in content(tmp_path / "o.rec")] == expected


def test_a_file_that_does_not_fit_into_memory_is_named(folder, tmp_path, capsys, monkeypatch):
    def read(path, most=None):
        if path.endswith("2.jpg"):
            raise MemoryError
        return b"image"

    monkeypatch.setattr("gluonloader.tools.make.read_file", read)
    assert records("make", tmp_path / "o.rec", folder) == 1
    assert f"skipped: {folder}/b/2.jpg: there is not enough memory to read this file" in capsys.readouterr().err


@needs_cv2
def test_resize_shrinks_the_shorter_side_and_leaves_small_files_unchanged(tmp_path):
    images = {
        "a.jpg": picture(0),
        "b.png": picture(1, 90, 30),
        "c.jpg": picture(2, 20, 20),
        "d.jpg": picture(3)[..., 0],
    }
    for name, array in images.items():
        (tmp_path / name).write_bytes(encoded(array, name[1:]))
    (tmp_path / "e.jpg").write_bytes(b"no image")
    assert records("make", tmp_path / "o.rec", tmp_path, "--resize", 20, "--quality", 90, workers=2) == 1
    dataset = RecordFileDataset(tmp_path / "o.rec")
    arrays = [unpack_img(record)[1] for record in dataset]
    assert [array.shape for array in arrays] == [(20, 30, 3), (60, 20, 3), (20, 20, 3), (20, 30)]
    assert unpack(dataset[2])[1] == (tmp_path / "c.jpg").read_bytes()
    assert all(unpack(record)[1][:2] == b"\xff\xd8" for record in dataset)
    wanted = CV2.resize(images["a.jpg"], (30, 20), interpolation=CV2.INTER_AREA)
    assert np.abs(arrays[0].astype(int) - wanted).max() < 12


@needs_cv2
@pytest.mark.parametrize("workers", [0, 2])
def test_resize_skips_an_image_that_has_more_pixels_than_opencv_decodes(tmp_path, capsys, workers):
    large = bytearray(encoded(picture(0), ".png"))
    large[16:24] = struct.pack(">II", 40_000, 40_000)
    large[29:33] = struct.pack(">I", zlib.crc32(large[12:29]))
    (tmp_path / "a.png").write_bytes(large)
    (tmp_path / "b.png").write_bytes(encoded(picture(0), ".png"))
    assert records("make", tmp_path / "o.rec", tmp_path, "--resize", 20, workers=workers) == 1
    assert f"skipped: {tmp_path}/a.png: OpenCV cannot decode this image: pixels <= " in capsys.readouterr().err
    assert len(RecordFileDataset(tmp_path / "o.rec")) == 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["make", "o.rec", "nowhere"], "nowhere: there is no such folder or .lst file"),
        (["make", "o.rec", "."], "it contains no image files"),
        (["make", "o.rec", "images", "--quality", "0"], "--quality 0: must be from 1 to 100"),
        (["make", "o.rec", "images", "--root", "images"], "--root images: is for the paths of a list"),
        (["make", "o.rec", "l.lst", "--root", "nowhere"], "--root nowhere: there is no such folder"),
        (["make", "nowhere/o.rec", "images"], "nowhere/o.rec: its folder does not exist"),
        (
            ["make", "l.lst", "images"],
            "l.lst: a list is what is read; pass the path of the .rec file to write before it",
        ),
        (["make", "images", "images"], "images: it is a folder; pass the path of the .rec file"),
        (["list", "nowhere.rec"], "No such file"),
        (["check", "nowhere.rec"], "No such file"),
    ],
)
def test_what_cannot_run_says_why(arguments, text, folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path if arguments[2:3] != ["."] else folder / "empty")
    (tmp_path / "l.lst").write_text("0\t1\tb/2.jpg\n")
    assert records(*arguments) == 2
    assert text in capsys.readouterr().err
    assert not list(tmp_path.glob("*.rec*"))
    assert (tmp_path / "l.lst").read_text() == "0\t1\tb/2.jpg\n"


@pytest.mark.parametrize("name", ["o.rec", "o.idx"])
def test_make_does_not_replace_a_pipe_or_a_device(name, folder, tmp_path, capsys):
    """As /dev/null, which every program of the machine needs."""
    os.mkfifo(tmp_path / name)
    assert records("make", tmp_path / "o.rec", folder) == 2
    assert f"{tmp_path / name}: it is a folder, a pipe or a device; pass" in capsys.readouterr().err
    assert (tmp_path / name).is_fifo()
    assert sorted(os.listdir(tmp_path)) == sorted({"images", name})


def test_make_leaves_the_old_file_if_it_fails(folder, tmp_path, monkeypatch, capsys):
    assert records("make", tmp_path / "o.rec", folder) == 0
    before = content(tmp_path / "o.rec")
    monkeypatch.setattr(os, "pwrite", lambda *arguments: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    assert records("make", tmp_path / "o.rec", folder) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert content(tmp_path / "o.rec") == before
    assert sorted(os.listdir(tmp_path)) == ["images", "o.idx", "o.rec"]


@needs_cv2
@pytest.mark.skipif(PILLOW is None, reason="needs Pillow to write EXIF data")
def test_resize_does_not_turn_images(tmp_path):
    """Images that are packed unchanged are not turned either: all keep their EXIF orientation."""
    exif = PILLOW.Exif()
    exif[0x0112] = 6
    for name, shape in (("a.jpg", (40, 60)), ("b.png", (40, 60)), ("c.jpg", (10, 15))):
        PILLOW.fromarray(picture(0, *shape)).save(tmp_path / name, exif=exif)
    PILLOW.fromarray(picture(0)).save(tmp_path / "d.jpg")
    assert records("make", tmp_path / "o.rec", tmp_path, "--resize", 20) == 0
    for orient, shapes in (
        (False, [(20, 30), (20, 30), (10, 15), (20, 30)]),
        (True, [(30, 20), (30, 20), (15, 10), (20, 30)]),
    ):
        images = ImageRecordDataset(tmp_path / "o.rec", orient=orient)
        assert [image.shape[:2] for image, _ in images] == shapes


# -- list --------------------------------------------------------------------------------------------------------------


def test_list(tmp_path, capsys):
    with IndexedRecordIO(tmp_path / "o.rec", "w") as file:
        file.write_idx(5, pack((0, 2, 9, 0), b"abc"))
        file.write_idx(1, pack((0, [1, 0.5], 9, 0), b""))
        file.write_idx(2, b"text")
    lines = ["number\tkey\tbytes\tlabels\n", "0\t5\t27\t2\n", "1\t1\t32\t1 0.5\n", "2\t2\t4\t-\n"]
    assert records("list", tmp_path / "o.rec") == 0
    assert capsys.readouterr().out == "".join(lines)
    assert records("list", tmp_path / "o.rec", "--first", 2) == 0
    assert capsys.readouterr().out == "".join(lines[:3])
    assert records("list", tmp_path / "o.rec", "--json") == 0
    assert list(map(json.loads, capsys.readouterr().out.splitlines())) == [
        {"number": 0, "key": "5", "bytes": 27, "labels": [2.0]},
        {"number": 1, "key": "1", "bytes": 32, "labels": [1.0, 0.5]},
        {"number": 2, "key": "2", "bytes": 4, "labels": None},
    ]
    (tmp_path / "o.idx").write_text("1\t4000\n")
    assert records("list", tmp_path / "o.rec") == 2
    assert "byte 4000: a frame should start here, but only 0 bytes are left" in capsys.readouterr().err
    (tmp_path / "o.idx").unlink()
    assert records("list", tmp_path / "o.rec", "--first", 1) == 0
    assert capsys.readouterr().out == "number\tkey\tbytes\tlabels\n0\t-\t27\t2\n"


# -- check -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def pictures(tmp_path):
    """Six images; the records start at the offsets in the second value."""
    path = tmp_path / "o.rec"
    with IndexedRecordIO(path, "w") as file:
        for number in range(6):
            file.write_idx(
                10 + number, pack((0, 1, number, 0), encoded(picture(number), ".png" if number == 2 else ".jpg"))
            )
    return path, [int(line.split()[1]) for line in (tmp_path / "o.idx").read_text().splitlines()]


def overwrite(path, at, data):
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(data)


@needs_cv2
@pytest.mark.parametrize("workers", [0, 2])
def test_check_names_each_damaged_record(pictures, capsys, workers):
    path, starts = pictures
    assert records("check", path, workers=workers) == 0
    assert capsys.readouterr().out == f"{path}: 6 records with intact frames; errors: 0\n"
    overwrite(path, starts[0] + 8 + 24, b"no jpeg")
    overwrite(path, starts[3] + 2, b"\0")
    overwrite(path, starts[5] + 8, b"\xff")  # the header of the record counts labels that are not there
    assert records("check", path, workers=workers) == 1
    *lines, last = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[0] for line in lines] == [
        f"{path}, byte {starts[number]} (key {10 + number})" for number in (0, 3, 5)
    ]
    assert "a frame should start here with" in lines[1]
    assert last == f"{path}: 5 records with intact frames; errors: 3"
    assert records("check", path, "--json", workers=workers) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["file"], found["records"]) == (str(path), 5)
    assert [(error["byte"], error["key"]) for error in found["errors"]] == [
        (starts[number], str(10 + number)) for number in (0, 3, 5)
    ]
    assert all(error["reason"] in line for error, line in zip(found["errors"], lines))
    assert records("check", path, "--no-decode") == 1
    assert capsys.readouterr().out.endswith(": 5 records with intact frames; errors: 1\n")


@needs_decoder
@needs_cv2
@pytest.mark.skipif(PILLOW is None, reason="OpenCV also decodes truncated images")
def test_check_finds_an_image_that_was_cut_off(tmp_path, capsys):
    with IndexedRecordIO(tmp_path / "o.rec", "w") as file:
        for key, suffix in enumerate((".jpg", ".png")):
            data = encoded(picture(0), suffix)
            file.write_idx(key, pack((0, 1, 0, 0), data[: len(data) // 2]))
    assert records("check", tmp_path / "o.rec") == 1
    assert "0 records with" not in capsys.readouterr().out
    assert records("check", tmp_path / "o.rec", "--no-decode") == 0


def test_check_compares_the_index_with_the_file(tmp_path, capsys):
    with IndexedRecordIO(tmp_path / "o.rec", "w") as file:
        for key in range(4):
            file.write_idx(key, b"abcd")
    (tmp_path / "o.idx").write_text("0\t0\n1\t12\n2\t28\n")
    assert records("check", tmp_path / "o.rec", "--no-decode") == 1
    path, index = tmp_path / "o.rec", tmp_path / "o.idx"
    assert capsys.readouterr().out.splitlines() == [
        f"{path}, byte 24: {index} does not list this record",
        f"{path}, byte 28 (key 2): key 2 of {index} points here, but no record with intact frames starts here",
        f"{path}, byte 36: {index} does not list this record",
        f"{path}: 4 records with intact frames; errors: 3",
    ]
    index.write_text("0\t0\nbroken\n")
    assert records("check", path, "--no-decode") == 1
    assert f"{index}, byte 4: line 2 is b'broken\\n'" in capsys.readouterr().out


def test_check_names_lines_with_the_same_offset(tmp_path, capsys):
    with IndexedRecordIO(tmp_path / "o.rec", "w") as file:
        for key in range(2):
            file.write_idx(key, b"abcd")
    (tmp_path / "o.idx").write_text("0\t0\n1\t12\n2\t12\n")
    assert records("check", tmp_path / "o.rec", "--no-decode") == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{tmp_path}/o.rec, byte 12 (key 1): the keys 1 and 2 of {tmp_path}/o.idx both point here",
        f"{tmp_path}/o.rec: 2 records with intact frames; errors: 1",
    ]


needs_warnings = pytest.mark.skipif(load("simplejpeg") is None, reason="only simplejpeg reports warnings")


def checked(tmp_path, capsys, images):
    """The errors of `check` about the images, by their numbers; None if an image has none."""
    with IndexedRecordIO(tmp_path / "o.rec", "w") as file:
        for key, data in enumerate(images):
            file.write_idx(key, pack((0, 1, key, 0), data))
    status = records("check", tmp_path / "o.rec", "--json")
    errors = {error["key"]: error["reason"] for error in json.loads(capsys.readouterr().out)["errors"]}
    assert status == (1 if errors else 0)
    return [errors.get(str(key)) for key in range(len(images))]


@needs_warnings
@pytest.mark.skipif(PILLOW is None, reason="needs Pillow to write the files")
def test_check_accepts_warnings_if_the_pixels_are_complete(tmp_path, capsys):
    """It called a JPEG damaged for bytes in front of its header, or for an unusual header, and decode accepted it."""
    files = warned()
    errors = checked(tmp_path, capsys, [data for data, _ in files.values()])
    for (warning, (_, complete)), error in zip(files.items(), errors, strict=True):
        expected = None if complete else f"the JPEG file is damaged: {warning}"
        if warning == "Premature end of JPEG file":
            expected = "the image file is truncated"
        assert (error is None) if complete else error.startswith(expected)


@needs_cv2
@needs_warnings
@pytest.mark.skipif(PILLOW is None, reason="needs Pillow to write the files")
def test_a_harmless_warning_does_not_hide_damage(tmp_path, capsys):
    """libjpeg reports only the first warning."""
    unusual = [data for data, complete in warned().values() if complete]
    for error in checked(tmp_path, capsys, [data[:-40] + b"\xff\xd9" for data in unusual]):
        assert error.startswith("the JPEG file is damaged: Corrupt JPEG data: premature end of data segment")


@needs_cv2
def test_check_finds_what_decode_refuses(tmp_path, capsys):
    data = encoded(picture(0))
    scan = data.index(b"\xff\xda")
    size = data.index(b"\xff\xc0")
    bomb = data[: size + 5] + b"\xff\xff\xff\xff" + data[size + 9 :]
    wrong = bytearray(encoded(picture(0), ".png"))
    wrong[-20] ^= 1
    fatal = data[:scan] + b"\xff\2\0\2" + data[scan:]
    errors = checked(tmp_path, capsys, [data, bomb, bytes(wrong), fatal, b"no image"])
    assert errors[0] is None
    assert "more than max_pixels=89,478,485" in errors[1]
    assert "has a wrong checksum" in errors[2]
    assert "the JPEG file is damaged" in errors[3]
    assert "not an image: the data are 8 bytes that start with b'no image'" in errors[4]


@needs_cv2
@needs_warnings
def test_check_finds_pixels_that_other_decoders_read_wrongly(tmp_path, capsys):
    data = encoded(picture(0))
    (error,) = checked(tmp_path, capsys, [data[:-2] + b"U" * 300 + data[-2:]])
    assert "extraneous bytes before marker 0xd9" in error


def test_check_continues_after_damage(tmp_path, capsys):
    """A frame that is too long, and a file that is truncated."""
    with IndexedRecordIO(tmp_path / "o.rec", "w") as file:
        for key in range(5):
            file.write_idx(key, b"abcd")
    overwrite(tmp_path / "o.rec", 16, b"\x10")
    os.truncate(tmp_path / "o.rec", 58)
    assert records("check", tmp_path / "o.rec", "--no-decode") == 1
    *lines, last = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0].rpartition(" byte ")[2] for line in lines] == ["12 (key 1)", "48 (key 4)"]
    assert "at byte 24 a frame starts in it" in lines[0]
    assert last.endswith(": 3 records with intact frames; errors: 2")


def test_check_names_the_record_whose_second_part_is_damaged(tmp_path, capsys):
    with IndexedRecordIO(tmp_path / "o.rec", "w") as file:
        file.write_idx(7, b"abcd" + bytes.fromhex("0a23d7ce") + b"efgh")
        file.write_idx(8, b"abcd")
    overwrite(tmp_path / "o.rec", 12, b"\0")
    assert records("check", tmp_path / "o.rec", "--no-decode") == 1
    line, last = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{tmp_path}/o.rec, byte 12 (key 7): a frame should start here with 0a23d7ce")
    assert last.endswith(": 1 records with intact frames; errors: 1")


# -- the command line --------------------------------------------------------------------------------------------------


def program(*arguments, **options):
    command = [sys.executable, "-W", "error", "-m", "gluonloader", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(Path(gluonloader.__file__).parent.parent), "COLUMNS": "100"}
    return subprocess.run(command, text=True, timeout=120, env=environment, **options)


def unread(*arguments):
    """Runs a command whose output nobody reads."""
    read, write = os.pipe()
    os.close(read)
    try:
        return program("records", *arguments, stdout=write, stderr=subprocess.PIPE)
    finally:
        os.close(write)


@pytest.mark.spawn
def test_list_ends_quietly_if_nobody_reads_it(tmp_path):
    with IndexedRecordIO(tmp_path / "o.rec", "w") as file:
        for key in range(10_000):
            file.write_idx(key, b"")
    done = unread("list", tmp_path / "o.rec")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.spawn
def test_the_exit_status_does_not_depend_on_a_reader(folder, tmp_path):
    done = unread("make", tmp_path / "o.rec", folder, "--num-workers", "0")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(RecordFileDataset(tmp_path / "o.rec")) == 4
    overwrite(tmp_path / "o.rec", 2, b"\0")
    done = unread("check", tmp_path / "o.rec", "--no-decode")
    assert (done.returncode, done.stderr) == (1, "")
    command = f"{sys.executable} -m gluonloader records make {tmp_path}/p.rec {folder} --num-workers 0 >&-"
    environment = {**os.environ, "PYTHONPATH": str(Path(gluonloader.__file__).parent.parent)}
    assert subprocess.run(command, shell=True, timeout=120, env=environment).returncode == 0
    assert len(RecordFileDataset(tmp_path / "p.rec")) == 4
    (folder / "b" / "2.jpg").write_bytes(b"")
    assert unread("make", tmp_path / "o.rec", folder, "--num-workers", "0").returncode == 1


@pytest.mark.spawn
def test_the_name_of_a_class_may_be_no_text(tmp_path):
    name = os.fsencode(tmp_path / "images") + b"/\xffclass"
    os.makedirs(name)
    with open(name + b"/1.jpg", "wb") as file:
        file.write(b"data")
    done = program(
        "records", "make", tmp_path / "o.rec", tmp_path / "images", "--num-workers", "0", capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "label 0: \\udcffclass (images: 1)" in done.stdout
    assert content(tmp_path / "o.rec")[0][3] == b"data"


def test_progress_is_shown_on_a_terminal(folder, tmp_path):
    assert "4 of 4 images" in shown_on_a_terminal(lambda: records("make", tmp_path / "o.rec", folder))
    assert len(RecordFileDataset(tmp_path / "o.rec")) == 4
