"""Models and weights from elsewhere, public as ``cd.hub``: files, URLs, and repositories with a
``hubconf.py``.

What is downloaded goes through Python's ``urllib`` and is kept in :func:`get_dir`. Weights are
loaded by :func:`coredispatch.load`, which runs none of a file's code. A ``hubconf.py`` is a
program: loading from a repository runs it.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlparse
from urllib.request import Request, urlopen

__all__ = [
    "HASH_REGEX",
    "download_url_to_file",
    "get_dir",
    "help",
    "list",
    "load",
    "load_state_dict_from_url",
    "set_dir",
]

#: where a file's name has the beginning of its SHA-256: ``resnet18-bfd8deac.pth``
HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")

MODULE_HUBCONF = "hubconf.py"
_CHUNK = 128 * 1024
_TRUSTED_OWNERS = ("pytorch", "facebookresearch", "facebookincubator", "fairinternal")
_ARCHIVES = "https://github.com/{}/{}/zipball/{}"
_folder: str | None = None


# -- where files are kept --------------------------------------------------------------------------


def get_dir() -> str:
    """The directory that downloads are kept in.

    It is what :func:`set_dir` said; else ``hub`` below ``$COREDISPATCH_HOME``, ``$TORCH_HOME``,
    ``$XDG_CACHE_HOME/coredispatch`` or ``~/.cache/coredispatch``, whichever is there first.
    """
    return _folder if _folder is not None else os.path.join(_get_torch_home(), "hub")


def _get_torch_home() -> str:
    """The directory above :func:`get_dir`, unless :func:`set_dir` said another."""
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    home = (
        os.environ.get("COREDISPATCH_HOME")
        or os.environ.get("TORCH_HOME")
        or os.path.join(cache, "coredispatch")
    )
    return os.path.expanduser(home)


def set_dir(d: str | os.PathLike[str]) -> None:
    """Keep downloads in another directory."""
    global _folder
    _folder = os.path.expanduser(os.fspath(d))


# -- files -----------------------------------------------------------------------------------------


class _Progress:
    """How much was read, on standard error where that is a terminal."""

    def __init__(self, total: int | None, shown: bool) -> None:
        self.done, self.total = 0, total
        self.shown = shown and sys.stderr.isatty()

    def add(self, count: int) -> None:
        self.done += count
        if self.shown:
            part = f"{100 * self.done // self.total}%" if self.total else f"{self.done} bytes"
            sys.stderr.write(f"\r{part}")

    def end(self) -> None:
        if self.shown:
            sys.stderr.write("\n")


class tqdm:
    """A count of steps on standard error, with the interface that programs use of ``tqdm``'s.

    Args:
        iterable: what is iterated over, if anything.
        total: how many steps there are.
        disable: whether nothing is shown.
    """

    def __init__(
        self, iterable: Any = None, *args: Any, total: int | None = None, **options: Any
    ) -> None:
        self.iterable = iterable
        self.total = len(iterable) if total is None and hasattr(iterable, "__len__") else total
        self._progress = _Progress(self.total, not options.get("disable"))

    @property
    def n(self) -> int:
        """How many steps are done."""
        return self._progress.done

    def update(self, n: int = 1) -> None:
        """Count ``n`` steps."""
        self._progress.add(n)

    def set_description(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: the count stands alone."""

    set_postfix = set_description

    def close(self) -> None:
        """End the line."""
        self._progress.end()

    def __iter__(self) -> Iterator[Any]:
        for item in self.iterable:
            yield item
            self.update()
        self.close()

    def __enter__(self) -> tqdm:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()


def download_url_to_file(
    url: str, dst: str, hash_prefix: str | None = None, progress: bool = True
) -> None:
    """Read a URL (http, https, file, ftp) into a file.

    Args:
        url: what to read.
        dst: the file. It is replaced when all has arrived, and not otherwise.
        hash_prefix: what the SHA-256 of the contents must begin with.
        progress: show how much was read.

    Raises:
        RuntimeError: the contents have another hash.
        urllib.error.URLError: the URL cannot be read.
    """
    from coredispatch.frontend.serialization.atomic import open_for_writing

    digest = hashlib.sha256()
    request = Request(url, headers={"User-Agent": "coredispatch.hub"})
    with urlopen(request) as source, open_for_writing(os.path.expanduser(dst)) as file:
        length = source.headers.get("Content-Length")
        expected = int(length) if length and length.isdigit() else None
        shown = _Progress(expected, progress)
        while piece := source.read(_CHUNK):
            file.write(piece)
            digest.update(piece)
            shown.add(len(piece))
        shown.end()
        if expected is not None and shown.done < expected:
            raise RuntimeError(f"{url} ended after {shown.done} of {expected} bytes")
        found = digest.hexdigest()
        if hash_prefix is not None and not found.startswith(hash_prefix):
            raise RuntimeError(f'invalid hash value (expected "{hash_prefix}", got "{found}")')


