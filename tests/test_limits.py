"""Limits of cgroups, read from files as the kernel writes them in version 1 and 2."""

import os

import pytest

from gluonloader.limits import available_cores, available_memory, group_folders, oom_kills

V2, V1 = "0::/a/b\n", "4:memory:/a/b\n3:cpu,cpuacct:/a\n1:name=systemd:/\n"
MB = 1 << 20
NONE = str(2**63 - 4096)


@pytest.fixture
def make_groups(tmp_path):
    def make(own, files):
        (tmp_path / "own").write_text(own)
        for name, text in files.items():
            file = tmp_path / "groups" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{text}\n")
        return tmp_path / "own", tmp_path / "groups"

    return make


@pytest.mark.parametrize(
    ("own", "controller", "expected"),
    [
        (V2, "memory", ["a/b", "a", "."]),
        ("0::/\n", "memory", ["."]),
        (V1, "memory", ["memory/a/b", "memory/a", "memory"]),
        (V1, "cpu", ["cpu/a", "cpu"]),
        (V1, "pids", []),
        (V1 + V2, "cpu", ["cpu/a", "cpu", "a/b", "a", "."]),
        ("nonsense\n", "memory", []),
    ],
)
def test_the_folders_of_all_groups_from_the_inside_out(make_groups, own, controller, expected):
    own, groups = make_groups(own, {})
    assert list(group_folders(controller, own, groups)) == [groups / name for name in expected]
    assert list(group_folders(controller, groups / "none", groups)) == []


def group(folder, most, now, stat="anon 5"):
    return {f"{folder}memory.max": most, f"{folder}memory.current": now, f"{folder}memory.stat": stat}


def old_group(folder, most, now, stat=""):
    names = ("limit_in_bytes", "usage_in_bytes", "stat")
    return {f"memory/{folder}memory.{name}": text for name, text in zip(names, (most, now, stat), strict=True)}


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        (V2, group("a/b/", 5 * MB, 2 * MB), 3 * MB),
        (V2, {**group("a/b/", "max", 2 * MB), **group("a/", 9 * MB, 8 * MB)}, MB),
        (V2, {**group("a/b/", 4 * MB, 3 * MB), **group("a/", 9 * MB, 2 * MB)}, MB),
        (V2, group("", 5 * MB, 4 * MB), MB),
        (V2, group("a/", 5 * MB, 5 * MB, f"file {4 * MB}\ninactive_file {MB}\nactive_file {2 * MB}"), 3 * MB),
        (V1, {**old_group("a/b/", NONE, MB), **old_group("a/", 5 * MB, 2 * MB)}, 3 * MB),
        (V1, old_group("", 5 * MB, 5 * MB, f"active_file 4096\ntotal_inactive_file 0\ntotal_active_file {MB}"), MB),
    ],
)
def test_the_memory_left_is_that_of_the_tightest_group(make_groups, own, files, expected):
    assert available_memory(*make_groups(own, files)) == expected


@pytest.mark.parametrize("files", [{}, group("a/", "max", MB), group("a/", "what", "is this"), old_group("", NONE, MB)])
def test_without_limits_the_memory_left_is_that_of_the_machine(make_groups, files):
    assert available_memory(*make_groups(V1 + V2, files)) > 16 * MB


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        (V2, {"a/b/memory.events": "oom 5\noom_kill 3\noom_group_kill 0", "a/memory.events": "oom_kill 9"}, 3),
        (V2, {"memory.events": "oom_kill 2"}, 2),
        (V1, {"memory/a/b/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 4"}, 4),
        (V1, {"memory/memory.oom_control": "oom_kill 6"}, 6),
        (V1, {"memory/a/memory.oom_control": "oom_kill many"}, 0),
        (V2, {}, 0),
    ],
)
def test_the_processes_killed_are_those_of_the_innermost_group(make_groups, own, files, expected):
    assert oom_kills(*make_groups(own, files)) == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 64),
        ({"cpu.max": "max 100000"}, 64),
        ({"cpu.max": "250000 100000"}, 3),
        ({"cpu.max": "10000 100000"}, 1),
        ({"a/cpu.max": "800000 100000", "a/b/cpu.max": "max 100000"}, 8),
        ({"a/cpu.max": "200000 100000", "a/b/cpu.max": "800000 100000"}, 2),
        ({"cpu/a/cpu.cfs_quota_us": "400000", "cpu/a/cpu.cfs_period_us": "100000"}, 4),
        ({"cpu/a/cpu.cfs_quota_us": "-1", "cpu/a/cpu.cfs_period_us": "100000"}, 64),
        ({"cpu.max": "what is this"}, 64),
        ({"cpu.max": "\u00b2 100000"}, 64),
    ],
)
def test_cores_are_those_of_the_container(make_groups, monkeypatch, files, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64))
    own, groups = make_groups(V2 + V1 + "nonsense\n", files)
    assert available_cores(own, groups) == expected
    assert 1 <= available_cores() <= 64
    assert available_cores(groups / "none", groups / "nowhere") == 64
