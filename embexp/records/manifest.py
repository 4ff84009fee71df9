"""`manifest.json`: the command, code, versions and machine that made a run; secrets are masked. And the `run_id`.

Two runs that must give the same bits on one machine, with the same versions, have the same `run_id`.

The git repositories that a run's code comes from: commit, and what differs from it.

A repository may come from anybody, inside a folder that the user was given, and git runs programs that the config of a
repository names: filters of content, hooks, monitors, helpers. So git only finds the repository itself, which starts no
program. Everything else it does with a git directory of our own, which has nothing but a copy of the index and the
commit, and looks into the repository's objects.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any

from embexp.errors import EmbexpError
from embexp.records.folder import OF_SWEEPS, RunFolder
from embexp.specs import tasks
from embexp.specs.run import RunSpec
from embexp.specs.strategies import Strategy
from embexp.specs.transforms import as_project
from embexp.system import digests, machine
from embexp.system import environment as variables
from embexp.system.printable import masked, masked_override
from embexp.system.user_code import UserCode

_LONGEST_DIFF = 1_000_000
_MOST_UNTRACKED = 100
_MOST_FILTERED = 200
_MOST_NAMED = 10
_SECONDS = 10.0
_KEPT = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_CEILING_DIRECTORIES")
"""Variables for git that the user may have set; others would lead it elsewhere."""
_ENVIRONMENT = {
    "GIT_OPTIONAL_LOCKS": "0",  # another git of the user may be at work
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "none",  # nothing is fetched, as from the remote of a partial clone
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_PAGER": "cat",
    "LC_ALL": "C",
}
_ONLY_READ = ("-c", "core.fsmonitor=false", "-c", "core.quotePath=false", "-c", "safe.bareRepository=explicit")
_OF_FILES = (
    *("core.filemode", "core.symlinks", "core.ignorecase", "core.precomposeunicode", "core.autocrlf", "core.eol"),
    *("core.checkstat", "core.trustctime"),
)
"""Settings that say how files in the work tree are compared; none names a program or a file."""
_OF_USER = ("core.excludesfile", "core.attributesfile")
"""Settings that name files: taken from the user's own config, not from that of a repository."""
_IN_RUNS = ("manifest.json", "metrics.jsonl", "summary.json", "vocabularies", "checkpoints", "code", ".hydra")
"""What a run's folder has beside spec.json."""
_NONE: Mapping[str, str] = MappingProxyType({})
DECIDES_NOTHING = ("output", "checkpoint", "tracking", "name", "sweep", "seeds", "expect", "resolvers", "environment")
"""Settings at the top of a spec that change no result."""
_OF_A_MACHINE = (
    *("address", "zone", "project", "timeout_seconds", "initialization_seconds"),
    *("intra_op_threads", "inter_op_threads", "pieces", "onednn", "reproducible"),
    *("addresses", "start_seconds", "silence_seconds", "restarts"),
    *("max_ids_per_table", "max_unique_ids_per_table", "max_ids_per_chip_per_sample"),
)
"""Settings of a strategy that change no result: how a TPU or workers are found, threads, and room for ids.

Pieces and kernels do change last bits, as sums of float32 depend on their order. But it is those really used that
count.
"""


_LATER = {
    "clipnorm": None,
    "weight_decay_per": "touch",
    "weight_decay_scale": 1.0,
    "dtype": "float32",
    "slot_dtype": "float32",
    "stochastic_rounding": True,
}
"""Settings of tables and optimizers that came later, with the value that is what was done before: it changes no id."""


def collect(
    spec: Mapping[str, Any],
    identity: Identity,
    *,
    code: UserCode | None,
    devices: Sequence[str],
    tensorflow: Mapping[str, Any],
    examples: str | None = None,
) -> dict[str, Any]:
    """Everything worth knowing when a run is to be made again.

    Args:
        spec: of the run, as JSON: what it was when the run began.
        code: the user's own, if the run uses some.
        examples: digest of the files that hold the examples, where others are joined to them.
    """
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": list(map(masked_override, sys.argv)),
        "working_folder": os.getcwd(),
        "run_id": identity.run_id,
        "seed": spec["seed"],
        "spec": dict(spec),
        "data": {"digest": identity.files["data"]} | ({} if examples is None else {"examples_digest": examples}),
        "files": {path: digest for path, digest in identity.files.items() if path != "data"},
        "user_code": None
        if code is None
        else {
            "functions": list(code.functions),
            "digest": code.digest,
            "files": {file.name: {"path": str(file.path), "digest": file.digest} for file in code.files.values()},
        },
        "fields": [] if code is None else list(code.fields),
        "python": platform.python_version(),
        "packages": packages(),
        "tensorflow": dict(tensorflow),
        "threads": dict(identity.threads),
        "kernels": {"pieces": identity.pieces, "onednn": identity.onednn, **identity.flags},
        "devices": list(devices),
        "machine": _machine(),
        "environment": environment(),
        "code": _repositories(code),
    }


