"""Runs in a process of its own: import vllm, let its command line read each launch profile, then print serve's help.

`python launching.py COMMAND JOB`: COMMAND is the installed script, JOB a JSON object {"env", "profiles": [{"name",
"model", "args", "env"}]}. What it finds comes as lines `graft {...}` on stdout, among whatever vllm prints; the help
comes last.
Nothing is started: the function that would serve is replaced by one that keeps what was parsed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import io
import json
import os
import runpy
import sys
from collections.abc import Iterator, Mapping
from typing import Any

MARK = "graft "
MODEL = "graft/model"
WHY_CHARACTERS = 600


def main(argv: list[str]) -> None:
    command, job = argv[1], json.loads(argv[2])
    vllm: Any = importlib.import_module("vllm")
    say(version=vllm.__version__, file=vllm.__file__)
    os.environ.update(job["env"])
    for profile in job["profiles"]:
        say(profile=profile["name"], wrong=read(profile))
    sys.argv = [command, "serve", "--help"]
    runpy.run_path(command, run_name="__main__")


def say(**what: object) -> None:
    print(MARK + json.dumps(what), flush=True)


def read(profile: Mapping[str, Any]) -> str | None:
    """Why vLLM refuses a profile; None when its arguments are read and their values are ones it knows."""
    errors = io.StringIO()
    try:
        with environment(profile["env"]), contextlib.redirect_stderr(errors):
            engine = parsed([profile["model"] or MODEL, *profile["args"]])
            check_values(engine)
    except SystemExit as end:
        return f"exit {end.code}: {last_lines(errors.getvalue())}"
    except Exception as problem:
        return last_lines(f"{type(problem).__name__}: {problem}")
    return None


def parsed(words: list[str]) -> Any:
    """What `vllm serve WORDS` makes of its words, up to where it would start: vLLM's engine arguments."""
    cli: Any = importlib.import_module("vllm.entrypoints.cli.main")
    serve: Any = importlib.import_module("vllm.entrypoints.cli.serve").ServeSubcommand
    launcher: Any = importlib.import_module("vllm.entrypoints.launchers.launcher")
    engine: Any = importlib.import_module("vllm.engine.arg_utils").AsyncEngineArgs
    kept: list[Any] = []
    original, sys.argv = serve.cmd, ["vllm", "serve", *words]
    serve.cmd = staticmethod(kept.append)
    try:
        cli.main()
    finally:
        serve.cmd = original
    [args] = kept
    launcher.validate_api_server_args(args)
    return engine.from_cli_args(args)


def check_values(engine: Any) -> None:
    """The values that the parser takes as they are and only a start with a model would refuse. Raises for each."""
    config: Any = importlib.import_module("vllm.config")
    config.AttentionConfig(backend=engine.attention_backend)
    speculative = dict(engine.speculative_config or {})
    known = {field.name for field in dataclasses.fields(config.SpeculativeConfig)}
    unknown = sorted(key for key in speculative if key.replace("-", "_") not in known)
    if unknown:
        raise ValueError(f"--speculative-config has no {', '.join(unknown)}")
    if "method" in speculative:
        methods: Any = importlib.import_module("vllm.config.speculative").SpeculativeMethod
        importlib.import_module("pydantic").TypeAdapter(methods).validate_python(speculative["method"])


@contextlib.contextmanager
def environment(env: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(env)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def last_lines(text: str) -> str:
    return text.strip()[-WHY_CHARACTERS:]


if __name__ == "__main__":
    main(sys.argv)
