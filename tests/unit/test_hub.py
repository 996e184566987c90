"""``cd.hub``: weights and models from URLs, files and directories."""

from __future__ import annotations

import functools
import hashlib
import http.server
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest

import coredispatch as cd


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    folder = tmp_path / "there"
    folder.mkdir()
    path = folder / "net.pth"
    cd.save({"w": cd.arange(3.0)}, path, format="torch")
    named = folder / f"net-{hashlib.sha256(path.read_bytes()).hexdigest()[:8]}.pth"
    path.rename(named)
    return named


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("COREDISPATCH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("coredispatch.hub._folder", None)


def test_weights_from_a_file(weights: Path, tmp_path: Path, capsys: Any) -> None:
    found = cd.hub.load_state_dict_from_url(weights.as_uri(), check_hash=True)
    assert found["w"].tolist() == [0, 1, 2] and "Downloading" in capsys.readouterr().out
    kept = tmp_path / "home" / "hub" / "checkpoints" / weights.name
    assert kept.read_bytes() == weights.read_bytes()
    weights.unlink()  # it is not asked for again
    assert cd.utils.model_zoo.load_url(weights.as_uri())["w"].tolist() == [0, 1, 2]
    assert cd.hub.HASH_REGEX.search(weights.name).group(1) == weights.stem[-8:]


def test_weights_over_http(weights: Path, tmp_path: Path) -> None:
    handler = functools.partial(Silent, directory=str(weights.parent))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/{weights.name}"
        found = cd.hub.load_state_dict_from_url(url, str(tmp_path / "m"), file_name="x.pth")
        assert found["w"].tolist() == [0, 1, 2] and (tmp_path / "m" / "x.pth").exists()
        with pytest.raises(OSError, match="404"):
            cd.hub.download_url_to_file(url + "x", str(tmp_path / "none"))
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert not (tmp_path / "none").exists()


class Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None: ...


def test_a_wrong_hash_leaves_the_earlier_file(weights: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"before")
    with pytest.raises(RuntimeError, match="invalid hash value"):
        cd.hub.download_url_to_file(weights.as_uri(), str(target), "0000", progress=False)
    assert target.read_bytes() == b"before"
    assert [p.name for p in tmp_path.iterdir() if "tmp" in p.suffix] == []


def test_one_file_in_an_archive(weights: Path, tmp_path: Path) -> None:
    packed = tmp_path / "packed.pth"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.write(weights, "inside.pth")
    assert cd.hub.load_state_dict_from_url(packed.as_uri())["w"].tolist() == [0, 1, 2]


def test_where_downloads_are_kept(tmp_path: Path, monkeypatch: Any) -> None:
    assert cd.hub.get_dir() == str(tmp_path / "home" / "hub")
    monkeypatch.delenv("COREDISPATCH_HOME")
    monkeypatch.setenv("TORCH_HOME", "/a/torch")
    assert cd.hub.get_dir() == "/a/torch/hub"
    monkeypatch.delenv("TORCH_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", "/a/cache")
    assert cd.hub.get_dir() == "/a/cache/coredispatch/hub"
    cd.hub.set_dir(tmp_path)
    assert cd.hub.get_dir() == str(tmp_path)


HUBCONF = '''
dependencies = ["json"]
from helper import width
from coredispatch import nn

def small(width=width, pretrained=False):
    """A small model."""
    return nn.Linear(width, 1)

def _hidden():
    pass
'''


def test_a_model_from_a_directory(tmp_path: Path) -> None:
    (tmp_path / "hubconf.py").write_text(HUBCONF)
    (tmp_path / "helper.py").write_text("width = 3")
    assert cd.hub.load(str(tmp_path), "small", source="local").in_features == 3
    assert cd.hub.load(str(tmp_path), "small", 5, source="local").in_features == 5
    assert "small" in cd.hub.list(str(tmp_path), source="local")
    assert "_hidden" not in cd.hub.list(str(tmp_path), source="local")
    assert cd.hub.help(str(tmp_path), "small", source="local") == "A small model."
    with pytest.raises(RuntimeError, match="Cannot find callable large in hubconf"):
        cd.hub.load(str(tmp_path), "large", source="local")
    with pytest.raises(ValueError, match="Unknown source"):
        cd.hub.load(str(tmp_path), "small", source="elsewhere")
    (tmp_path / "hubconf.py").write_text("dependencies = ['not_there_at_all']\ndef f(): pass")
    with pytest.raises(RuntimeError, match="Missing dependencies: not_there_at_all"):
        cd.hub.load(str(tmp_path), "f", source="local")


def test_a_repository_that_is_there_already(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "hub" / "someone_models_v1"
    folder.mkdir(parents=True)
    (folder / "hubconf.py").write_text("def three(): return 3")
    assert cd.hub.load("someone/models:v1", "three", verbose=False) == 3
    with pytest.raises(ValueError, match="owner/name"):
        cd.hub.load("someone", "three")