def packages() -> dict[str, str]:
    """Versions of all installed packages."""
    return dict(_packages(tuple(sys.path)))


@functools.lru_cache(maxsize=1)
def _packages(path: tuple[str, ...]) -> Mapping[str, str]:
    """Versions of the packages on a path. Read once in a process: it reads a file for each of them."""
    found: dict[str, str] = {}
    for distribution in metadata.distributions(path=list(path)):
        texts = map(distribution.read_text, ("METADATA", "PKG-INFO", ""))
        head = next(filter(None, texts), "").partition("\n\n")[0]  # an e-mail parser takes seven times as long
        name, version = (re.search(rf"^{key}:[ \t]*(.*?)[ \t\r]*$", head, re.M) for key in ("Name", "Version"))
        if name and name[1] and name[1] not in found:  # of two of one name, Python imports the first
            found[name[1]] = version[1] if version else ""
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def environment() -> dict[str, str]:
    """The environment variables that are known to matter; what is secret in one is masked."""
    known = {name: text for name, text in sorted(os.environ.items()) if variables.is_recorded(name)}
    return {name: masked(text, name) for name, text in known.items()}


def _machine() -> dict[str, Any]:
    processor = machine.processor()
    return {
        "system": platform.platform(),
        "cpu": processor.model,
        "cpu_features": sorted(processor.features),
        "cores": machine.cores(),
        "memory_bytes": machine.memory_bytes(),
    }


def _repositories(code: UserCode | None) -> dict[str, Any]:
    """The repositories of embexp, if it runs from a checkout, of the working folder, and of the user's code."""
    package = Path(__file__).resolve().parents[1]
    folders = {"embexp": package} if is_tracked(package / "errors.py") else {}
    folders["working_folder"] = Path.cwd()
    if code is not None and code.files:
        folders["model"] = next(iter(code.files.values())).path.parent
    return {"embexp": None} | states(folders)


@dataclass(frozen=True)
class Repository:
    """A repository that git has found, and the user owns or has called safe.

    Attributes:
        directory: with its index.
        format: of its objects' names.
        commit: of HEAD; None: there is none yet.
        settings: from its config, such as `core.autocrlf=true`.
        is_own: whether its directory is that of this work tree, not one that a file `.git` from elsewhere names.
    """

    root: Path
    directory: Path
    common: Path
    format: str
    commit: str | None
    settings: tuple[str, ...]
    is_own: bool


def states(folders: Mapping[str, Path]) -> dict[str, Any]:
    """The states of the repositories that folders lie in, by name; null for a folder that is in none.

    The state of one that an earlier name has, too, is only `{"root": …, "same_as": …}`. A repository inside a run's
    folder is none.
    """
    found: dict[str, Any] = {}
    names: dict[Path, str] = {}
    for name, folder in folders.items():
        repository = _found(folder)
        if repository is None:
            found[name] = None
        elif repository.root in names:
            found[name] = {"root": str(repository.root), "same_as": names[repository.root]}
        else:
            names[repository.root] = name
            found[name] = _state(repository)
    return found


def is_tracked(file: Path) -> bool:
    """Whether a file is under version control; a package that is installed into a folder of a repository is not."""
    repository = _found(file.parent)
    if repository is None:
        return False
    with contextlib.suppress(OSError), _opened(repository) as git:
        path = os.path.relpath(os.path.realpath(file), os.path.realpath(repository.root))
        return git.text("ls-files", "--error-unmatch", "--", path)[0] is not None
    return False


