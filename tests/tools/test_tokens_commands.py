"""python -m gluonloader tokens: the same files for any number of processes, also after interruptions."""

import gzip
import json
import os
import random
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
from terminals import shown_on_a_terminal

from gluonloader.__main__ import main
from gluonloader.text import TokenDataset
from gluonloader.tools import make_tokens, sources

ENDINGS = [".jsonl", ".txt", ".parquet", ".jsonl.gz", ".txt.gz", ".jsonl.zst"]
STOPS = int(os.environ.get("GLUONLOADER_EXITS", 20)) // 10


@pytest.fixture
def tokenizer(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    words = {word: number for number, word in enumerate(["<end>", "<?>", *"abcdefghij"])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<?>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    path = tmp_path / "tokenizer.json"
    made.save(str(path))
    return str(path)


def texts(count):
    rng = random.Random(0)
    return [" ".join(rng.choices("abcdefghijk", k=rng.randrange(30))) for _ in range(count)]


def tokens_of(text, end=True):
    return [2 + ord(word) - ord("a") if word != "k" else 1 for word in text.split()] + [0] * end


def make_file(path, documents):
    """Writes the documents; a compressed file has two parts, since such files may be joined."""
    compress = bytes
    if path.suffix == ".gz":
        compress = gzip.compress
    elif path.suffix == ".zst":
        compress = pytest.importorskip("zstandard").compress
    if path.suffix == ".parquet":
        pa = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pa.table({"text": documents}), path, row_group_size=700)
        return str(path)
    if ".jsonl" in path.name:
        data = "".join(json.dumps({"text": text, "n": 1}) + "\n" for text in documents).encode()
    else:
        data = "\n".join(documents).encode()
    path.write_bytes(compress(data[:1000]) + compress(data[1000:]))
    return str(path)


def interrupted(*arguments):
    raise KeyboardInterrupt


def command(*arguments):
    return main(["tokens", *arguments])


def made(folder, *arguments):
    """Makes files in a folder, without workers; the tokens of their documents."""
    assert command("make", *arguments, "--out", str(folder / "out"), "--num-workers", "0") == 0
    return [tokens.tolist() for tokens in TokenDataset(folder / "out")]


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("workers", ["0", "2"])
def test_make(tmp_path, tokenizer, ending, workers, capsys):
    documents = [text or "a" for text in texts(3000)]
    source = make_file(tmp_path / f"corpus{ending}", documents)
    out = str(tmp_path / ("corpus.bin" if workers == "0" else "corpus"))
    arguments = ["make", source, "--tokenizer", tokenizer, "--out", out, "--end", "<end>", "--num-workers", workers]
    assert command(*arguments) == 0
    data = TokenDataset(out)
    assert [tokens.tolist() for tokens in data] == list(map(tokens_of, documents))
    assert data.dtype == np.uint16
    assert "3,000 documents" in capsys.readouterr().out
    assert sorted(name for name in os.listdir(tmp_path) if name.startswith("corpus.")) == sorted(
        ["corpus.bin", "corpus.idx", f"corpus{ending}"]
    )


@pytest.mark.parametrize("workers", ["0", "2"])
def test_several_files_and_folders(tmp_path, tokenizer, workers, monkeypatch):
    monkeypatch.setattr(sources, "PIECE", 500)  # so that each file has several pieces
    folder = tmp_path / "b" / "c"
    folder.mkdir(parents=True)
    paths = [tmp_path / "z.txt", folder / "1.jsonl", folder / "2.txt.gz", folder.parent / "d.jsonl", tmp_path / "a.txt"]
    parts = [[text or "a" for text in texts(100 + number)] for number in range(5)]
    for path, documents in zip(paths, parts, strict=True):
        make_file(path, documents)
    (folder / "README.md").write_text("no documents")
    out = str(tmp_path / "out")
    arguments = [str(paths[0]), str(folder.parent), str(paths[4]), "--tokenizer", tokenizer, "--end", "<end>"]
    assert command("make", *arguments, "--out", out, "--num-workers", workers) == 0
    assert [tokens.tolist() for tokens in TokenDataset(out)] == [tokens_of(text) for part in parts for text in part]


def test_truncation_and_padding_of_the_tokenizer_are_not_applied(tmp_path, tokenizer):
    tokenizers = pytest.importorskip("tokenizers")
    cutting = tokenizers.Tokenizer.from_file(tokenizer)
    cutting.enable_truncation(2)
    cutting.enable_padding()
    cutting.save(tokenizer)
    source = make_file(tmp_path / "corpus.txt", ["a b c d", "e"])
    assert made(tmp_path, source, "--tokenizer", tokenizer, "--end", "1") == [[2, 3, 4, 5, 1], [6, 1]]


@pytest.mark.parametrize(("ending", "line"), [(".txt", "a b"), (".jsonl", '{"text": "a b"}')])
def test_a_byte_order_mark_is_no_token(tmp_path, tokenizer, ending, line):
    source = tmp_path / f"corpus{ending}"
    source.write_bytes(f"\ufeff{line}\n{line}\n".encode())
    assert made(tmp_path, str(source), "--tokenizer", tokenizer) == [tokens_of("a b", end=False)] * 2


def test_lines_of_any_length_are_read_once(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr(sources, "PIECE", 1 << 16)
    rng = random.Random(0)
    sizes = [*rng.choices([1, 50, 600, 20_000], k=40), 100_000]  # characters
    documents = ["ab "[rng.randrange(2) :][:2] + "c d " * (size // 4) for size in sizes]
    source = make_file(tmp_path / "corpus.jsonl", documents)
    lengths = list(map(len, made(tmp_path, source, "--tokenizer", tokenizer)))
    assert lengths == [len(document.split()) for document in documents]


def test_tokens_of_a_table_need_no_tokenizer(tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    documents = [[1, 2, 3], [], [70000]]
    parquet.write_table(pa.table({"ids": documents}), tmp_path / "corpus.parquet")
    assert made(tmp_path, str(tmp_path / "corpus.parquet"), "--key", "ids") == documents


@pytest.mark.parametrize("end", ["1", None])
def test_tokens_of_json_lines(tmp_path, end):
    (tmp_path / "corpus.jsonl").write_text('{"ids": [1, 2]}\n\n{"ids": []}\n{"ids": [70000]}')
    arguments = [str(tmp_path / "corpus.jsonl"), "--key", "ids", *(["--end", end] if end else [])]
    ends = [1] * bool(end)
    assert made(tmp_path, *arguments) == [[1, 2, *ends], ends, [70000, *ends]]


def test_a_file_without_documents(tmp_path):
    (tmp_path / "corpus.txt").write_text("")
    assert made(tmp_path, str(tmp_path / "corpus.txt")) == []


@pytest.mark.skipif(not os.path.exists("/proc/self/io"), reason="needs /proc")
def test_a_row_group_is_decoded_once(tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path, out = tmp_path / "corpus.parquet", str(tmp_path / "out")
    column = pa.array(np.random.default_rng(0).integers(0, 1 << 31, (20_000, 20)).tolist(), pa.list_(pa.int32()))
    parquet.write_table(pa.table({"ids": column}), path, row_group_size=20_000, use_dictionary=False)

    def read():
        with open("/proc/self/io") as file:
            return int(file.readline().split()[1])

    before = read()
    assert command("make", str(path), "--key", "ids", "--out", out, "--num-workers", "0") == 0
    # Parquet and the result are each read once, beside some modules.
    assert read() - before < 4 * path.stat().st_size


@pytest.mark.parametrize("ending", [".jsonl.gz", ".jsonl.zst", ".parquet"])
def test_a_damaged_file_is_named(tmp_path, tokenizer, ending, capsys):
    source = make_file(tmp_path / f"corpus{ending}", ["a"] * 10_000)
    data = (tmp_path / f"corpus{ending}").read_bytes()
    (tmp_path / f"corpus{ending}").write_bytes(data[:-5])
    arguments = ["--tokenizer", tokenizer, "--out", str(tmp_path / "out"), "--num-workers", "0"]
    assert command("make", source, *arguments) == 2
    err = capsys.readouterr().err
    assert f"{source} cannot be read (" in err
    assert "copy the file again, or remove it" in err


BAD_LINES = [
    (b'{"text": null}', "contains None, neither a text nor a list of ints"),
    (b'{"text": "\\ud800"}', "is not UTF-8 ('utf-8' codec can't encode character"),
    (b'{"text": "\xff"}', "is not UTF-8 ('utf-8' codec can't decode byte 0xff"),
    (b'{"texts": "a"}', "is no JSON object with a field 'text' (KeyError: 'text')"),
    (b'{"text": ', "is no JSON object with a field 'text' (JSONDecodeError:"),
    (b'["text"]', "is no JSON object with a field 'text' (TypeError:"),
    (b'{"text": [1, null]}', "contains [1, None], neither"),
    (b'{"text": [[1], [2, 3]]}', "contains [[1], [2, 3]], neither"),
    (b'{"text": [1.5]}', "contains [1.5], neither"),
]


@pytest.mark.parametrize(("line", "text"), BAD_LINES)
def test_a_bad_line_is_named(tmp_path, tokenizer, line, text, capsys):
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(b'{"text": "a"}\n\n' + line + b'\n{"text": "b"}\n')
    out = str(tmp_path / "out")
    arguments = ["make", str(path), "--tokenizer", tokenizer, "--out", out, "--num-workers", "0"]
    assert command(*arguments) == 2
    err = capsys.readouterr().err
    assert f"{path}: line 3 {text}" in err
    assert "pass --on-error skip" in err
    assert sorted(os.listdir(tmp_path)) == ["corpus.jsonl", "tokenizer.json"]
    assert command(*arguments, "--on-error", "skip") == 1
    assert [tokens.tolist() for tokens in TokenDataset(out)] == [[2], [3]]
    err = capsys.readouterr().err
    assert f"skipped: {path}: line 3 {text}" in err
    assert "rows that were left out: 1" in err


def test_bad_rows_of_a_table(tmp_path, tokenizer, capsys, monkeypatch):
    monkeypatch.setattr(sources, "PIECE", 100)  # so that rows are counted over several pieces
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    documents = [b"a"] * 1000
    documents[700], documents[800] = None, b"\xff"
    wrong = pa.array(documents, pa.binary()).cast(pa.string(), safe=False)
    parquet.write_table(pa.table({"text": wrong}), tmp_path / "corpus.parquet", row_group_size=300)
    arguments = [str(tmp_path / "corpus.parquet"), "--tokenizer", tokenizer, "--out", str(tmp_path / "out")]
    arguments += ["--num-workers", "2", "--json"]
    assert command("make", *arguments) == 2
    assert "corpus.parquet: row 700 contains None, neither a text nor" in capsys.readouterr().err
    assert command("make", *arguments, "--on-error", "skip") == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["skipped"] == 2
    assert json.loads(out)["documents"] == 998
    assert "corpus.parquet: row 800 is not UTF-8" in err
    assert command("make", *arguments, "--key", "body") == 2
    assert "corpus.parquet has no column 'body', but 'text'; pass --key" in capsys.readouterr().err


def test_a_token_that_does_not_fit(tmp_path, capsys):
    (tmp_path / "corpus.jsonl").write_text('{"text": [1]}\n{"text": [5, 256, -1]}')
    arguments = ["make", str(tmp_path / "corpus.jsonl"), "--out", str(tmp_path / "out"), "--num-workers", "0"]
    assert command(*arguments, "--dtype", "uint8", "--on-error", "skip") == 2
    assert "line 2 has the token -1, which does not fit in uint8; pass --dtype" in capsys.readouterr().err


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_interrupted_run_leaves_what_it_needs_to_continue(tmp_path, tokenizer, monkeypatch, ending):
    monkeypatch.setattr(sources, "PIECE", 5000)
    documents = [text or "a" for text in texts(3000)]
    files = [make_file(tmp_path / f"{name}{ending}", documents) for name in ("a", "b")]
    whole, out = str(tmp_path / "whole"), str(tmp_path / "out")
    arguments = ["make", *files, "--tokenizer", tokenizer, "--num-workers", "0", "--out"]
    assert command(*arguments, whole) == 0
    before, tokenized, left = set(os.listdir(tmp_path)), make_tokens.Tokenizing.__getitem__, 0

    def tokenize(self, piece):
        nonlocal left
        left -= 1
        return tokenized(self, piece) if left >= 0 else interrupted()

    monkeypatch.setattr(make_tokens.Tokenizing, "__getitem__", tokenize)
    assert command(*arguments, out) == 130
    assert set(os.listdir(tmp_path)) == before  # nothing was written
    rng, statuses = random.Random(0), []
    while 0 not in statuses and len(statuses) < 100:
        left = rng.randrange(1, 12)
        statuses.append(command(*arguments, out))
        if statuses[-1] == 130:
            assert set(os.listdir(tmp_path)) - before == {"out.bin.part", "out.idx.part", "out.progress"}
    assert statuses == [130] * (len(statuses) - 1) + [0]
    assert len(statuses) > 3
    assert set(os.listdir(tmp_path)) - before == {"out.bin", "out.idx"}
    for name in (".bin", ".idx"):
        with open(whole + name, "rb") as one, open(out + name, "rb") as other:
            assert one.read() == other.read()


def test_skipped_rows_are_counted_over_all_runs(tmp_path, tokenizer, monkeypatch, capsys):
    monkeypatch.setattr(sources, "PIECE", 10)
    path, out = tmp_path / "corpus.jsonl", str(tmp_path / "out")
    path.write_text('{"text": 1}\n' * 5 + '{"text": "a"}\n' * 5 + '{"text": 2}\n' * 5)
    arguments = ["make", str(path), "--tokenizer", tokenizer, "--num-workers", "0", "--out", out]
    tokenized = make_tokens.Tokenizing.__getitem__

    def tokenize(self, piece):
        return interrupted() if b"2" in piece.rows[0] else tokenized(self, piece)

    with monkeypatch.context() as patched:
        patched.setattr(make_tokens.Tokenizing, "__getitem__", tokenize)
        assert command(*arguments, "--on-error", "skip") == 130
    assert command(*arguments) == 2  # another --on-error continues, too
    assert "line 11 contains 2" in capsys.readouterr().err
    assert command(*arguments, "--on-error", "skip", "--json") == 1
    assert json.loads(capsys.readouterr().out)["skipped"] == 10
    assert len(TokenDataset(out)) == 5


def test_a_piece_may_take_any_time(tmp_path, monkeypatch):
    (tmp_path / "corpus.jsonl").write_text('{"text": [1]}\n')
    limits, loader = [], make_tokens.DataLoader

    def record(*arguments, timeout=120, **others):
        limits.append(timeout)
        return loader(*arguments, timeout=timeout, **others)

    monkeypatch.setattr(make_tokens, "DataLoader", record)
    assert made(tmp_path, str(tmp_path / "corpus.jsonl")) == [[1]]
    assert limits == [None]


def test_the_progress_bar_shows_tokens_per_second(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"text": [1]}\n')
    arguments = ["make", str(path), "--out", str(tmp_path / "out"), "--num-workers", "0"]
    shown = shown_on_a_terminal(lambda: command(*arguments))
    assert re.search(r"14 of 14 bytes, [\d,]+ tokens/s", shown)


WITH_SMALL_PIECES = """
import sys
from gluonloader.__main__ import main
from gluonloader.tools import sources

sources.PIECE = 50_000
sys.exit(main(["tokens", "make", *sys.argv[1:]]))
"""


@pytest.mark.kill
@pytest.mark.spawn
@pytest.mark.parametrize("number", range(STOPS))
def test_a_run_that_was_killed_is_continued(tmp_path, tokenizer, number):
    documents = [text or "a" for text in texts(12_000)] * 3
    source = make_file(tmp_path / "corpus.txt", documents)
    whole, out = str(tmp_path / "whole"), str(tmp_path / "killed")
    arguments = [source, "--tokenizer", tokenizer, "--num-workers", "1", "--out"]
    assert command("make", *arguments, whole) == 0
    rng, kills = random.Random(number), 0
    program = [sys.executable, "-c", WITH_SMALL_PIECES, *arguments, out]
    while True:
        run = subprocess.Popen(program, stdout=subprocess.DEVNULL)
        more = rng.randrange(5) * 3600
        while run.poll() is None:
            try:
                with open(f"{out}.progress") as file:
                    done = json.load(file)["progress"]["documents"]
            except (FileNotFoundError, ValueError):
                done = 0
            if done > kills * 7200 + more:
                run.send_signal(signal.SIGKILL)
                break
        if run.wait() == 0:
            break
        kills += 1
    for ending in (".bin", ".idx"):
        with open(whole + ending, "rb") as one, open(out + ending, "rb") as other:
            assert one.read() == other.read()


@pytest.mark.parametrize("step", [".idx", ".bin", "write_index", "unlink"])
@pytest.mark.parametrize("changed", [False, True])
def test_a_run_that_was_interrupted_in_its_last_steps(tmp_path, tokenizer, monkeypatch, step, changed):
    source, out = make_file(tmp_path / "corpus.txt", ["a b", "c"]), str(tmp_path / "out")
    arguments = ["make", source, "--tokenizer", tokenizer, "--out", out, "--num-workers", "0"]
    replace, stopped = os.replace, out + step

    def replace_all_but(path, name):
        return interrupted() if name == stopped else replace(path, name)

    with monkeypatch.context() as patched:
        if step == "write_index":
            patched.setattr(make_tokens, step, interrupted)
        else:
            patched.setattr(os, *(["unlink", interrupted] if step == "unlink" else ["replace", replace_all_but]))
        assert command(*arguments) == 130
    if changed:
        make_file(tmp_path / "corpus.txt", ["d d d"])
    assert command(*arguments) == 0
    assert [tokens.tolist() for tokens in TokenDataset(out)] == ([[5, 5, 5]] if changed else [[2, 3], [4]])
    assert sorted(os.listdir(tmp_path)) == ["corpus.txt", "out.bin", "out.idx", "tokenizer.json"]


def test_two_runs_that_write_the_same_files_at_once_are_an_error(tmp_path, capsys):
    path, out = str(tmp_path / "corpus.jsonl"), str(tmp_path / "out")
    with open(path, "w") as file:
        file.write('{"text": [1]}\n')
    lock = f"import fcntl, time; file = open({out + '.lock'!r}, 'w'); fcntl.lockf(file, fcntl.LOCK_EX)"
    program = [sys.executable, "-c", f"{lock}; print(1, flush=True); time.sleep(100)"]
    with subprocess.Popen(program, stdout=subprocess.PIPE) as other:
        other.stdout.read(1)
        assert command("make", path, "--out", out, "--num-workers", "0") == 2
        assert "another run writes these files now; wait until it has ended, or pass" in capsys.readouterr().err
        other.kill()
    assert command("make", path, "--out", out, "--num-workers", "0") == 0
    assert sorted(os.listdir(tmp_path)) == ["corpus.jsonl", "out.bin", "out.idx"]


@pytest.mark.parametrize("lost", [["out.bin.part"], ["out.idx.part"], ["out.bin.part", "out.idx.part"]])
def test_a_run_whose_parts_were_deleted_leaves_the_old_files(tmp_path, tokenizer, monkeypatch, capsys, lost):
    out = str(tmp_path / "out")
    TokenDataset.write(out, [[7, 8, 9]] * 5)
    old = [(tmp_path / name).read_bytes() for name in ("out.bin", "out.idx")]
    source = make_file(tmp_path / "corpus.txt", ["a b", "c"])
    arguments = ["make", source, "--tokenizer", tokenizer, "--out", out, "--num-workers", "0"]
    with monkeypatch.context() as patched:
        patched.setattr(make_tokens, "write_index", interrupted)
        assert command(*arguments) == 130
    for name in lost:
        os.unlink(tmp_path / name)
    assert command(*arguments) == 2
    assert (
        f"{lost[0]} is shorter than {out}.progress says; delete {out}.progress, and run it" in capsys.readouterr().err
    )
    assert [(tmp_path / name).read_bytes() for name in ("out.bin", "out.idx")] == old
    os.unlink(tmp_path / "out.progress")
    assert command(*arguments) == 0
    assert [tokens.tolist() for tokens in TokenDataset(out)] == [[2, 3], [4]]


def test_a_folder_that_does_not_exist_is_an_error(tmp_path, capsys):
    source = make_file(tmp_path / "corpus.txt", ["a"])
    assert command("make", source, "--out", str(tmp_path / "new" / "out")) == 2
    assert f"there is no folder {tmp_path / 'new'}; make it first" in capsys.readouterr().err


def test_list_and_check(tmp_path, capsys):
    TokenDataset.write(tmp_path / "corpus", [[5, 3, 8], [1]])
    path = str(tmp_path / "corpus")
    assert command("list", path, "--first", "1") == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{path}: 2 documents, 4 tokens of uint16",
        "tokens of a document: median 2, at most 3",
        "document 0: 5 3 8",
    ]
    assert command("list", path, "--json") == 0
    assert json.loads(capsys.readouterr().out)["longest"] == 3
    assert command("check", path) == 0
    assert capsys.readouterr().out == f"{path}: 2 documents; errors: 0\n"
    assert command("check", path, "--vocabulary", "6") == 1
    out = capsys.readouterr().out
    assert "token 2 of document 0 is 8, but the vocabulary has 6 tokens" in out
    assert out.splitlines()[-1] == f"{path}: 2 documents; tokens outside of the vocabulary: 1; errors: 1"
    assert command("check", path, "--vocabulary", "3", "--json") == 1
    assert json.loads(capsys.readouterr().out)["outside"] == 3
    with (tmp_path / "corpus.idx").open("r+b") as file:
        file.seek(34)
        file.write(b"\x04")
    assert command("check", path, "--json") == 1
    assert len(json.loads(capsys.readouterr().out)["errors"]) == 1
    assert command("check", str(tmp_path / "nowhere")) == 2
    assert "there is no file" in capsys.readouterr().err


def test_check_compares_the_index_with_the_tokens(tmp_path, capsys):
    TokenDataset.write(tmp_path / "corpus", [[5, 3, 8], [1]])
    for tokens in ([5, 8, 8, 1], [5, 3, 8]):
        np.array(tokens, np.uint16).tofile(tmp_path / "corpus.bin")
        assert command("check", str(tmp_path / "corpus"), "--json") == 1
        (error,) = json.loads(capsys.readouterr().out)["errors"]
        assert "corpus.idx" in error
        assert "copy both again" in error


def test_mistakes(tmp_path, tokenizer, capsys):
    source = make_file(tmp_path / "corpus.jsonl", ["a"])
    (tmp_path / "empty").mkdir()
    out = ["--out", str(tmp_path / "out"), "--num-workers", "0"]
    cases = [
        ([source, *out], "corpus.jsonl contains texts; pass --tokenizer tokenizer.json"),
        ([source, *out, "--tokenizer", source], "pass a file of the library tokenizers"),
        ([source, *out, "--tokenizer", tokenizer, "--end", "<eos>"], "--end <eos>: must be a token of the vocabulary"),
        (
            [source, *out, "--tokenizer", tokenizer, "--key", "body"],
            "corpus.jsonl: line 1 is no JSON object with a field 'body' (KeyError: 'body'); correct the row, pass "
            "another --key, or pass --on-error skip",
        ),
        (
            [source, *out, "--tokenizer", tokenizer, "--key", "n"],
            "line 1 contains 1, neither a text nor a list of ints",
        ),
        ([source, *out, "--tokenizer", tokenizer, "--end", "300", "--dtype", "uint8"], "uint8; pass a larger --dtype"),
        ([source, *out, "--end", str(2**40)], "does not fit in int32; pass a larger --dtype"),
        ([str(tmp_path / "corpus.csv"), *out], "the ending must be one of .jsonl, .txt, .jsonl.gz"),
        ([str(tmp_path / "no.txt"), *out], "No such file"),
        ([str(tmp_path / "empty"), *out], "empty: it contains no files that end with one of .jsonl"),
    ]
    for arguments, text in cases:
        assert command("make", *arguments) == 2
        assert text in capsys.readouterr().err
    assert sorted(os.listdir(tmp_path)) == ["corpus.jsonl", "empty", "tokenizer.json"]
