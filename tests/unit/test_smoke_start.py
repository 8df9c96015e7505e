"""images/smoke/start.py: green on a vLLM that starts, red for each way in which it does not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import start
from fake_site import Site, checks_of, failed
from lib import imports
from lib.facts import Patch, Profile
from lib.report import Report

ENTRY = """#!{python}
import sys
from vllm.entrypoints.cli.main import main
if __name__ == "__main__":
    sys.exit(main())
"""
#: As much of vLLM as its command line needs, with its names in its places.
VLLM = {
    "vllm/__init__.py": "__version__ = '0.32.0'\nprint('vllm says something on stdout')\n",
    "vllm/entrypoints/__init__.py": "",
    "vllm/entrypoints/cli/__init__.py": "",
    "vllm/entrypoints/cli/main.py": """
import argparse, os

def main():
    import vllm.entrypoints.cli.serve as serve
    if os.environ.get("VLLM_TARGET_DEVICE") != "cpu":
        raise SystemExit("Failed to infer device type")
    parser = argparse.ArgumentParser(prog="vllm")
    commands = parser.add_subparsers(dest="command")
    one = commands.add_parser("serve")
    one.add_argument("model")
    one.add_argument("--dcp-comm-backend", choices=["ag_rs", "a2a"])
    one.add_argument("--attention-backend")
    one.add_argument("--reasoning-parser")
    one.add_argument("--spec-key")
    one.add_argument("--spec-method")
    args = parser.parse_args()
    serve.ServeSubcommand.cmd(args)
""",
    "vllm/entrypoints/cli/serve.py": """
class ServeSubcommand:
    @staticmethod
    def cmd(args):
        raise RuntimeError("it would start")
""",
    "vllm/entrypoints/launchers/__init__.py": "",
    "vllm/entrypoints/launchers/launcher.py": """
import os

def validate_api_server_args(args):
    if args.reasoning_parser not in (None, "glm"):
        raise KeyError(f"invalid reasoning parser: {args.reasoning_parser}")
    if os.environ.get("VLLM_BAD"):
        raise ValueError("VLLM_BAD is set")
""",
    "vllm/engine/__init__.py": "",
    "vllm/engine/arg_utils.py": """
class AsyncEngineArgs:
    def __init__(self, args):
        self.attention_backend = args.attention_backend
        made = {args.spec_key: 1} if args.spec_key else {}
        self.speculative_config = {**made, **({"method": args.spec_method} if args.spec_method else {})} or None

    @classmethod
    def from_cli_args(cls, args):
        return cls(args)
""",
    "vllm/config/__init__.py": """
import dataclasses
from .speculative import SpeculativeConfig

class AttentionConfig:
    def __init__(self, backend):
        if backend not in (None, "FLASHMLA_SPARSE"):
            raise KeyError(backend)
""",
    "vllm/config/speculative.py": """
import dataclasses
from typing import Literal

SpeculativeMethod = Literal["mtp", "ngram"]

@dataclasses.dataclass
class SpeculativeConfig:
    method: str | None = None
    num_speculative_tokens: int | None = None
