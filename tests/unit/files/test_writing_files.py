"""Writing a file: permissions, all or nothing, and what a killed program leaves."""

from __future__ import annotations

import io
import os
import re
import signal
import stat
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import coredispatch as cd

pytestmark = pytest.mark.once

posix = pytest.mark.skipif(os.name != "posix", reason="permissions and locks of POSIX")
OLD = [cd.arange(5.0), "the earlier file"]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def run(program: str, *arguments: Any) -> subprocess.CompletedProcess[str]:
    """Run a program in a child process."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


@posix
@pytest.mark.parametrize("permissions", [0o600, 0o644, 0o664, 0o640, 0o700])
def test_permissions_stay(tmp_path: Path, permissions: int) -> None:
    path = tmp_path / "model.cd"
    cd.save([1], path)
    path.chmod(permissions)
    cd.save([2], path)
    assert mode(path) == permissions
    assert cd.load(path) == [2]


@posix
@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_a_new_file_has_what_the_umask_gives(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        cd.save([1], tmp_path / "model.cd")
    finally:
        os.umask(before)
    assert mode(tmp_path / "model.cd") == 0o666 & ~umask


@posix
def test_an_owner_that_cannot_be_kept_gets_nobody_more_access(
    tmp_path: Path, monkeypatch: Any
) -> None:
    path = tmp_path / "model.cd"
    cd.save([1], path)
    path.chmod(0o660)
    stats = Path.stat

    def owned_by_others(self: Path, **options: Any) -> os.stat_result:
        found = stats(self, **options)
        if self.name != "model.cd":
            return found
        return os.stat_result((*found[:4], 12345, 54321, *found[6:]))

    def refused(*_: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "stat", owned_by_others)
    monkeypatch.setattr(os, "fchown", refused)
    cd.save([2], path)
    assert stat.S_IMODE(stats(path).st_mode) == 0o600


@posix
def test_the_data_are_never_open_to_others(tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "model.cd"
    cd.save([1], path)
    path.chmod(0o600)
    seen = []
    sync = os.fsync

    def looking(number: int) -> None:
        seen.append([mode(file) for file in tmp_path.iterdir()])
        sync(number)

    monkeypatch.setattr(os, "fsync", looking)
    cd.save([2], path)
    assert seen[0] == [0o600, 0o600]


@posix
def test_a_read_only_file_is_not_replaced(tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "model.cd"
    cd.save(OLD, path)
    path.chmod(0o444)
    if os.geteuid() == 0:  # who may write everything
        monkeypatch.setattr(os, "access", lambda path, how: how != os.W_OK)
    with pytest.raises(PermissionError, match="read-only"):
        cd.save([2], path)
    assert cd.load(path)[1] == OLD[1]


KILLED = """
import os, signal, sys
import coredispatch as cd
sync = os.fsync
def die(number):
    if sys.argv[2] == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    sync(number)
    os.kill(os.getpid(), signal.SIGKILL)
os.fsync = die
if sys.argv[3] == "rec":
    with cd.utils.data.recordio.MXRecordIO(sys.argv[1], "w") as file:
        file.write(bytes(4000))
else:
    cd.save({"x": cd.zeros(1000)}, sys.argv[1], format=sys.argv[3])
"""


@posix
@pytest.mark.parametrize(
    ("moment", "format"),
    [
        ("before", "coredispatch"),
        ("after", "coredispatch"),
        ("before", "torch"),
        ("after", "safetensors"),
        ("before", "rec"),
    ],
)
def test_a_killed_save_leaves_the_earlier_file(tmp_path: Path, moment: str, format: str) -> None:
    path = tmp_path / "model.cd"
    cd.save(OLD, path)
    assert run(KILLED, path, moment, format).returncode == -signal.SIGKILL
    assert cd.load(path)[1] == OLD[1]
    (left,) = [name for name in os.listdir(tmp_path) if name != "model.cd"]
    assert re.fullmatch(r"model\.cd\.coredispatch-[0-9a-f]{8}\.tmp", left)
    cd.save([3], tmp_path / "other.cd")
    assert left in os.listdir(tmp_path)
    cd.save([3], path)
    assert sorted(os.listdir(tmp_path)) == ["model.cd", "other.cd"]
    assert cd.load(path) == [3]


FULL_DISK = """
import resource, signal, sys
import coredispatch as cd
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    if sys.argv[2] == "rec":
        with cd.utils.data.recordio.MXRecordIO(sys.argv[1], "w") as file:
            file.write(bytes(4_000_000))
    else:
        cd.save({"x": cd.zeros(1_000_000)}, sys.argv[1], format=sys.argv[2])
