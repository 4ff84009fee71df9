"""Commands on mutated configs and command lines: the shipped YAML and lines of every command, changed word by word."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from types import SimpleNamespace
from unittest import mock

from embexp.cli import commands
from embexp.cli.commands import run
from embexp.config import composition
from embexp.config.folders import find
from embexp.errors import UsageError
from embexp.sweeps import planning, sweep
from embexp.system.parallel import quiet
from tests.fuzz.contents import Files, lines, plain

_END = "\0"
"""Between the arguments of a command line."""
_LONGEST = 20_000
"""Characters of what a command says about a mistake."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_VALUES = (
    "null", "true", "-1", "0", "5", "0.5", "1e999", "-.inf", ".nan", "1e-400", "9" * 19, "9" * 99, "9" * 5000,
    "0x" + "f" * 400,
    "1:30", "1_0", "2024-05-31", "''", '"', "'", "[]", "{}", "[1, 2]", "{a: 1}", "[[[]]]",
    "[" * 40 + "]" * 40, "[" * 3000, "???",
    "${seed}", "${tables}", "${tables.item}", "${..x}", "${", "${oc.env:NOPE}", "${now:%Y}", "${oc.env:HOME}",
    "${nope:1}",
    "${train.steps}${train.steps}", "*a", "&a 5", "!!int x", "!!python/object:os.system x", "!x 5", "|", ">",
    "@", "`", "%", "? a",
    "ü", "東京", "\x1b[31m", "\u202e", "\ufeff", "\x85", "a: b", "- a", "#", "n" * 5000, "/", "..", "~",
    "/dev/zero", "/etc/passwd",
    "os:system", "keras:Model", "builtins:eval", "item", "user", "adam", "none", "file", "mlp", "clicks",
    "config", "=1+1",
)  # fmt: skip
_KEYS = (
    "_target_", "_args_", "_partial_", "defaults", "hydra", "kind", "path", "tables", "features", "<<", "?",
    "null", "1", "true",
    "seed", "optional", "override /optimizer", "/model", "model@model", "${x}", "", " ", "a.b", "item*",
    "{user,item}", "=", "[a]",
)  # fmt: skip
_LINES = (
    "defaults: [config, _self_]", "defaults: [mine]", "defaults: {model: mlp}", "defaults: 5",
    "defaults: [[a]]", "defaults: [5]",
    "defaults: [{model: [mlp, dlrm]}]", "defaults: [{override /model: null}]", "defaults: [{'': x}]",
    "defaults: [_here_]",
    "defaults: [{model: ${model}}]", "defaults: [{a b c: d}]", "defaults: [{optional x: y}, _self_, _self_]",
    "- a", "a", "---", "...",
    "# @package _global_", "# @package a.b", "%YAML 1.2", "<<: *a", "<<: {a: 1}", "hydra: {run: {dir: null}}",
    "hydra: 5",
    "hydra: {searchpath: [pkg://os]}", "hydra: {callbacks: {a: {_target_: os.system}}}",
    "hydra: {job: {env_set: {PATH: x}}}",
    "hydra: {sweeper: {_target_: x.Y}}", "hydra: {mode: MULTIRUN}", "tables: {x*: {dim: 5}}",
    "features: null", "tables: []",
    "base: &base {a: [1, 2]}", "seeds: 10000", "sweep: {exclude: [{seed: 1}]}", "task: ranking", "\tseed: 5",
    "seed: 5\r",
)  # fmt: skip
_WORDS = (
    "-m", "--", "-", "--help", "-h", "--cfg", "job", "all", "hydra", "--resolve", "-p", "tables.item",
    "--scan", "--fresh", "-cd",
    ".", "--config-dir", "--config-name", "--config-path", "pkg://os", "--spec", "spec.json", "--allow-code",
    "os:system", "=", "+",
    "~seed", "++seed=1", "+seed", "seed=", "=5", "seed==5", "seed=1,2", "seed=range(0,3)",
    "seed=range(0,1000000000)", "seed=1",
    "seed=range(1,0.0,0)", "model=glob(*)", "seed=choice(1,2)", "seed=interval(0,1)", "seed=tag(a,1,2)",
    "seed=shuffle(1,2)",
    "hydra.run.dir=x", "hydra.sweep.dir=x", "hydra.launcher.jobs=2", "hydra/launcher=basic",
    "hydra/sweeper=optuna", "hydra=x",
    "hydra.mode=MULTIRUN", "hydra.job.chdir=true", "hydra.verbose=[a]", "hydra/job_logging=default",
    "data.path=.", "freeze=rows",
    "experiment=movielens", "experiment=new_entities", "strategy=tpu", "runtime=session", "pretrained=file",
    "init=memory_map",
    "optimizer@tables.item.optimizer=adam", "+table@tables.x=embedding", "~features.history",
    "study=initialization", "--version",
)  # fmt: skip


