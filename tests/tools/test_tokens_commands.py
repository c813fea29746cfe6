"""python -m gluonloader tokens: the same files for any number of processes, also after interruptions."""

import json
import os
import random
import signal
import subprocess
import sys

import numpy as np
import pytest

from gluonloader.__main__ import main
from gluonloader.text import TokenDataset
from gluonloader.tools import make_tokens

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
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps({"text": text, "n": 1}) + "\n" for text in documents))
    elif path.suffix == ".txt":
        path.write_text("\n".join(documents))
    else:
        pa = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pa.table({"text": documents}), path, row_group_size=700)
    return str(path)


def command(*arguments):
    return main(["tokens", *arguments])


@pytest.mark.parametrize("ending", [".jsonl", ".txt", ".parquet"])
@pytest.mark.parametrize("workers", ["0", "2"])
def test_make(tmp_path, tokenizer, ending, workers, capsys):
    documents = [text or "a" for text in texts(3000)]
    source = make_file(tmp_path / f"corpus{ending}", documents)
    out = str(tmp_path / "corpus")
    arguments = ["make", source, "--tokenizer", tokenizer, "--out", out, "--end", "<end>", "--num-workers", workers]
    assert command(*arguments) == 0
    data = TokenDataset(out)
    assert [tokens.tolist() for tokens in data] == list(map(tokens_of, documents))
    assert data.dtype == np.uint16
    assert "3,000 documents" in capsys.readouterr().out
    assert sorted(name for name in os.listdir(tmp_path) if name.startswith("corpus.")) == sorted(
        ["corpus.bin", "corpus.idx", f"corpus{ending}"]
    )


def test_truncation_and_padding_of_the_tokenizer_are_not_applied(tmp_path, tokenizer):
    tokenizers = pytest.importorskip("tokenizers")
    cutting = tokenizers.Tokenizer.from_file(tokenizer)
    cutting.enable_truncation(2)
    cutting.enable_padding()
    cutting.save(tokenizer)
    source = make_file(tmp_path / "corpus.txt", ["a b c d", "e"])
    arguments = ["make", source, "--tokenizer", tokenizer, "--out", str(tmp_path / "out"), "--num-workers", "0"]
    assert command(*arguments, "--end", "1") == 0
    assert [tokens.tolist() for tokens in TokenDataset(tmp_path / "out")] == [[2, 3, 4, 5, 1], [6, 1]]


