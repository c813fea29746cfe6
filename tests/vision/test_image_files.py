"""Datasets of image files: order, labels, lists, and errors that name the file."""

import os
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import FORK, SERIAL, THREAD, load, load_mxnet
from pictures import encode, limited_memory, orientation, picture, pillow, write_folder

from gluonloader import DataLoader, SimpleDataset
from gluonloader.vision import ImageDataset, ImageError, ImageFolderDataset, ImageListDataset, decode

pytestmark = pytest.mark.skipif(pillow is None, reason="needs Pillow to write the files")


def same_samples(dataset, expected):
    assert len(dataset) == len(expected)
    for (image, label), (right, right_label) in zip(dataset, expected, strict=True):
        assert np.array_equal(image, right)
        assert label == right_label
        assert type(label) is type(right_label)


# -- folders -----------------------------------------------------------------------------------------------------------


def test_a_folder_is_read_in_the_order_of_the_sorted_names(tmp_path):
    write_folder(tmp_path, ["b", "a", "B", "a1", "ä"], 2)
    dataset = ImageFolderDataset(tmp_path)
    assert dataset.classes == dataset.synsets == ["B", "a", "a1", "b", "ä"]
    names = [os.path.relpath(path, tmp_path) for path, _ in dataset.items]
    assert names == [f"{name}/{i}.jpg" for name in dataset.classes for i in range(2)]
    assert [label for _, label in dataset.items] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert dataset.items[2:4] == [dataset.items[2], dataset.items[3]]
    assert dataset.items[-1] == (str(tmp_path / "ä" / "1.jpg"), 4)
    assert repr(dataset.items).endswith("/B/0.jpg', 0), ... 10 in all]")
    same_samples(dataset, [(decode(Path(path).read_bytes()), label) for path, label in dataset.items])


def test_numbers_in_names_are_sorted_as_text(tmp_path):
    (tmp_path / "x").mkdir()
    for name in ("10.jpg", "9.JPG", "2.Png", "1.jpeg"):
        (tmp_path / "x" / name).write_bytes(encode(picture()))
    dataset = ImageFolderDataset(str(tmp_path))
    assert [os.path.basename(path) for path, _ in dataset.items] == ["1.jpeg", "10.jpg", "2.Png", "9.JPG"]


def test_flag_0_returns_gray_images(tmp_path):
    write_folder(tmp_path)
    dataset = ImageFolderDataset(tmp_path, 0)
    assert dataset[0][0].shape == (60, 80, 1)
    data = Path(dataset.items[0][0]).read_bytes()
    assert np.array_equal(dataset[0][0], decode(data, color="gray"))
    with pytest.raises(ValueError, match=r"^flag=2: must be 1 for RGB or 0 for gray"):
        ImageFolderDataset(tmp_path, 2)


def test_the_transform_makes_the_sample(tmp_path):
    write_folder(tmp_path)
    dataset = ImageFolderDataset(tmp_path, transform=lambda image, label: (image.shape, label + 10))
    assert dataset[5] == ((64, 74, 3), 11)


def test_the_options_are_those_of_decode(tmp_path):
    write_folder(tmp_path, exif=orientation(6))
    assert ImageFolderDataset(tmp_path, min_size=30)[0][0].shape == (30, 40, 3)
    assert ImageFolderDataset(tmp_path, orient=True)[0][0].shape == (80, 60, 3)
    with pytest.raises(ImageError, match=r"bus/0.jpg: the image has 80 x 60 = 4,800 pixels"):
        ImageFolderDataset(tmp_path, max_pixels=4799)[0]
    for name, value in (("min_size", 0), ("min_size", "x"), ("max_pixels", "x"), ("orient", "no")):
        with pytest.raises(ValueError, match=rf"^{name}={value!r}: must be"):
            ImageFolderDataset(tmp_path, **{name: value})
    with pytest.raises(TypeError, match="quality"):
        ImageFolderDataset(tmp_path, quality=3)


def test_other_files_are_ignored_with_one_warning(tmp_path):
    write_folder(tmp_path)
    (tmp_path / "readme.txt").write_text("x")
    (tmp_path / "car" / "notes.txt").write_text("x")
    (tmp_path / "car" / "deeper.jpg").mkdir()
    text = r"^ImageFolderDataset ignored .* and 2 more in .*: it reads only \.jpg"
    with pytest.warns(RuntimeWarning, match=text) as found:
        dataset = ImageFolderDataset(tmp_path)
    assert len(found) == 1
    assert found[0].filename == __file__
    assert len(dataset) == 8


