"""Flags, contexts, downloads and the other small helpers."""

import gzip

import pytest

from tinyfn import Context, fetch
from tinyfn.errors import FlagError, MissingExtraError
from tinyfn.helpers import DEBUG, NATIVE, ceildiv, dedup, flatten, optional, prod


def test_context_sets_flags_and_restores_them():
    before = DEBUG.value
    with Context(DEBUG=3, NATIVE=0):
        assert DEBUG == 3
        assert not NATIVE
        with Context(DEBUG=1):
            assert DEBUG < 2
        assert DEBUG >= 3
    assert DEBUG.value == before


def test_context_restores_after_an_error():
    with pytest.raises(KeyError), Context(DEBUG=4):
        raise KeyError
    assert DEBUG == 0


def test_context_refuses_what_is_no_flag():
    with pytest.raises(FlagError, match="no flag is called NOPE; the flags are .*DEBUG"):
        Context(NOPE=1)
    with pytest.raises(FlagError, match="flag DEBUG takes a value of type int, got 'two'"):
        Context(DEBUG="two").__enter__()


def test_a_missing_package_names_the_extra():
    with pytest.raises(MissingExtraError, match=r"pip install 'tinyfn\[nn\]'"):
        optional("no_such_package_at_all", "nn")


def test_fetch_keeps_what_it_has_read(tmp_path, monkeypatch):
    monkeypatch.setenv("TINYFN_CACHE", str(tmp_path / "cache"))
    source = tmp_path / "data.gz"
    source.write_bytes(gzip.compress(b"one two"))
    found = fetch(source.as_uri(), name="words", gunzip=True)
    assert found.read_bytes() == b"one two"
    source.unlink()
    assert fetch(source.as_uri(), name="words", gunzip=True).read_bytes() == b"one two"
    assert sorted(p.name for p in found.parent.iterdir()) == ["words.gunzip"]


def test_fetch_leaves_nothing_behind_when_it_fails(tmp_path, monkeypatch):
    monkeypatch.setenv("TINYFN_CACHE", str(tmp_path / "cache"))
    broken = tmp_path / "broken.gz"
    broken.write_bytes(b"no gzip")
    with pytest.raises(OSError, match="gzip"):
        fetch(broken.as_uri(), name="broken", gunzip=True)
    assert not list((tmp_path / "cache" / "downloads").iterdir())


def test_small_helpers():
    assert prod([2, 3, 4]) == 24
    assert prod([]) == 1
    assert flatten([[1], [2, 3]]) == [1, 2, 3]
    assert dedup([3, 1, 3, 2, 1]) == [3, 1, 2]
    assert [ceildiv(n, 4) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]