def test_lines_of_any_length_are_read_once(tmp_path, tokenizer):
    rng = random.Random(0)
    sizes = [*rng.choices([1, 50, 10_000, 300_000], k=40), 1_500_000]  # characters; a piece has 1 MB
    documents = ["ab "[rng.randrange(2) :][:2] + "c d " * (size // 4) for size in sizes]
    source = make_file(tmp_path / "corpus.jsonl", documents)
    pieces = make_tokens.TokenizedPieces(source, "text", tokenizer, None, "uint16")
    assert len(pieces) > 3
    lengths = [length for index in range(len(pieces)) for length in pieces[index][1].tolist()]
    assert lengths == [len(document.split()) for document in documents]


def test_tokens_of_a_table_need_no_tokenizer(tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    documents = [[1, 2, 3], [], [70000]]
    parquet.write_table(pa.table({"ids": documents}), tmp_path / "corpus.parquet")
    out = str(tmp_path / "out")
    assert command("make", str(tmp_path / "corpus.parquet"), "--key", "ids", "--out", out, "--num-workers", "0") == 0
    assert [tokens.tolist() for tokens in TokenDataset(out)] == documents


@pytest.mark.kill
@pytest.mark.spawn
@pytest.mark.parametrize("number", range(STOPS))
def test_a_run_that_was_killed_is_continued(tmp_path, tokenizer, number):
    documents = [text or "a" for text in texts(12_000)] * 10
    source = make_file(tmp_path / "corpus.txt", documents)
    whole, out = str(tmp_path / "whole"), str(tmp_path / "killed")
    arguments = [source, "--tokenizer", tokenizer, "--num-workers", "1", "--out"]
    assert command("make", *arguments, whole) == 0
    rng, kills = random.Random(number), 0
    program = [sys.executable, "-m", "gluonloader", "tokens", "make", *arguments, out]
    while True:
        run = subprocess.Popen(program, stdout=subprocess.DEVNULL)
        pieces = rng.randrange(5)
        while run.poll() is None:
            try:
                with open(f"{out}.progress") as file:
                    done = json.load(file)["progress"]["pieces"]
            except (FileNotFoundError, ValueError):
                done = 0
            if done > kills + pieces:
                run.send_signal(signal.SIGKILL)
                break
        if run.wait() == 0:
            break
        kills += 1
    for ending in (".bin", ".idx"):
        with open(whole + ending, "rb") as one, open(out + ending, "rb") as other:
            assert one.read() == other.read()


def interrupted(*arguments):
    raise KeyboardInterrupt


@pytest.mark.parametrize("step", ["replace", "write_index", "unlink"])
@pytest.mark.parametrize("changed", [False, True])
def test_a_run_that_was_interrupted_in_its_last_steps(tmp_path, tokenizer, monkeypatch, step, changed):
    source, out = make_file(tmp_path / "corpus.txt", ["a b", "c"]), str(tmp_path / "out")
    arguments = ["make", source, "--tokenizer", tokenizer, "--out", out, "--num-workers", "0"]
    replace = os.replace

    def replace_all_but(path, name):
        return interrupted() if name == f"{out}.bin" else replace(path, name)

    with monkeypatch.context() as patched:
        if step == "write_index":
            patched.setattr(make_tokens, step, interrupted)
        else:
            patched.setattr(os, step, replace_all_but if step == "replace" else interrupted)
        assert command(*arguments) == 130
    if changed:
        make_file(tmp_path / "corpus.txt", ["d d d"])
    assert command(*arguments) == 0
    assert [tokens.tolist() for tokens in TokenDataset(out)] == ([[5, 5, 5]] if changed else [[2, 3], [4]])
    assert sorted(os.listdir(tmp_path)) == ["corpus.txt", "out.bin", "out.idx", "tokenizer.json"]


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
    assert "token 2 of document 0 is 8, but the vocabulary has 6 tokens" in capsys.readouterr().out
    with (tmp_path / "corpus.idx").open("r+b") as file:
        file.seek(34)
        file.write(b"\x04")
    assert command("check", path, "--json") == 1
    assert len(json.loads(capsys.readouterr().out)["errors"]) == 1
    assert command("check", str(tmp_path / "nowhere")) == 2
    assert "there is no file" in capsys.readouterr().err


def test_mistakes(tmp_path, tokenizer, capsys):
    source = make_file(tmp_path / "corpus.jsonl", ["a"])
    out = ["--out", str(tmp_path / "out"), "--num-workers", "0"]
    cases = [
        ([source, *out], "corpus.jsonl contains texts; pass --tokenizer tokenizer.json"),
        ([source, *out, "--tokenizer", source], "pass a file of the library tokenizers"),
        ([source, *out, "--tokenizer", tokenizer, "--end", "<eos>"], "--end <eos>: must be a token of the vocabulary"),
        (
            [source, *out, "--tokenizer", tokenizer, "--key", "body"],
            "the line at byte 0 is no JSON object with a field",
        ),
        ([source, *out, "--tokenizer", tokenizer, "--key", "n"], "the field 'n' of the line at byte 0 is no text"),
        ([source, *out, "--tokenizer", tokenizer, "--end", "300", "--dtype", "uint8"], "pass --dtype int32"),
        ([str(tmp_path / "corpus.csv"), *out], "the ending must be .jsonl, .txt or .parquet"),
        ([str(tmp_path / "no.txt"), *out], "No such file"),
    ]
    for arguments, text in cases:
        assert command("make", *arguments) == 2
        assert text in capsys.readouterr().err
    assert not (tmp_path / "out.idx").exists()