def test_an_empty_class_has_a_label(tmp_path):
    write_folder(tmp_path, ["a", "c"])
    (tmp_path / "b").mkdir()
    dataset = ImageFolderDataset(tmp_path)
    assert dataset.classes == ["a", "b", "c"]
    assert dataset[4][1] == 2


def test_a_folder_without_images_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"contains no images; put .* files there, as in .*CLASS/NAME.jpg"):
        ImageFolderDataset(tmp_path)
    (tmp_path / "class").mkdir()
    with pytest.raises(ValueError, match="contains no images"):
        ImageFolderDataset(tmp_path)
    with pytest.raises(FileNotFoundError, match="nothing-here"):
        ImageFolderDataset(tmp_path / "nothing-here")


def test_an_index_may_be_negative_and_must_be_in_range(tmp_path):
    write_folder(tmp_path)
    dataset = ImageFolderDataset(tmp_path)
    assert dataset[-1][1] == dataset[7][1] == 1
    assert np.array_equal(dataset[-1][0], dataset[7][0])
    for index in (8, -9):
        with pytest.raises(IndexError):
            dataset[index]


@pytest.mark.parametrize("listed", [False, True])
def test_only_regular_files_are_read(tmp_path, listed):
    """Reading a FIFO or /dev/zero would never end."""
    write_folder(tmp_path, ["a"], 1)
    os.mkfifo(tmp_path / "a" / "fifo.jpg")
    (tmp_path / "a" / "loop.jpg").symlink_to("loop.jpg")
    (tmp_path / "a" / "zero.jpg").symlink_to("/dev/zero")
    names = ["0.jpg", "fifo.jpg", "loop.jpg", "zero.jpg"]
    listing = [(f"a/{name}", 0) for name in names]
    dataset = ImageListDataset(tmp_path, listing) if listed else ImageFolderDataset(tmp_path)
    assert [os.path.basename(path) for path, _ in dataset.items] == names
    assert dataset[0][1] == 0
    errors = ["this is a FIFO", "Too many levels of symbolic links", "this is a character device"]
    for number, text in enumerate(errors, 1):
        with pytest.raises(OSError, match=rf"{text}.*/a/{names[number]}'"):
            dataset[number]


@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of this process")
def test_a_file_that_does_not_fit_into_memory_is_named(tmp_path):
    write_folder(tmp_path, ["a"], 1)
    os.truncate(tmp_path / "a" / "0.jpg", 40 * 2**30)  # the file is sparse
    what = "the file has 42,949,672,960 bytes, more than fit into memory; remove it, or use fewer workers"
    dataset = ImageFolderDataset(tmp_path)
    with limited_memory(), pytest.raises(OSError, match=rf"{what}: '{tmp_path}/a/0.jpg'"):
        dataset[0]


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    write_folder(tmp_path)
    dataset = ImageFolderDataset(tmp_path)
    (tmp_path / "bus" / "1.jpg").write_bytes(b"no image")
    (tmp_path / "bus" / "2.jpg").write_bytes(encode(picture())[:200])
    (tmp_path / "bus" / "3.jpg").unlink()
    with pytest.raises(ImageError, match=r"bus/1.jpg: not an image: the data are 8 bytes that start with b'no image'"):
        dataset[1]
    with pytest.raises(ImageError, match=r"bus/2.jpg: the image file is truncated: it ends after 200 bytes"):
        dataset[2]
    with pytest.raises(FileNotFoundError, match=r"bus/3.jpg"):
        dataset[3]
    with pytest.raises(ImageError, match=r"bus/1.jpg: not an image"), DataLoader(dataset, 1, num_workers=1) as loader:
        list(loader)


def test_a_dataset_can_be_pickled(tmp_path):
    write_folder(tmp_path)
    dataset = ImageFolderDataset(tmp_path)
    same_samples(pickle.loads(pickle.dumps(dataset)), list(dataset))


def test_any_dataset_of_bytes_and_labels_can_be_decoded():
    files = SimpleDataset([(encode(picture(i)), i) for i in range(3)] + [(b"no image", 3)])
    dataset = ImageDataset(files, 0)
    assert dataset[2][0].shape == (60, 80, 1)
    assert dataset[2][1] == 2
    with pytest.raises(ImageError, match=r"^sample 3: not an image"):
        dataset[3]