def load_state_dict_from_url(
    url: str,
    model_dir: str | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool | None = None,
) -> Any:
    """What a saved file at a URL holds; the file is downloaded once.

    Args:
        url: of the file. A ``file:`` URL is copied like any other.
        model_dir: where it is kept, ``checkpoints`` in :func:`get_dir` by default.
        map_location: see :func:`coredispatch.load`.
        progress: show how much was read.
        check_hash: the name of the file has the beginning of its SHA-256, see :data:`HASH_REGEX`.
        file_name: another name to keep it under.
        weights_only: see :func:`coredispatch.load`; None is the safe default.
    """
    from coredispatch.frontend.serialization import load as load_file

    folder = os.path.join(get_dir(), "checkpoints") if model_dir is None else model_dir
    os.makedirs(folder, exist_ok=True)
    name = os.path.basename(urlparse(url).path) if file_name is None else file_name
    kept = os.path.join(folder, name)
    if not os.path.exists(kept):
        sys.stdout.write(f'Downloading: "{url}" to {kept}\n')
        match = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, kept, match.group(1) if match else None, progress)
    packed = _packed_file(kept)
    if packed is None:
        return load_file(kept, map_location, weights_only=weights_only)
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(kept) as archive:
        inside = os.path.join(folder, "file")
        with archive.open(packed) as source, open(inside, "wb") as target:
            shutil.copyfileobj(source, target)
        return load_file(inside, map_location, weights_only=weights_only)


def _packed_file(path: str) -> str | None:
    """The one file in a zip archive that is no saved file itself, as some are offered."""
    if not zipfile.is_zipfile(path):
        return None
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    if "format.json" in names or any(name.endswith("data.pkl") for name in names):
        return None
    if len(names) != 1:
        raise RuntimeError("Only one file(not dir) is allowed in the zipfile")
    return names[0]


# -- repositories ----------------------------------------------------------------------------------


def load(
    repo_or_dir: str,
    model: str,
    *args: Any,
    source: str = "github",
    trust_repo: bool | str | None = "check",
    force_reload: bool = False,
    verbose: bool = True,
    skip_validation: bool = False,
    **kwargs: Any,
) -> Any:
    """What an entry of a repository's ``hubconf.py`` returns. Runs that program.

    Args:
        repo_or_dir: ``owner/name`` or ``owner/name:ref`` on GitHub, or a directory.
        model: the name of the entry, which is called with the remaining arguments.
        source: ``"github"``, or ``"local"`` for a directory.
        trust_repo: True, or ``"check"`` to be asked about an owner that is not known yet.
        force_reload: download again.
        verbose: say where a copy was found.
        skip_validation: accepted; whether a ref belongs to a fork is not looked up.

    Raises:
        RuntimeError: there is no such entry, or a dependency is missing.
    """
    folder = _repository(repo_or_dir, source, force_reload, trust_repo, verbose)
    with _hubconf(folder) as module:
        return _entry(module, model)(*args, **kwargs)


def list(
    github: str,
    force_reload: bool = False,
    skip_validation: bool = False,
    trust_repo: bool | str | None = "check",
    verbose: bool = True,
    *,
    source: str = "github",
) -> Any:
    """The names of the entries of a repository's ``hubconf.py``. Runs that program."""
    with _hubconf(_repository(github, source, force_reload, trust_repo, verbose)) as module:
        return [n for n, f in vars(module).items() if callable(f) and not n.startswith("_")]