_PLACES = {
    "table": "+table@tables.extra",
    "feature": "+feature@features.extra",
    "initializer": "initializer@tables.item.initializer",
    "schedule": "schedule@optimizer.schedule",
}
"""Where a choice of a group is made, if not at the key of that name."""
_RATINGS = ("experiment=ratings", "data.path=rows.csv", "data.label=rating")
_RECOMMENDATION = ("experiment=recommendation", "data.path=rows.csv", "data.timestamp=time")
_TRIPLES = ("experiment=knowledge_graph", "data.path=triples")
_WITH = (
    ("data/(csv|parquet)", ("experiment=ratings", "data.path=rows.csv", "data.label=rating")),
    ("data/jsonl", ("experiment=ratings", "data.path=rows.jsonl", "data.label=rating")),
    ("data/interactions|experiment/recommendation", ("data.path=rows.csv", "data.timestamp=time")),
    ("data/triples.*", _TRIPLES[:1]),
    ("data/triples.*|experiment/(knowledge_graph.*|new_entities)", ("data.path=triples",)),
    ("experiment/ratings", ("data.path=rows.csv", "data.label=rating")),
    ("data/skipgram|(graph|model)/skipgram", ("experiment=skipgram",)),
    ("data/text.*|graph/text|model/text_cnn|vectors/.*", ("experiment=text_classification",)),
    ("graph/ratings|model/biased_dot|model/svd_plus_plus", _RATINGS),
    ("graph/recommendation|loss/(bpr|s.*)|model/(matrix_factorization.*|two_tower)|study/new_items", _RECOMMENDATION),
    ("graph/knowledge_graph|model/(complex.*|distmult|rotate|transe)|study/new_entities", _TRIPLES),
    ("graph/initialization", ("experiment=initialization",)),
    ("feature/.*", ("features.extra.table=item", "features.extra.column=item")),
    ("table/.*", ("features.item.table=extra", "features.history.table=extra", "~tables.item", "model=mlp")),
    ("freeze/rows", ("freeze.rows=[[1,5]]",)),
    ("freeze/pretrained.*", ("pretrained@tables.item.pretrained=sample", "tables.item.dim=1000", "model=mlp")),
    ("pretrained/sample", ("tables.item.dim=1000", "tables.user.dim=1000")),
    (
        "init/.*",
        (
            "pretrained@tables.item.pretrained=sample",
            "freeze@tables.item.freeze=table",
            "tables.item.dim=1000",
            "model=mlp",
        ),
    ),
    ("model/dot", ("~features.history",)),
)
"""What the command line says beside the choice of a file, so that the shipped one can be planned."""
_DATA = {
    "rows.jsonl": '{"user": 1, "item": 2, "rating": 3.5}\n{"user": 2, "item": 3, "rating": 4}\n',
    "rows.csv": "user,item,label,rating,time\n1,2,1,3,4\n1,3,0,5,5\n2,2,1,4,9\n",
    **{f"triples/{split}.txt": "a\tr\tb\nb\tr\tc\n" for split in ("train", "valid", "test")},
}
_MAY_FAIL = {"--spec", "--scan", "--trace", "--time"}
"""Options with which a command reads more than a config, so that exit status 1 is allowed."""


class OddOutcomeError(Exception):
    """An outcome that no config and no command line may lead to."""


def configs() -> list[Files]:
    """The shipped files, each as a user would have one of the same name."""
    shipped = find().shipped
    found = []
    for path in sorted(shipped.rglob("*.yaml")):
        name = path.relative_to(shipped).with_suffix("").as_posix()
        if not name.startswith("hydra/"):
            found.append({name.replace("/", "__"): lines(path.read_text(encoding="utf-8"))})
    return found


