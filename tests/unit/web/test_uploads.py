"""Which of the dropped notebooks are held, and for how long."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nb2ddp.errors import NotebookError
from nb2ddp.web import limits
from nb2ddp.web.conversion import Upload
from nb2ddp.web.uploads import Uploads


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def uploads(tmp_path: Path, clock: Clock) -> Uploads:
    return Uploads(tmp_path, clock)


def uploaded(root: Path, data: bytes, folder: str = "hash", name: str = "a.ipynb") -> str:
    (root / folder).mkdir(exist_ok=True)
    (root / folder / name).write_bytes(data)
    return str(root / folder / name)


def test_a_file_is_held_and_deleted(uploads: Uploads, tmp_path: Path) -> None:
    path = uploaded(tmp_path, b"1")
    uploads.take("me", path)
    assert not Path(path).exists()
    assert uploads.of("me") == Upload("a.ipynb", b"1")
    assert uploads.of("you") is None
    uploads.forget("me")
    assert uploads.of("me") is None


def test_equal_uploads_share_a_place_and_keep_their_names(uploads: Uploads, tmp_path: Path) -> None:
    first, second = uploaded(tmp_path, b"1"), uploaded(tmp_path, b"1", name="b.ipynb")
    uploads.take("me", first)
    uploads.take("you", first)
    uploads.take("they", second)
    assert [uploads.of(who) for who in ("me", "you", "they")] == [
        Upload("a.ipynb", b"1"),
        Upload("a.ipynb", b"1"),
        Upload("b.ipynb", b"1"),
    ]
    with pytest.raises(NotebookError, match="drop it again"):
        uploads.take("me", str(tmp_path / "other" / "a.ipynb"))


@pytest.mark.parametrize(
    "path", ["", "a.ipynb", "/etc/passwd", "{root}/../x", "{root}x", "\0", "\ud800", "/{root}", "http://x/a"]
)
def test_a_path_that_leads_elsewhere_is_refused(path: str, tmp_path: Path) -> None:
    outside = tmp_path / "x"
    outside.write_text("theirs")
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(outside)
    uploads = Uploads(root)
    for name in (path.format(root=root), str(root / "link")):
        if name != f"/{root}":  # two slashes are one
            assert not uploads.holds(name)
        with pytest.raises(NotebookError):
            uploads.take("me", name)
    assert outside.read_text() == "theirs"


def test_a_large_file_is_not_read(uploads: Uploads, tmp_path: Path) -> None:
    path = uploaded(tmp_path, b"")
    os.truncate(path, 2**40)
    with pytest.raises(NotebookError, match="has 1099512 MB, and 20 MB are taken at most"):
        uploads.take("me", path)
    assert not Path(path).exists()


def test_what_is_old_goes(uploads: Uploads, clock: Clock, tmp_path: Path) -> None:
    uploads.take("me", uploaded(tmp_path, b"1"))
    clock.now = limits.KEEP_SECONDS / 2
    uploads.take("you", uploaded(tmp_path, b"2"))
    clock.now = limits.KEEP_SECONDS + 1
    fresh = uploaded(tmp_path, b"3", "fresh")
    for old in (uploaded(tmp_path, b"4", "old"), str(tmp_path / "old"), str(tmp_path / "hash")):
        os.utime(old, (0, 0))
    uploads.sweep()
    assert uploads.of("me") is None
    assert uploads.of("you") == Upload("a.ipynb", b"2")
    assert [str(path) for path in tmp_path.rglob("*")] == [str(Path(fresh).parent), fresh]


def test_the_oldest_goes_where_they_are_too_many(
    uploads: Uploads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MOST_KEPT", 25)
    for who in ("me", "you", "they"):
        uploads.take(who, uploaded(tmp_path, b"0123456789"))
    assert uploads.of("me") is None
    assert uploads.of("you") is not None
    uploads.take("you", uploaded(tmp_path, b"0123456789"))
    uploads.take("me", uploaded(tmp_path, b"0123456789"))
    assert uploads.of("they") is None, "who came back is not the oldest"