# -- lists -------------------------------------------------------------------------------------------------------------


def list_of(tmp_path, labels, own_order=True):
    paths = [os.path.relpath(path, tmp_path) for path in write_folder(tmp_path)]
    return [(path, label) if own_order else [label, path] for path, label in zip(paths, labels, strict=False)]


@pytest.mark.parametrize("own_order", [True, False])
@pytest.mark.parametrize("labels", [[3, 1, 2], [0.5, 2.0, -1.0], [1, 2.5, 3], [2**70, 2**63 + 5, -7]])
def test_labels_keep_their_type(tmp_path, labels, own_order):
    entries = list_of(tmp_path, labels, own_order)
    dataset = ImageListDataset(tmp_path, entries)
    assert [label for _, label in dataset] == labels
    assert [type(label) for _, label in dataset] == list(map(type, labels))
    assert np.array_equal(dataset[1][0], decode((tmp_path / "bus" / "1.jpg").read_bytes()))


@pytest.mark.parametrize(
    ("label", "right"),
    [(np.array(3), 3), (np.int64(3), 3), (np.float32(2.5), 2.5), (np.array(2.5), 2.5), (np.bool_(True), 1), (True, 1)],
)
def test_labels_of_numpy_become_numbers_of_python(tmp_path, label, right):
    found = ImageListDataset(tmp_path, list_of(tmp_path, [label]))[0][1]
    assert (found, type(found)) == (right, type(right))


def test_several_labels_become_an_array(tmp_path):
    entries = list_of(tmp_path, [[1, 2], (3, 4.5), np.array([5, 6])])
    dataset = ImageListDataset(tmp_path, [*entries, [7, 8, entries[0][0]]])
    assert [label.tolist() for _, label in dataset] == [[1, 2], [3, 4.5], [5, 6], [7, 8]]
    assert all(label.dtype == np.float32 for _, label in dataset)


def test_labels_may_have_different_lengths(tmp_path):
    dataset = ImageListDataset(tmp_path, list_of(tmp_path, [[1.0, 2.0], 3, [4]]))
    assert [np.asarray(label).tolist() for _, label in dataset] == [[1.0, 2.0], 3, [4]]


def test_a_lst_file_is_read(tmp_path):
    write_folder(tmp_path)
    (tmp_path / "a.lst").write_text("7\t2.000000\tcar/1.jpg\n\n3\t1.5\tbus/0.jpg\n")
    (tmp_path / "b.lst").write_text("0\t1\t2\tbus/0.jpg\n1\t3\t4\tcar/0.jpg")
    dataset = ImageListDataset(tmp_path, "a.lst")
    assert list(dataset.items) == [(str(tmp_path / "car/1.jpg"), 2.0), (str(tmp_path / "bus/0.jpg"), 1.5)]
    assert type(dataset[0][1]) is float
    dataset = ImageListDataset(tmp_path, tmp_path / "b.lst")
    assert [label.tolist() for _, label in dataset] == [[1, 2], [3, 4]]


def test_a_lst_file_in_the_current_folder_is_read(tmp_path, monkeypatch):
    (tmp_path / "images").mkdir()
    write_folder(tmp_path / "images")
    (tmp_path / "a.lst").write_text("7\t2\tcar/1.jpg\n")
    monkeypatch.chdir(tmp_path)
    assert len(ImageListDataset("images", "a.lst")) == 1
    with pytest.raises(FileNotFoundError, match=r"b\.lst"):
        ImageListDataset("images", "b.lst")


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("1\tcar/1.jpg", "must be INDEX<tab>LABEL<tab>PATH, with at least one label, but the line has 2 fields"),
        ("1 2 car/1.jpg", "must be INDEX<tab>LABEL<tab>PATH, with at least one label, but the line has 1 fields"),
        ("1\tdog\tcar/1.jpg", "must be INDEX<tab>LABEL<tab>PATH, .* which are numbers .*'dog'"),
        ("x\t1\tcar/1.jpg", "must be INDEX<tab>LABEL<tab>PATH, .* which are numbers .*'x'"),
        ("0\t1\tcar/1.jpg", "line 1 has the key 0, too; each image needs its own key"),
        ("1\t2\t\udce4.jpg", "the line is not UTF-8 .*; save the list as UTF-8"),
        ("1\t2\t../car/1.jpg", r"the path '../car/1.jpg' leads out of root="),
    ],
)
def test_a_wrong_line_of_a_lst_file_is_named(tmp_path, line, fault):
    (tmp_path / "a.lst").write_bytes(f"0\t0\ta.jpg\n{line}\n".encode(errors="surrogateescape"))
    with pytest.raises(ValueError, match=rf"a.lst, line 2: {fault}"):
        ImageListDataset(tmp_path, "a.lst")