def command_lines() -> list[Files]:
    """A line for each command, and some more for those that compose a config."""
    found = [[command, each] for command in commands.COMMANDS for each in ("--help", "nowhere")]
    found += [["checkpoint", each, "nowhere"] for each in ("list", "diff", "graph", "convert", "grow")]
    found += [["vectors", each, "nowhere"] for each in ("info", "convert", "neighbors", "evaluate", "compare")]
    for command in ("plan", "run"):
        found += [
            [command, *words] for words in (["seed=1"], ["-m", "seed=1,2", "model=mlp,dlrm"], ["model=dot", "seed=2"])
        ]
        found += [[command, "optimizer=adam", "optimizer.learning_rate=0.1", "tables.item.dim=8", "train.steps=5"]]
    found += [
        ["run", "--cfg", "job", "-p", "tables.item"],
        ["export", "a", "b", "--as", "npy"],
        ["predict", "a", "--data", "b"],
    ]
    return [{"line": plain(_END.join(each).encode())} for each in found]


def mutated_config(files: Files, others: Sequence[Files], random: Random) -> dict[str, bytes]:
    """A file with some of its lines, keys and values changed: in half of the files to what another file might say."""
    [(name, content)] = files.items()
    text = [part.decode() for part in content.parts]
    if random.random() < 0.5:
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            random.choice(_PLAUSIBLE_WAYS)(text, others, random)
        return {name: "".join(text).encode()}
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 6))):
        random.choice(_CONFIG_WAYS)(text, others, random)
    data = "".join(text).encode("utf-8", "surrogatepass")
    if random.random() < 0.04:
        data = data.decode("utf-8", "replace").encode(random.choice(("utf-16", "utf-8-sig", "utf-32")))
    if random.random() < 0.04:
        at = random.randrange(len(data) + 1)
        data = data[:at] + random.choice((b"\0", b"\xff", b"\x1b", b"\xc3", b"\r", b"\t", b"\xed\xa0\x80")) + data[at:]
    return {name: data}


def mutated_line(files: Files, others: Sequence[Files], random: Random) -> dict[str, bytes]:
    """A command line with some of its words changed, added, or taken from another one."""
    words = files["line"].whole.decode().split(_END)
    if random.random() < 0.4:
        words += [plausible_override(random) for _ in range(random.choice((1, 2, 4)))]
        return {"line": _END.join(words).encode()}
    for _ in range(random.choice((1, 1, 2, 3, 5))):
        at = random.randrange(1, len(words) + 1) if random.random() < 0.97 else 0
        match random.randrange(6):
            case 0:
                words.insert(at, random.choice(_WORDS))
            case 1:
                words.insert(at, f"{random.choice(('', '', '+', '++', '~'))}{_path(random)}={_value(random)}")
            case 2 if len(words) > 1:
                words[at % len(words)] = random.choice((*_WORDS, *_VALUES))
            case 3 if "=" in words[at % len(words)]:
                key = words[at % len(words)].partition("=")[0]
                words[at % len(words)] = f"{key}={_value(random)}"
            case 4:
                words += random.choice(others)["line"].whole.decode().split(_END)[1:]
            case _:
                words.insert(at, words[random.randrange(len(words))])
    return {"line": _END.join(words).replace("\ud800", "").encode("utf-8", "surrogatepass")}


def plan_config(path: Path, random: Random) -> int:
    """Plans an experiment with a file of the user's."""
    folder = path.parent / "own"
    file = folder / f"{path.name.replace('__', '/')}.yaml"
    file.parent.mkdir(parents=True)
    path.rename(file)
    group, _, choice = path.name.replace("__", "/").rpartition("/")
    chosen = [f"{_PLACES.get(group, group)}={choice}"] if group else []
    chosen += [word for pattern, words in _WITH if re.fullmatch(pattern, f"{group}/{choice}") for word in words]
    for name, text in _DATA.items():
        (path.parent / name).parent.mkdir(exist_ok=True)
        (path.parent / name).write_text(text, encoding="utf-8")
    status_of(
        ["plan", *random.choice((*([[]] * 9), ["-m", "seed=1,2"])), "--config-dir", str(folder), *chosen],
        path.parent,
        {0, 2},
    )
    return 0


def settings(random: Random) -> list[str]:
    """Some overrides: of choices and values that configs have, and now and then of anything else."""
    odd = [f"{_path(random)}={_value(random)}"] if random.random() < 0.3 else []
    return [*(plausible_override(random) for _ in range(random.choice((1, 1, 2, 3)))), *odd]


def run_line(path: Path, random: Random) -> int:
    """Runs a command line; nothing is trained."""
    words = path.read_bytes().decode("utf-8", "surrogateescape").split(_END)
    path.unlink()
    composes = words[0] in ("run", "plan") or words[0] not in commands.COMMANDS
    status_of(
        words,
        path.parent,
        {0, 2} if composes and not {"--spec", "--scan", "--trace", "--time"} & {*words} else {0, 1, 2},
    )
    return 0


