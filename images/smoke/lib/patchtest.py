"""Run one patch test file: `python patchtest.py FILE`.

Every `test_*` function of the file runs once, in the order it is written. The last line on stdout is
{"tests": [{"name", "verdict": "pass" | "fail" | "error" | "skip", "detail"}]}: an AssertionError in a test is a
failure, unittest's or pytest's skip is a skip, anything else an error, and so is a file that cannot be loaded or holds
no test.
Exit 0 when all passed, 1 otherwise.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import sys
import traceback
import unittest
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

DETAIL_CHARACTERS = 4000


def main(argv: list[str]) -> int:
    if len(argv) != 2:
        print("usage: patchtest.py FILE", file=sys.stderr)
        return 2
    # Whatever the code under test prints must not end up in front of, or behind, the result.
    with contextlib.redirect_stdout(sys.stderr):
        results = run_file(Path(argv[1]))
    print(json.dumps({"tests": results}), flush=True)
    return 0 if all(r["verdict"] == "pass" for r in results) else 1


def run_file(path: Path) -> list[dict[str, str]]:
    """The result of each test of a file, or of loading it when that fails."""
    try:
        module = load(path)
    except BaseException as error:
        # An assertion outside of any test says nothing about the patch.
        return [outcome(path.name, error, failure="error")]
    tests = tests_of(module)
    if not tests:
        return [{"name": path.name, "verdict": "error", "detail": "the file holds no test_* function"}]
    return [run_one(name, test) for name, test in tests]


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"not a Python file: {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def tests_of(module: ModuleType) -> list[tuple[str, Callable[[], None]]]:
    own = [
        (name, value)
        for name, value in vars(module).items()
        if name.startswith("test_") and callable(value) and getattr(value, "__module__", None) == module.__name__
    ]
    return sorted(own, key=lambda pair: pair[1].__code__.co_firstlineno)


def run_one(name: str, test: Callable[[], None]) -> dict[str, str]:
    try:
        test()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return outcome(name, error)
    return {"name": name, "verdict": "pass", "detail": ""}


def outcome(name: str, error: BaseException, failure: str = "fail") -> dict[str, str]:
    """How an exception is reported; the end of the traceback is kept, because the cause stands there.

    failure: the verdict of an AssertionError.
    """
    verdict = "skip" if is_skip(error) else failure if isinstance(error, AssertionError) else "error"
    text = "".join(traceback.format_exception(error))
    return {"name": name, "verdict": verdict, "detail": text[-DETAIL_CHARACTERS:]}


def is_skip(error: BaseException) -> bool:
    """unittest's SkipTest, or pytest's exception, which is known by its name: the image holds no pytest."""
    return isinstance(error, unittest.SkipTest) or any(kind.__name__ == "Skipped" for kind in type(error).__mro__)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