def _found(folder: Path) -> Repository | None:
    """The repository that a folder lies in; None: there is none, or it is inside a run, or its files are elsewhere."""
    above = _with_git(folder)
    if above is None or any(map(_is_of_a_run, (above, *above.parents))):
        return None
    git = _Git(
        ("-C", str(folder)), {key: text for key, text in os.environ.items() if key in _KEPT or key[:4] != "GIT_"}
    )
    words = ("--show-toplevel", "--absolute-git-dir", "--path-format=absolute", "--git-common-dir")
    lines = (git.text("rev-parse", *words, "--show-object-format")[0] or "").splitlines()
    if len(lines) != 4 or os.path.realpath(lines[0]) != os.path.realpath(above):
        return None  # such as files of the user's that `core.worktree` names
    commit = git.text("rev-parse", "--verify", "--quiet", "HEAD")[0]
    root, directory, common = map(Path, lines[:3])
    settings, work_tree = _settings(git)
    own = above / ".git"
    pointers = [own if own.is_dir() and not own.is_symlink() else None, _linked(directory)]
    is_own = own in pointers or (work_tree is not None and (directory / work_tree).resolve() == above)
    return Repository(root, directory, common, lines[3], commit.strip() if commit else None, settings, is_own)


def _with_git(folder: Path) -> Path | None:
    """The nearest folder from here upwards that has a `.git`."""
    place = Path(os.path.realpath(folder))
    return next((parent for parent in (place, *place.parents) if os.path.lexists(parent / ".git")), None)


def _is_of_a_run(folder: Path) -> bool:
    """Whether a folder is that of a run or a sweep, which somebody else may have made."""
    run = (folder / "spec.json").exists() and any((folder / name).exists() for name in _IN_RUNS)
    return run or any((folder / name).exists() for name in OF_SWEEPS)


def _linked(directory: Path) -> Path | None:
    """The file `.git` of a linked work tree, as the directory has it."""
    try:
        return Path((directory / "gitdir").read_text(encoding="utf-8").strip()).resolve()
    except (OSError, ValueError):
        return None


def _settings(git: _Git) -> tuple[tuple[str, ...], str | None]:
    """The settings that say how files are compared, and `core.worktree`, which a submodule has."""
    listed = (git.text("config", "--list", "--includes", "--show-scope", "-z")[0] or "").split("\0")
    found: dict[str, str] = {}
    work_tree = None
    for scope, entry in zip(listed[::2], listed[1::2], strict=False):
        key, equals, value = entry.partition("\n")
        if key in _OF_FILES:
            found[key] = value if equals else "true"
        elif key in _OF_USER and scope in ("system", "global"):
            found[key] = os.path.expanduser(value)
        elif key == "core.worktree":
            work_tree = value
    return tuple(f"{key}={value}" for key, value in found.items()), work_tree


@contextlib.contextmanager
def _opened(repository: Repository) -> Iterator[_Git]:
    """Git with a directory of our own for a repository: without its config, hooks and remotes, and without the user's.

    Nothing in the repository is written, not even its index.
    """
    with tempfile.TemporaryDirectory(prefix="embexp-git-") as made:
        own = Path(made)
        for name in ("refs", "objects", "info"):
            (own / name).mkdir()
        sha256 = "\n[extensions]\nobjectFormat = sha256" if repository.format == "sha256" else ""
        (own / "config").write_text(f"[core]\nrepositoryFormatVersion = {1 if sha256 else 0}{sha256}\n")
        (own / "HEAD").write_text(f"{repository.commit or 'ref: refs/heads/none'}\n")
        copied = [repository.directory / "index", *repository.directory.glob("sharedindex.*")]
        for file in copied:
            if file.is_file():
                shutil.copy2(file, own / file.name)  # its time decides which files git reads
        for name in ("exclude", "attributes"):
            if (file := repository.common / "info" / name).is_file():
                shutil.copy2(file, own / "info" / name)
        variables = {key: text for key, text in os.environ.items() if key[:4] != "GIT_"}
        variables |= {
            "HOME": made,
            "XDG_CONFIG_HOME": made,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_DIR": made,
            "GIT_WORK_TREE": str(repository.root),
            "GIT_OBJECT_DIRECTORY": str(repository.common / "objects"),
        }
        settings = [word for setting in repository.settings for word in ("-c", setting)]
        yield _Git(("-C", str(repository.root), *settings), variables)