def status_of(arguments: list[str], folder: Path, allowed: set[int]) -> None:
    """Runs a command in a folder; raises UsageError for exit status 2, and OddOutcomeError for what is not allowed."""
    said = io.StringIO()
    with (
        contextlib.chdir(folder),
        _without_effects(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(said),
    ):
        try:
            status = commands.main(arguments)
        except SystemExit as error:
            raise OddOutcomeError(f"it ended with {error.code}") from error
    text = said.getvalue()
    if status not in allowed or "Traceback" in text:
        raise OddOutcomeError(f"status {status}: {text}")
    if status and (len(text) > _LONGEST or _CONTROL.search(text) or not text.startswith("embexp: ")):
        raise OddOutcomeError(f"{len(text)} characters: {text}")
    if status:
        raise UsageError(text)


@contextlib.contextmanager
def _without_effects() -> Iterator[None]:
    """Within the block nothing is trained, started or fetched; a sweep is only planned."""

    def swept(overrides: Sequence[str], **options: object) -> bool:
        names = ("config_dir", "config_name", "config_path", "permission")
        known: dict[str, object] = {name: options[name] for name in names if name in options}
        make: Callable[..., object] = composition.loader
        planning.plan(make(**known), overrides, quiet)  # type: ignore[arg-type]
        return True

    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    with (
        mock.patch.object(run, "run_with_log", return_value=SimpleNamespace(status="completed")),
        mock.patch.object(sweep, "sweep", swept),
        mock.patch.dict(os.environ, {**nowhere, "EMBEXP_DATA": "data"}),
        _absent("tensorflow"),
    ):
        yield


@contextlib.contextmanager
def _absent(name: str) -> Iterator[None]:
    """Within the block a package can't be imported. Unlike `patch.dict`, this keeps what is imported meanwhile."""
    before = sys.modules.get(name)
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]
        if before is not None:
            sys.modules[name] = before


def _line(text: list[str], others: Sequence[Files], random: Random) -> None:
    text.insert(random.randrange(len(text) + 1), f"{random.choice(_LINES)}\n")


def _remove(text: list[str], others: Sequence[Files], random: Random) -> None:
    if text:
        del text[random.randrange(len(text))]


def _repeat(text: list[str], others: Sequence[Files], random: Random) -> None:
    if text:
        at = random.randrange(len(text))
        text[at:at] = text[at : at + random.choice((1, 2, 5))] * random.choice((1, 1, 2, 50))


def _indent(text: list[str], others: Sequence[Files], random: Random) -> None:
    if text:
        at = random.randrange(len(text))
        text[at] = random.choice(
            (f"  {text[at]}", text[at].lstrip(" "), f" {text[at]}", f"\t{text[at]}", f"- {text[at]}")
        )


def _replace_value(text: list[str], others: Sequence[Files], random: Random) -> None:
    places = [at for at, line in enumerate(text) if ":" in line and not line.lstrip().startswith("#")]
    if places:
        at = random.choice(places)
        text[at] = f"{text[at].partition(':')[0]}: {_value(random)}\n"


def _replace_key(text: list[str], others: Sequence[Files], random: Random) -> None:
    places = [at for at, line in enumerate(text) if ":" in line and not line.lstrip().startswith("#")]
    if places:
        at = random.choice(places)
        key, _, value = text[at].partition(":")
        indent = key[: len(key) - len(key.lstrip())]
        text[at] = f"{indent}{random.choice((*_KEYS, _path(random)))}:{value}"


def _splice(text: list[str], others: Sequence[Files], random: Random) -> None:
    [content] = random.choice(others).values()
    begin = random.randrange(len(content.parts))
    at = random.randrange(len(text) + 1)
    text[at:at] = [part.decode() for part in content.parts[begin : begin + random.choice((1, 3, 20))]]


def _aliases(text: list[str], others: Sequence[Files], random: Random) -> None:
    levels, each = random.choice(((2, 3), (9, 10), (4, 30)))
    text.append("a0: &a0 [x]\n")
    text += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * each)}]\n" for level in range(1, levels)]


def _references(text: list[str], others: Sequence[Files], random: Random) -> None:
    levels, each = random.choice(((2, 3), (9, 10), (30, 2)))
    text.append("b0: x\n")
    text += [f"b{level}: {f'${{b{level - 1}}}' * each}\n" for level in range(1, levels)]