def help(
    github: str,
    model: str,
    force_reload: bool = False,
    skip_validation: bool = False,
    trust_repo: bool | str | None = "check",
    *,
    source: str = "github",
) -> str | None:
    """The docstring of an entry of a repository's ``hubconf.py``. Runs that program."""
    with _hubconf(_repository(github, source, force_reload, trust_repo, True)) as module:
        found: str | None = _entry(module, model).__doc__
        return found


@contextlib.contextmanager
def _hubconf(folder: str) -> Iterator[ModuleType]:
    path = os.path.join(folder, MODULE_HUBCONF)
    spec = importlib.util.spec_from_file_location("hubconf", path)
    if spec is None or spec.loader is None or not os.path.exists(path):
        raise FileNotFoundError(f"there is no {MODULE_HUBCONF} in {folder!r}")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)


def _entry(module: ModuleType, name: str) -> Any:
    if not isinstance(name, str):
        raise ValueError("Invalid input: model should be a string of function name")
    needed = getattr(module, "dependencies", None) or []
    missing = [package for package in needed if importlib.util.find_spec(package) is None]
    if missing:
        raise RuntimeError(f"Missing dependencies: {', '.join(missing)}")
    found = getattr(module, name, None)
    if not callable(found):
        raise RuntimeError(f"Cannot find callable {name} in hubconf")
    return found


def _repository(
    name: str, source: str, force_reload: bool, trust: bool | str | None, verbose: bool
) -> str:
    """The directory of a repository."""
    if source.lower() not in ("github", "local"):
        raise ValueError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    if source.lower() == "local":
        return os.path.expanduser(name)
    owner, repository, ref = _parsed(name)
    folder = get_dir()
    os.makedirs(folder, exist_ok=True)
    kept = os.path.join(folder, "_".join([owner, repository, ref.replace("/", "_")]))
    _need_trust(owner, repository, os.path.exists(kept), trust)
    if os.path.exists(kept) and not force_reload:
        if verbose:
            sys.stderr.write(f"Using cache found in {kept}\n")
        return kept
    url = _ARCHIVES.format(owner, repository, ref)
    archive = f"{kept}.zip"
    sys.stdout.write(f'Downloading: "{url}" to {archive}\n')
    try:
        download_url_to_file(url, archive, progress=False)
        _unpack(archive, kept)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(archive)
    return kept


def _parsed(name: str) -> tuple[str, str, str]:
    path, _, ref = name.partition(":")
    parts = path.split("/")
    if len(parts) != 2 or not all(parts) or any(part.startswith(".") for part in parts):
        raise ValueError(f"{name!r} is not owner/name or owner/name:ref")
    if ref:
        return parts[0], parts[1], ref
    try:
        urlopen(Request(f"https://github.com/{path}/tree/main/", method="HEAD")).close()
        return parts[0], parts[1], "main"
    except HTTPError as error:
        if error.code != 404:
            raise
        return parts[0], parts[1], "master"


def _need_trust(owner: str, name: str, there: bool, trust: bool | str | None) -> None:
    known = Path(get_dir(), "trusted_list")
    lines = known.read_text().splitlines() if known.exists() else []
    whole = f"{owner}_{name}"
    trusted = whole in lines or there or owner in _TRUSTED_OWNERS
    if trust is False or (trust in ("check", None) and not trusted):
        answer = input(
            f"The repository {whole} does not belong to the list of trusted repositories and as "
            "such cannot be downloaded. Do you trust this repository and wish to add it to the "
            "trusted list of repositories (y/N)?"
        )
        if answer.lower() not in ("y", "yes"):
            raise RuntimeError("Untrusted repository.")
    if not trusted:
        with open(known, "a") as file:
            file.write(f"{whole}\n")


def _unpack(archive: str, target: str) -> None:
    """Put the one directory of an archive in place of `target`."""
    with tempfile.TemporaryDirectory(dir=os.path.dirname(target)) as folder:
        with zipfile.ZipFile(archive) as packed:
            for name in packed.namelist():
                parts = re.split(r"[/\\]", name)
                if os.path.isabs(name) or ".." in parts or ":" in parts[0]:
                    raise RuntimeError(f"the archive has a file outside its directory: {name!r}")
            packed.extractall(folder)
        (inside,) = os.listdir(folder)
        shutil.rmtree(target, ignore_errors=True)
        shutil.move(os.path.join(folder, inside), target)