except OSError as error:
    print("refused")
"""


@posix
@pytest.mark.parametrize("format", ["coredispatch", "torch", "safetensors", "rec"])
def test_a_full_disk_leaves_the_earlier_file(tmp_path: Path, format: str) -> None:
    path = tmp_path / "model.cd"
    cd.save(OLD, path)
    done = run(FULL_DISK, path, format)
    assert done.stdout == "refused\n", done.stderr
    assert os.listdir(tmp_path) == ["model.cd"]
    assert cd.load(path)[0].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


@posix
def test_the_file_of_a_save_at_work_is_left_alone(tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "model.cd"
    sync, inner = os.fsync, []

    def interrupted(number: int) -> None:
        monkeypatch.setattr(os, "fsync", sync)
        cd.save(["inner"], path)  # as another process would, while this one is at work
        inner.extend(os.listdir(tmp_path))
        sync(number)

    monkeypatch.setattr(os, "fsync", interrupted)
    cd.save(["outer"], path)
    assert len(inner) == 2
    assert cd.load(path) == ["outer"]
    assert os.listdir(tmp_path) == ["model.cd"]


def test_files_that_only_look_like_leftovers_stay(tmp_path: Path) -> None:
    names = ["model.cd.tmp", "model.cd.coredispatch-1.tmp", "xmodel.cd.coredispatch-00000000.tmp"]
    for name in names:
        (tmp_path / name).write_text("mine")
    (tmp_path / "model.cd.coredispatch-00000000.tmp").mkdir()
    cd.save([1], tmp_path / "model.cd")
    assert len(os.listdir(tmp_path)) == len(names) + 2


def test_a_long_name(tmp_path: Path) -> None:
    path = tmp_path / ("m" * 250)
    cd.save([1], path)
    cd.save([2], path)
    assert cd.load(path) == [2]
    assert os.listdir(tmp_path) == [path.name]


def test_a_directory_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        cd.save([1], tmp_path)
    with pytest.raises(FileNotFoundError):
        cd.save([1], tmp_path / "nowhere" / "model.cd")


@posix
def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = subprocess.Popen(
        [sys.executable, "-c", "import sys; print(len(open(sys.argv[1], 'rb').read()))"]
        + [str(tmp_path / "pipe")],
        stdout=subprocess.PIPE,
        text=True,
    )
    cd.save(cd.zeros(100), tmp_path / "pipe")
    buffer = io.BytesIO()
    cd.save(cd.zeros(100), buffer)
    written = int(reader.communicate()[0])
    assert abs(written - len(buffer.getvalue())) < 200  # a stream repeats sizes after the data


class Forward(io.RawIOBase):
    """A stream that can only be written to, from beginning to end."""

    def __init__(self) -> None:
        self.data = bytearray()

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def write(self, data: Any) -> int:
        self.data += data
        return len(data)


def test_a_stream_is_written_from_beginning_to_end() -> None:
    stream = Forward()
    cd.save([cd.arange(3), "text"], stream)
    tensor, text = cd.load(io.BytesIO(stream.data))
    assert tensor.tolist() == [0, 1, 2]
    assert text == "text"


def test_archives_with_64_bit_sizes(monkeypatch: Any) -> None:
    # What Python writes for more than 2 GiB or 65,535 entries, here for fewer.
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 100)
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 2)
    buffer = io.BytesIO()
    tensors = [cd.full((1000,), float(n)) for n in range(5)]
    with monkeypatch.context() as inside:
        opened = zipfile.ZipFile.open
        inside.setattr(
            zipfile.ZipFile,
            "open",
            lambda self, name, mode="r", force_zip64=False: opened(
                self, name, mode, force_zip64=mode == "w"
            ),
        )
        cd.save(tensors, buffer)
    assert b"PK\x06\x06" in buffer.getvalue()
    for n, found in enumerate(cd.load(io.BytesIO(buffer.getvalue()))):
        assert set(found.tolist()) == {float(n)}
    for at in range(len(buffer.getvalue()) - 98, len(buffer.getvalue())):
        forged = bytearray(buffer.getvalue())
        forged[at] ^= 0x10
        try:  # some bytes of these records mean nothing, such as the version of the writer
            assert len(cd.load(io.BytesIO(forged))) == 5
        except cd.serialization.SerializationError:
            pass


def test_contents_after_a_file_are_damage() -> None:
    buffer = io.BytesIO()
    cd.save([1], buffer)
    assert cd.load(io.BytesIO(buffer.getvalue())) == [1]
    with pytest.raises(cd.serialization.SerializationError, match="cut off or damaged"):
        cd.load(io.BytesIO(buffer.getvalue() + b"more"))