def _plausible_value(text: list[str], others: Sequence[Files], random: Random) -> None:
    """Gives a key a value that it has in another file, or a number near its own."""
    places = [at for at, line in enumerate(text) if _plain_line(line)]
    if not places:
        return
    at = random.choice(places)
    key, _, rest = text[at].partition(":")
    value = rest.partition(" #")[0].strip()
    known = _known_values().get(key.strip(), ())
    if re.fullmatch(r"-?[0-9.]+(e-?[0-9]+)?", value) and random.random() < 0.6:
        number = float(value) * random.choice((0.0, 0.5, 0.9, 2.0, 10.0, -1.0)) + random.choice((0, 0, 1))
        text[at] = f"{key}: {number if '.' in value or 'e' in value else int(number)}\n"
    elif known:
        text[at] = f"{key}: {random.choice(known)}\n"


def _plausible_line(text: list[str], others: Sequence[Files], random: Random) -> None:
    """Adds a line of another file where one of its indent is."""
    [content] = random.choice(others).values()
    line = random.choice(content.parts).decode()
    indent = len(line) - len(line.lstrip())
    places = [at for at, each in enumerate(text) if _plain_line(each) and len(each) - len(each.lstrip()) == indent]
    if places and _plain_line(line):
        text.insert(random.choice(places), line)


def _plain_line(line: str) -> bool:
    """Whether a line gives a key a scalar."""
    key, found, rest = line.partition(":")
    return bool(found and key.strip().isidentifier() and rest.partition(" #")[0].strip())


@functools.cache
def _known_values() -> Mapping[str, Sequence[str]]:
    """The values that the shipped files give each key."""
    found: dict[str, set[str]] = {}
    for files in configs():
        [content] = files.values()
        for line in map(bytes.decode, content.parts):
            if _plain_line(line):
                key, _, rest = line.partition(":")
                found.setdefault(key.strip(), set()).add(rest.partition(" #")[0].strip())
    return {key: sorted(values) for key, values in found.items()}


def plausible_override(random: Random) -> str:
    """An override of a value or of a choice, that some config may have."""
    if random.random() < 0.5:
        group, known = random.choice(sorted(find().choices.items()))
        return f"{_PLACES.get(group, group)}={random.choice(sorted(known))}"
    key = _path(random)
    known = _known_values().get(key.rpartition(".")[2], ())
    return f"{key}={random.choice(known) if known and random.random() < 0.7 else random.randrange(-1, 20)}"


_PLAUSIBLE_WAYS = (*((_plausible_value,) * 4), _plausible_line, _remove)
_CONFIG_WAYS = (
    *((_replace_value,) * 5),
    *((_replace_key,) * 3),
    *((_line,) * 3),
    *((_indent,) * 2),
    _remove,
    _repeat,
    _splice,
    _aliases,
    _references,
)


def _value(random: Random) -> str:
    value = random.choice(_VALUES)
    return random.choice(
        (value, value, f"[{value}]", f"{{a: {value}}}", f"'{value}'", f"{value},{random.choice(_VALUES)}")
    )


def _path(random: Random) -> str:
    """A key that the shipped config has, or nearly."""
    keys = (
        "seed", "name", "task", "train.steps", "train.epochs", "train.batch_size",
        "train.early_stopping.patience", "tables.item.dim",
        "tables.item.initializer.kind", "tables.item.optimizer", "features.item.table",
        "features.history.max_sequence_length",
        "model.top", "model.dropout", "model.kind", "data.users", "data.path", "data.split.kind",
        "data.window", "output.cache",
        "output.compare", "freeze.kind", "freeze.rows", "init.kind", "pretrained.path",
        "optimizer.learning_rate", "seeds", "restore.path",
        "dense_optimizer.learning_rate", "strategy.kind", "sweep.exclude", "sweep.max_jobs",
        "sweep.objective", "checkpoint.save",
        "hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir", "hydra.launcher.jobs", "hydra.verbose",
        "hydra.job.env_set.A",
        "hydra.callbacks.a._target_", "hydra.searchpath", "hydra.output_subdir", "hydra.job.chdir",
        "hydra.nothing", "tables", "hydra",
    )  # fmt: skip
    key = random.choice(keys)
    return (
        key
        if random.random() < 0.85
        else random.choice((f"{key}.x", key[:-1], key.upper(), key.replace(".", "/"), f"{key}@a"))
    )