@pytest.mark.parametrize("path", ["../x.jpg", "a/../../x.jpg", "/etc/passwd", "..", "a/b/../../../root2/x.jpg"])
@pytest.mark.parametrize("relative", [False, True])
def test_a_path_that_leaves_the_root_is_refused(tmp_path, monkeypatch, path, relative):
    (tmp_path / "root").mkdir()
    monkeypatch.chdir(tmp_path)
    root = "root" if relative else tmp_path / "root"
    with pytest.raises(ValueError, match=r"^imglist\[1\]=.*: the path .* leads out of root=.*; pass a root that"):
        ImageListDataset(root, [("a.jpg", 0), (path, 0)])


def test_a_path_may_go_up_within_the_root(tmp_path):
    write_folder(tmp_path)
    inside = [("bus/../car/0.jpg", 0), (str(tmp_path / "car" / "0.jpg"), 0)]
    dataset = ImageListDataset(tmp_path, inside)
    assert np.array_equal(dataset[0][0], dataset[1][0])


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        ("a.jpg", r"pass \(path, label\)"),
        (("a.jpg",), r"pass \(path, label\)"),
        ((1, 2), r"pass \(path, label\)"),
        (("a.jpg", "dog"), "the label is 'dog'; pass a number"),
        (("a.jpg", None), "the label is None; pass a number"),
        (("a.jpg", []), r"the label is \[\]; pass a number"),
        (("a.jpg", b"3"), "the label is b'3'; pass a number"),
        (("a.jpg", ["3"]), r"the label is \['3'\]; pass a number"),
        (("a.jpg", np.array("3")), "the label is '3'; pass a number"),
    ],
)
def test_a_wrong_entry_of_a_list_is_named(tmp_path, entry, fault):
    with pytest.raises(ValueError, match=rf"^imglist\[0\]=.*: {fault}"):
        ImageListDataset(tmp_path, [entry])


def test_a_list_without_images_is_refused(tmp_path):
    with pytest.raises(ValueError, match="contains no images"):
        ImageListDataset(tmp_path, [])
    with pytest.raises(ValueError, match=r"^imglist=None: must be a list"):
        ImageListDataset(tmp_path)


# -- MXNet -------------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of MXNet's own code
def test_samples_are_those_of_mxnet(tmp_path):
    mxnet = load_mxnet() or pytest.skip("needs mxnet")
    write_folder(tmp_path, ["b", "a", "C"])
    (tmp_path / "b" / "4.png").write_bytes(encode(picture(5), "PNG"))
    for flag in (1, 0):
        theirs = mxnet.gluon.data.vision.ImageFolderDataset(str(tmp_path), flag)
        ours = ImageFolderDataset(tmp_path, flag)
        assert list(ours.items) == theirs.items
        assert ours.synsets == theirs.synsets
        for (image, label), (right, right_label) in zip(ours, map(theirs.__getitem__, range(len(theirs))), strict=True):
            assert label == right_label
            assert image.shape == right.shape
            assert np.abs(image.astype(int) - right.asnumpy()).max() <= 1


@pytest.mark.skipif(load("cv2") is None, reason="needs OpenCV to resize")
@pytest.mark.parametrize("way", [SERIAL, THREAD, FORK], ids=str)
def test_a_loader_reads_a_folder(tmp_path, way):
    from gluonloader.vision.transforms import Compose, Resize, ToTensor

    write_folder(tmp_path)
    dataset = ImageFolderDataset(tmp_path).transform_first(Compose([Resize((32, 24)), ToTensor()]))
    with way.loader(dataset, 3) as loader:
        batches = list(loader)
    assert [images.shape for images, _ in batches] == [(3, 3, 24, 32)] * 2 + [(2, 3, 24, 32)]
    assert np.concatenate([labels for _, labels in batches]).tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    for row, (image, _) in enumerate(dataset):
        assert np.array_equal(batches[row // 3][0][row % 3], image)