def _state(repository: Repository) -> dict[str, Any]:
    """Commit, difference to it, and the names of untracked files and folders."""
    state: dict[str, Any] = {
        "root": str(repository.root),
        "commit": repository.commit,
        "diff": None,
        "untracked": None,
    }
    if not repository.is_own:
        state["diff_note"] = f"not compared because {repository.directory} is not the directory of this work tree"
        return state
    try:
        with _opened(repository) as git:
            if repository.commit is not None:
                state["diff"], note = _difference(git)
                if note:
                    state["diff_note"] = note
            untracked = _untracked(git)
    except OSError as error:
        state["diff_note"] = f"not compared because its index can't be copied: {error}"
        return state
    if untracked is not None:
        state["untracked"] = untracked[:_MOST_UNTRACKED]
        if len(untracked) > _MOST_UNTRACKED:
            state["untracked_note"] = f"{_MOST_UNTRACKED} of {len(untracked)} are listed"
    return state


def _untracked(git: _Git) -> list[str] | None:
    names, _ = git.text("ls-files", "--others", "--exclude-standard", "--directory", "--no-empty-directory", "-z")
    return None if names is None else [_readable(name) for name in names.split("\0") if name]


def _difference(git: _Git) -> tuple[str | None, str]:
    """The difference to the commit, and a note where that is not all: files with a filter, as git-lfs has one."""
    diff = ("diff", "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty", "--submodule=short", "--no-color")
    names, problem = git.text(*diff, "--name-only", "--no-renames", "-z", "HEAD")
    if names is None:
        return None, problem or "git can't compare the files"
    if not names:
        return "", ""
    filtered = _filtered(git, names)
    if len(filtered) > _MOST_FILTERED:
        return None, f"{_filter_note(filtered)}; these are too many to leave out"
    left_out = [f":(top,exclude,literal){name}" for name in filtered]
    text, cut = git.text(*diff, "HEAD", "--", ":(top)", *left_out)
    if text is None:
        return None, cut or "git can't compare the files"
    return masked(text), "; ".join(filter(None, (cut, _filter_note(filtered))))


def _filtered(git: _Git, names: str) -> dict[str, str]:
    """The files for which attributes name a filter, and its name."""
    answer, _ = git.text("check-attr", "--stdin", "-z", "filter", given=names)
    words = (answer or "").split("\0")
    found = zip(words[::3], words[2::3], strict=False)
    return {name: each for name, each in found if each not in ("unspecified", "unset", "set")}


