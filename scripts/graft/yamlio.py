"""The one door for YAML: a strict loader that knows where everything stands.

Stricter than YAML: one document, UTF-8, at most 1 MB (what Graft itself wrote: 10), no anchors or aliases, no duplicate
keys, string keys only. Values are validated by a pydantic model; each finding is reported
as `file:line: what` with a suggestion, all of them at once, as BadInput.
"""

from __future__ import annotations

import difflib
import errno
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError

from graft.errors import BadInput

MAX_BYTES = 10_000_000
#: Of a file that people write. 10 MB of YAML take a minute and 1.3 GB to read; no recipe has a tenth of that.
MAX_WRITTEN = 1_000_000
MAX_DEPTH = 32

Loader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
Dumper: type[Any] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

PLAIN_TAGS = frozenset({"tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"})

#: pydantic's kinds of error, and what the user is told instead.
WORDS = {
    "tuple_type": "a list is expected",
    "list_type": "a list is expected",
    "dict_type": "a mapping is expected",
    "model_type": "a mapping is expected",
    "model_attributes_type": "a mapping is expected",
    "string_type": "a text is expected",
}

Position = tuple[str | int, ...]
M = TypeVar("M", bound="Model")


class Model(BaseModel):
    """Base of every YAML model: no unknown keys, no coercion, no NaN or infinity, frozen."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def grammar(pattern: str, what: str, longest: int = 300, *, shown: bool = True) -> AfterValidator:
    """A validator whose refusal says `'value' is not <what>`; shown: False for what may be a secret."""
    compiled = re.compile(pattern)

    def check(value: str) -> str:
        if len(value) > longest:
            raise ValueError(f"longer than {longest} characters")
        if not compiled.fullmatch(value):
            raise ValueError(f"{repr(value[:80]) if shown else 'the value'} is not {what}")
        return value

    return AfterValidator(check)


def sized(pattern: str, example: str) -> tuple[BeforeValidator, AfterValidator]:
    """Validators of a number of bytes with its unit; a bare number is told about the unit, not to be quoted."""

    def check(value: object) -> object:
        is_bare = isinstance(value, (int, float)) and not isinstance(value, bool)
        if is_bare:
            raise ValueError(f"{getattr(value, 'text', value)} has no unit: write it as {example}")
        return value

    return BeforeValidator(check), grammar(pattern, f"a size such as {example}")


class Document:
    """Plain data of one YAML file and the line of every value in it."""

    def __init__(self, path: Path, data: Any, lines: dict[Position, int]) -> None:
        self.path = path
        self.data = data
        self.lines = lines

    def where(self, position: Position = ()) -> str:
        """`file:line` of the value at `position`, or of the nearest thing around it."""
        while position and position not in self.lines:
            position = position[:-1]
        return f"{self.path}:{self.lines.get(position, 1)}"


def load(path: Path, model: type[M]) -> M:
    """The file as a validated, frozen model. Raises BadInput with every finding in it."""
    return validate(read(path), model)


def read(path: Path) -> Document:
    """The file as plain data with positions. Raises BadInput."""
    try:
        # Before it is opened: a pipe that nobody writes to would be waited for without end.
        kind = path.stat().st_mode
        if not stat.S_ISREG(kind):
            what = "a folder" if stat.S_ISDIR(kind) else "no regular file"
            raise BadInput(f"cannot be read: it is {what}", where=str(path), cure="put a file there, or take it away")
        with path.open("rb") as stream:
            raw = stream.read(MAX_WRITTEN + 1)
    except FileNotFoundError as problem:
        raise BadInput("file not found", where=str(path), cure=_similar_file(path)) from problem
    except OSError as problem:
        cure = "point the link to a file" if problem.errno == errno.ELOOP else "check whose it is, and its mode"
        raise BadInput(f"cannot be read: {problem.strerror}", where=str(path), cure=cure) from problem
    return parse(raw, path, MAX_WRITTEN)


def parse(raw: bytes, path: Path, limit: int = MAX_BYTES) -> Document:
    """Bytes of a YAML file as plain data with positions. Raises BadInput."""
    if len(raw) > limit:
        raise BadInput(f"larger than {limit // 1_000_000} MB", where=str(path), cure="split it, or remove data")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as problem:
        line = raw.count(b"\n", 0, problem.start) + 1
        raise BadInput("not UTF-8", where=f"{path}:{line}", cure="save the file as UTF-8") from problem
    try:
        node = _compose(text, path)
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        line = mark.line + 1 if mark is not None else 1
        said = getattr(problem, "problem", None) or str(problem).splitlines()[0]
        raise BadInput(f"not valid YAML: {said}", where=f"{path}:{line}") from problem
    if node is None:
        raise BadInput("the file is empty", where=f"{path}:1")
    lines: dict[Position, int] = {}
    return Document(path, _plain(node, path, (), lines), lines)


def validate(document: Document, model: type[M]) -> M:
    """Plain data as a model. Raises BadInput that lists every finding with its line."""
    if not isinstance(document.data, dict):
        raise BadInput("expected a mapping at the top level", where=document.where())
    try:
        return model.model_validate(document.data)
    except ValidationError as problem:
        findings = [_finding(document, model, error) for error in problem.errors(include_url=False)]
        raise findings_error(findings) from None


def findings_error(findings: list[tuple[str, str]]) -> BadInput:
    """One BadInput for several (where, what) findings."""
    ordered = list(dict.fromkeys(findings))
    where, what = ordered[0]
    rest = "\n".join(f"  {w}: {t}" for w, t in ordered[1:])
    problem = BadInput(f"{what}\nand {len(ordered) - 1} more:\n{rest}" if rest else what, where=where)
    problem.findings = tuple(ordered)
    return problem


def dump(data: Mapping[str, Any], header: str = "") -> str:
    """Plain data as block YAML in the given key order; `header` becomes comment lines."""
    comment = "".join(f"# {line}\n" if line else "#\n" for line in header.splitlines())
    body = yaml.dump(
        data, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=1_000_000, default_flow_style=False
    )
    return comment + str(body)


def _compose(text: str, path: Path) -> yaml.Node | None:
    # Events before nodes: an alias must be refused before anything expands it. Without these signs there is none.
    for event in yaml.parse(text, Loader=Loader) if "&" in text or "*" in text else ():
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            line = event.start_mark.line + 1 if event.start_mark else 1
            raise BadInput("anchors and aliases are not allowed", where=f"{path}:{line}", cure="write the value out")
    loader = Loader(text)
    try:
        node: yaml.Node | None = loader.get_single_node()
        return node
    finally:
        loader.dispose()


def _plain(node: yaml.Node, path: Path, at: Position, lines: dict[Position, int]) -> Any:
    line = node.start_mark.line + 1
    lines[at] = line
    if len(at) > MAX_DEPTH:
        raise BadInput(f"nested deeper than {MAX_DEPTH} levels", where=f"{path}:{line}")
    if not isinstance(node, yaml.ScalarNode) and node.tag not in PLAIN_TAGS:
        raise BadInput(f"YAML type {node.tag!r} is not allowed here", where=f"{path}:{line}", cure="remove the tag")
    if isinstance(node, yaml.MappingNode):
        return _plain_mapping(node, path, at, lines)
    if isinstance(node, yaml.SequenceNode):
        return [_plain(child, path, (*at, i), lines) for i, child in enumerate(node.value)]
    return _scalar(node, f"{path}:{line}")


def _plain_mapping(node: yaml.MappingNode, path: Path, at: Position, lines: dict[Position, int]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for key_node, value_node in node.value:
        where = f"{path}:{key_node.start_mark.line + 1}"
        if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != "tag:yaml.org,2002:str":
            raise BadInput("keys must be plain strings", where=where, cure="quote the key")
        key = str(key_node.value)
        if key in data:
            first = lines[(*at, key)]
            raise BadInput(f"duplicate key {key!r} (first on line {first})", where=where, cure="remove one of the two")
        data[key] = _plain(value_node, path, (*at, key), lines)
        lines[(*at, key)] = key_node.start_mark.line + 1
    return data


class _Written(float):
    """A float that remembers how it was written, for the message."""

    text: str


class _WrittenInt(int):
    """The same for an integer; only where it was not written in plain decimal digits (`0x10`, `1_000`)."""

    text: str


def _scalar(node: yaml.Node, where: str) -> Any:
    tag, text = node.tag.removeprefix("tag:yaml.org,2002:"), str(node.value)
    if tag == "str":
        return text
    if tag == "null":
        return None
    if tag == "bool":
        return text.lower() in {"yes", "true", "on"}
    try:
        if tag == "int":
            whole = _WrittenInt(text.replace("_", ""), 0)
            whole.text = text
            return int(whole) if str(whole) == text else whole
        if tag == "float":
            number = _Written(text.replace("_", ""))
            number.text = text
            return number
    except ValueError:
        raise BadInput(f"{text!r} is a number only to YAML", where=where, cure=f'quote it: "{text}"') from None
    raise BadInput(f"YAML type {tag!r} is not allowed here", where=where, cure=f'quote it: "{text}"')


def _finding(document: Document, model: type[BaseModel], error: Any) -> tuple[str, str]:
    position: Position = tuple(error["loc"])
    where = document.where(position)
    name = ".".join(str(p) for p in position) or "document"
    kind, value = error["type"], error.get("input")
    if kind == "extra_forbidden":
        return where, f"unknown key {name!r}" + _suggestion(document, model, position)
    if kind == "missing":
        return where, f"missing key {name!r}"
    if kind == "string_type" and isinstance(value, (int, float)) and not isinstance(value, bool):
        text = getattr(value, "text", str(value))
        return where, f'{name}: YAML reads {text} as a number; quote it: "{text}"'
    if kind == "string_type" and isinstance(value, bool):
        return where, f"{name}: YAML reads this as true or false; quote it"
    said = _in_words(kind, error.get("ctx") or {})
    if said is not None:
        return where, f"{name}: {said}"
    message = str(error["msg"]).removeprefix("Value error, ")
    return where, f"{name}: {message[:1].lower()}{message[1:]}"


def _in_words(kind: str, about: Mapping[str, Any]) -> str | None:
    """What pydantic says in the words of Python's types or of regular expressions, in a YAML user's; else None."""
    if kind in ("too_short", "too_long"):
        bound = about["min_length"] if kind == "too_short" else about["max_length"]
        return f"{'at least' if kind == 'too_short' else 'at most'} {bound} expected, found {about['actual_length']}"
    if kind == "string_too_short":
        return f"shorter than {about['min_length']} characters"
    if kind == "string_too_long":
        return f"longer than {about['max_length']} characters"
    return WORDS.get(kind)


def _suggestion(document: Document, model: type[BaseModel], position: Position) -> str:
    known = _known_keys(model, position[:-1])
    close = difflib.get_close_matches(str(position[-1]), known, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known keys: {', '.join(sorted(known))}" if known else ""


def _known_keys(model: type[BaseModel], position: Position) -> list[str]:
    current: Any = model
    for step in position:
        current = _descend(current, step)
    fields = getattr(_first_model(current), "model_fields", {})
    return [field.alias or name for name, field in fields.items()]


def _descend(current: Any, step: str | int) -> Any:
    """The annotation one step below `current`: of a model's field, else the same (a dict's value, a list's item)."""
    fields = getattr(current, "model_fields", None)
    if fields is not None:
        by_alias = {field.alias or name: field for name, field in fields.items()}
        return by_alias[str(step)].annotation if str(step) in by_alias else None
    return _first_model(current)


def _first_model(annotation: Any) -> Any:
    if hasattr(annotation, "model_fields"):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        found = _first_model(inner)
        if found is not None:
            return found
    return None


def _similar_file(path: Path) -> str | None:
    if not path.parent.is_dir():
        missing = next(folder for folder in path.parents if folder.parent.is_dir())
        return f"there is no folder {missing.name}/"
    names = [p.name for p in path.parent.iterdir() if p.suffix == path.suffix]
    close = difflib.get_close_matches(path.name, names, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]}?"
    return f"there is: {', '.join(sorted(names))}" if names else None