""",
}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    made = Site(tmp_path)
    made.install("vllm", "0.32.0", VLLM)
    made.component("vllm", "vllm", "0.32.0")
    monkeypatch.setenv("PYTHONPATH", str(made.path))
    monkeypatch.delenv("VLLM_TARGET_DEVICE", raising=False)
    entry(made)
    return made


def entry(site: Site, text: str = ENTRY) -> Path:
    place = site.root / "vllm"
    place.write_text(text.format(python=sys.executable))
    place.chmod(0o755)
    return place


def profile(site: Site, *args: str, **env: str) -> None:
    site.profiles = [Profile("dcp", "zai-org/GLM-5", args, env)]


def runs(site: Site) -> Report:
    report = Report("start")
    start.check_vllm_runs(site.facts(), report, site.root / "vllm")
    return report


def red(site: Site) -> dict[str, str]:
    return failed(runs(site))


def test_vllm_that_starts_is_green(site: Site) -> None:
    profile(site, "--dcp-comm-backend", "ag_rs", "--attention-backend", "FLASHMLA_SPARSE", "--reasoning-parser", "glm")
    report = runs(site)
    assert not failed(report)
    assert [c["id"] for c in checks_of(report)] == ["import vllm", "profile:dcp", "vllm serve --help", "vllm --help"]


@pytest.mark.parametrize(
    ("args", "env", "why"),
    [
        (("--dcp-comm-backend", "nope"), {}, "invalid choice: 'nope'"),
        (("--max-model-len", "1"), {}, "unrecognized arguments: --max-model-len"),
        (("--attention-backend", "NOPE"), {}, "NOPE"),
        (("--reasoning-parser", "nope"), {}, "invalid reasoning parser"),
        (("--spec-key", "tokens"), {}, "--speculative-config has no tokens"),
        (("--spec-method", "nope"), {}, "'mtp' or 'ngram'"),
        ((), {"VLLM_BAD": "1"}, "VLLM_BAD is set"),
    ],
)
def test_a_profile_that_vllm_refuses_is_red(site: Site, args: tuple[str, ...], env: dict[str, str], why: str) -> None:
    profile(site, *args, **env)
    found = red(site)
    assert set(found) == {"profile:dcp"}
    assert why in found["profile:dcp"]


def test_a_profile_that_was_not_read_is_red(site: Site) -> None:
    profile(site)
    site.write("vllm/__init__.py", "__version__ = '0.32.0'\nimport os, atexit\n")
    site.write("vllm/entrypoints/cli/main.py", "import os\n\ndef main():\n    os._exit(0)\n")
    assert {"profile:dcp", "vllm serve --help", "vllm --help"} == set(red(site))


def test_vllm_that_cannot_be_imported_is_red(site: Site) -> None:
    profile(site)
    site.write("vllm/__init__.py", "import a_missing_dependency\n")
    found = red(site)
    assert set(found) == {"import vllm", "profile:dcp", "vllm --help", "vllm serve --help"}
    assert "a_missing_dependency" in found["import vllm"]


def test_vllm_from_elsewhere_is_red(site: Site, tmp_path: Path) -> None:
    site.path = tmp_path / "other"
    assert set(red(site)) == {"import vllm"}


def test_vllm_in_another_version_is_red(site: Site) -> None:
    site.component("vllm", "vllm", "0.33.0")
    assert set(red(site)) == {"import vllm"}


def test_a_command_that_fails_is_red(site: Site) -> None:
    entry(site, "#!{python}\nraise SystemExit('broken entry')\n")
    found = red(site)
    assert set(found) == {"vllm --help", "vllm serve --help"}
    assert all("broken entry" in detail for detail in found.values())


def closure(site: Site) -> dict[str, str]:
    report = Report("start")
    start.check_imports(site.facts(), report, site.root / "vllm", [str(site.path)])
    return failed(report)


def test_imports_that_are_there_are_green(site: Site) -> None:
    assert closure(site) == {}


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("vllm/entrypoints/cli/main.py", "def main():\n    import gone\n"),
        ("vllm/entrypoints/cli/main.py", "import gone.deep\ndef main(): pass\n"),
        ("vllm/entrypoints/cli/serve.py", "from gone import x\n"),
        ("vllm/entrypoints/cli/serve.py", "from .gone import x\n"),
        ("vllm/entrypoints/cli/serve.py", "from vllm.config.gone import x\n"),
        ("vllm/entrypoints/cli/serve.py", "try:\n    import gone\nfinally:\n    pass\n"),
        ("vllm/entrypoints/cli/serve.py", "try:\n    import gone\nexcept KeyError:\n    pass\n"),
        ("vllm/entrypoints/cli/serve.py", "class A:\n    import gone\n"),
        ("vllm/entrypoints/cli/__init__.py", "with open('/dev/null'):\n    import gone\n"),
    ],
)
def test_an_import_that_surely_runs_and_is_not_there_is_red(site: Site, file: str, text: str) -> None:
    site.write(file, text)
    found = closure(site)
    assert f"{file}:" in found["imports"]
    assert "gone" in found["imports"]


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    import gone\nexcept ImportError:\n    gone = None\n",
        "try:\n    import gone\nexcept (KeyError, ModuleNotFoundError):\n    gone = None\n",
        "try:\n    import gone\nexcept:\n    pass\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import gone\n",
        "def f():\n    import gone\n",
        "import contextlib\nwith contextlib.suppress(ImportError):\n    import gone\n",
        "from vllm.config import not_a_module\n",
        "from os import *\nimport sys, os.path\n",
    ],
)
def test_an_import_that_may_fail_is_green(site: Site, text: str) -> None:
    site.write("vllm/entrypoints/cli/serve.py", text)
    assert closure(site) == {}


def test_modules_of_others_have_to_be_there_and_are_not_followed(site: Site) -> None:
    site.write("vllm/entrypoints/cli/serve.py", "import other.part\nfrom spaced import inner\n")
    assert "other.part" in closure(site)["imports"]
    site.write("other/__init__.py", "import gone\n")
    site.write("other/part.py", "import gone\n")
    site.write("spaced/inner/module.py", "")
    assert closure(site) == {}


def test_patched_modules_are_followed_too(site: Site) -> None:
    site.write("vllm/models/glm.py", "import gone\n")
    assert closure(site) == {}
    site.patches.append(
        Patch("vllm", "fix", "test_fix.py", {"vllm/models/glm.py": "0" * 64, "vllm/data.json": "0" * 64})
    )
    assert "vllm/models/glm.py:1 imports gone" in closure(site)["imports"]


def test_without_a_command_there_is_nothing_to_follow(site: Site) -> None:
    (site.root / "vllm").unlink()
    assert set(closure(site)) == {"imports"}


def test_a_module_of_a_namespace_package_is_found(tmp_path: Path) -> None:
    (tmp_path / "space/inner").mkdir(parents=True)
    (tmp_path / "space/inner/module.py").touch()
    finder = imports.Finder([str(tmp_path)])
    assert finder.is_there("space.inner.module")
    assert not finder.is_there("space.inner.gone")
    assert finder.is_there("os.path")