def _readable(name: str) -> str:
    """A name that can be recorded, even if it is not UTF-8."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _filter_note(filtered: Mapping[str, str]) -> str:
    if not filtered:
        return ""
    names = list(map(_readable, filtered))
    listed = f"{', '.join(names[:_MOST_NAMED])}{', …' if len(names) > _MOST_NAMED else ''}"
    filters = ", ".join(sorted(set(filtered.values())))
    return f"not compared because git filters are never run ({filters}): {listed}"


@dataclass(frozen=True)
class _Git:
    """git with some options and an environment."""

    options: Sequence[str]
    environment: Mapping[str, str]

    def text(self, *words: str, given: str | None = None) -> tuple[str | None, str]:
        """What git prints, None if it fails or takes too long; and a note where that is not all.

        It asks for nothing, and locks nothing. A longer output is cut.
        """
        with contextlib.ExitStack() as stack:
            source: Any = subprocess.DEVNULL
            if given is not None:
                source = stack.enter_context(tempfile.TemporaryFile())
                source.write(given.encode("utf-8", "surrogateescape"))
                source.seek(0)
            try:
                process = subprocess.Popen(
                    ["git", "--no-pager", *_ONLY_READ, *self.options, *words],
                    stdin=source,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env={**self.environment, **_ENVIRONMENT},
                )
            except OSError:
                return None, ""
            content, late = _output(process)
        if late:
            return None, f"git took longer than {_SECONDS:g} s"
        cut = len(content) > _LONGEST_DIFF
        text = content[:_LONGEST_DIFF].decode("utf-8", "surrogateescape" if given or "-z" in words else "replace")
        if cut:
            return text, f"cut after {_LONGEST_DIFF:,} bytes"
        return (text, "") if process.returncode == 0 else (None, "")


def _output(process: subprocess.Popen[bytes]) -> tuple[bytes, bool]:
    """What a process prints, at most one byte more than is kept, and whether it was ended for taking too long."""
    late = threading.Event()

    def stop() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(_SECONDS, stop)
    timer.daemon = True
    timer.start()
    with process:
        try:
            assert process.stdout is not None
            content = process.stdout.read(_LONGEST_DIFF + 1)
            if len(content) > _LONGEST_DIFF:
                process.kill()
            process.wait()
        finally:
            timer.cancel()
    return content, late.is_set()


@dataclass(frozen=True)
class Identity:
    """What decides the bits of a run, but for the machine and the versions of packages.

    Attributes:
        content: digest of the spec and of the content of all files, see `content_id`.
        code: digest of the user's own code; None: the run uses none.
        threads: TensorFlow's numbers of threads, `intra_op` and `inter_op`, which change no bit.
        pieces: into how many operations are cut, see `machine.pieces`.
        onednn: whether TensorFlow uses oneDNN.
        flags: environment variables that change kernels, those that are set.
        files: digests of data, pretrained files and a restored checkpoint, by config path; of files that freeze
            policies name, by path.
    """

    content: str
    code: str | None
    threads: Mapping[str, int]
    pieces: int
    onednn: bool
    flags: Mapping[str, str]
    files: Mapping[str, str]

    @property
    def run_id(self) -> str:
        """Digest of all of it."""
        parts = [self.content, self.code, self.pieces, self.onednn, dict(self.flags)]
        return digests.of_json(parts)

    @property
    def continued(self) -> str:
        """Digest of what may not change when a run is resumed, as it may be on another machine."""
        return self.content if self.code is None else digests.of_json([self.content, self.code])


def decides_nothing(setting: str) -> bool:
    """Whether a setting or a choice, such as `output.plots` or `strategy.intra_op_threads`, changes no result."""
    group, _, package = setting.partition("@")
    top, _, rest = (package or group).partition(".")
    return (
        top in DECIDES_NOTHING
        or top.partition("/")[0] == "hydra"
        or (top == "strategy" and rest in _OF_A_MACHINE)
        or setting.endswith("freeze.random")
    )


def identity(strategy: Strategy, content: str, code: str | None, files: Mapping[str, str]) -> Identity:
    """The identity of a run that this process will do.

    Args:
        content: see `content_id`.
        code: digest of the user's own code; None: the run uses none.
        files: digests of all files that the run reads, by config path, or by path where freeze policies name them.
    """
    threads = machine.kernel_threads(strategy.intra_op_threads, strategy.inter_op_threads)
    pieces, onednn = machine.pieces(strategy.wanted_pieces), machine.onednn(strategy.kernels["onednn"])
    return Identity(content, code, threads, pieces, onednn, machine.kernel_flags(portable=strategy.portable), files)


def content_id(
    spec: RunSpec,
    data_digest: str,
    pretrained_digests: Mapping[str, str] = _NONE,
    freeze_digests: Mapping[str, str] = _NONE,
    restored_digest: str | None = None,
) -> str:
    """Digest of a spec, with paths replaced by digests of their content, without settings that change no result.

    Args:
        data_digest: of the data's content.
        pretrained_digests: of the content of pretrained files, by the config path of their setting, such as
            `tables.item.pretrained`; a file that no table takes rows from has none. Of what the run takes over from its
            parent under `parent`.
        freeze_digests: of the content of files that freeze policies and vocabularies name, by path.
        restored_digest: of the checkpoint that variables are restored from.
    """
    without: dict[str, Any] = {**dict.fromkeys(DECIDES_NOTHING, True), "strategy": set(_OF_A_MACHINE)}
    content: dict[str, Any] = spec.model_dump(mode="json", exclude=without)
    if isinstance(numeric := content["data"].get("dense_features"), dict):
        content["data"]["dense_features"] = list(numeric.items())  # the model gets the columns in this order
    for name in tasks.settings_of_others(spec.task):
        content.pop(name, None)
    content["restore"]["path"] = restored_digest
    if "parent" in content:
        content["parent"]["path"] = pretrained_digests.get("parent")
    content["data"].pop("fetch", None)  # how the files came here
    if "path" in content["data"]:
        content["data"]["path"] = data_digest
    sources = {"pretrained": content["pretrained"]}
    sources |= {f"tables.{name}.pretrained": table["pretrained"] for name, table in content["tables"].items()}
    for place, setting in sources.items():
        if setting is not None and "path" in setting:
            setting["path"] = pretrained_digests.get(place)
            for of_the_digest in ("tokens_file", "missing_neighbours"):
                setting.pop(of_the_digest, None)
            for other in setting.get("others", ()):  # with the digest of the first
                other |= {"path": None, "tokens_file": None}
            steps = setting.pop("transform", [])
            if (known := as_project(steps)) is not None:  # as ids had it before there were transforms
                setting |= {} if setting["kind"] == "checkpoint" else {"project": known}
            else:
                setting["transform"] = [
                    {key: value for key, value in step.items() if value is not False} for step in steps
                ]
    tables = content["tables"].values()
    for vocabulary in (table["vocabulary"] for table in tables):
        if "path" in vocabulary:
            vocabulary["path"] = freeze_digests.get(vocabulary["path"])
    for settings in (content["optimizer"], *tables, *(table["optimizer"] for table in tables)):
        for name, value in _LATER.items():
            if settings is not None and name in settings and settings[name] == value:
                del settings[name]
    for freeze in (content["freeze"], *(table["freeze"] for table in content["tables"].values())):
        _replace_files(freeze, freeze_digests)
        if freeze is not None:
            freeze.pop("random", None)  # whether a run may be started says nothing of its bits
    return digests.of_json(content)


def _replace_files(freeze: Any, digest_of: Mapping[str, str]) -> None:
    """Puts digests in the place of paths, in a policy and in the rules of a schedule."""
    if isinstance(freeze, list):
        for each in freeze:
            _replace_files(each, digest_of)
    elif isinstance(freeze, dict):
        for key, value in freeze.items():
            if key in ("tokens_file", "mask_file") and value is not None:
                freeze[key] = digest_of.get(value)
            else:
                _replace_files(value, digest_of)


@dataclass(frozen=True)
class Kernels:
    """What decides the last bits of what TensorFlow computes, beside the values.

    Attributes:
        onednn: whether the run used oneDNN's kernels, whichever this machine prefers; None: it is not known.
        pieces: into how many its operations were cut, see `machine.pieces`; None: it is not known.
        portable: whether they were those of every processor with AVX2, see `machine.portable_flags`.
    """

    onednn: bool | None = None
    pieces: int | None = None
    portable: bool = False

    @staticmethod
    def of_manifest(manifest: Mapping[str, Any], *, portable: bool) -> Kernels:
        """Those that a manifest records; what it lacks, or has of another type, is not known."""
        recorded = manifest.get("kernels")
        recorded = recorded if isinstance(recorded, dict) else {}
        onednn, pieces = recorded.get("onednn"), recorded.get("pieces")
        return Kernels(
            onednn if isinstance(onednn, bool) else None,
            pieces if type(pieces) is int and 0 < pieces <= machine.MOST_PIECES else None,
            portable,
        )

    @staticmethod
    def of_run(folder: RunFolder) -> Kernels:
        """Those of a run, by its spec and its manifest.

        Raises:
            NotARunError: the folder holds no run.
            DataError: its spec or its manifest can't be read.
        """
        strategy = folder.recorded_spec().strategy
        manifest = folder.read_manifest() if folder.manifest.exists() else {}
        found = Kernels.of_manifest(manifest, portable=strategy.portable)
        if found.pieces is not None or not strategy.wanted_pieces:
            return found
        return Kernels(found.onednn, strategy.wanted_pieces, found.portable)

    def load_tensorflow(self) -> None:
        """Loads TensorFlow with these kernels; where it is loaded already, nothing changes."""
        variables.load_tensorflow(onednn=self.onednn, portable=self.portable)

    def repeat_pieces(self) -> None:
        """Has the runs of this process cut their operations so, unless their config says how; see `machine.pieces`."""
        if self.pieces is not None:
            os.environ[machine.PIECES] = str(self.pieces)


def choose_kernels(folder: RunFolder) -> None:
    """Before a command prints or writes anything: has libraries take the kernels of a run; see `choose_kernels`.

    A folder that holds no run is left to what reads it next.
    """
    try:
        portable = folder.recorded_spec().strategy.portable
    except EmbexpError:
        return
    variables.choose_kernels(portable=portable)
