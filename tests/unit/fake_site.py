"""A small site-packages as an installer leaves it, the facts that belong to it, and reports read back."""

from __future__ import annotations

import base64
import hashlib
import json
import py_compile
from pathlib import Path
from typing import Any

from lib.facts import Budget, Component, Facts, Patch, Profile, Waiver
from lib.report import Report


class Site:
    """site-packages of a made-up image below `root`; `facts()` describes it as it was installed."""

    def __init__(self, root: Path, path: str = "site-packages") -> None:
        self.root = root
        self.path = root / path
        self.path.mkdir(parents=True)
        self.packages: dict[str, str] = {}
        self.components: dict[str, Component] = {}
        self.patches: list[Patch] = []
        self.waivers: list[Waiver] = []
        self.profiles: list[Profile] = []
        self.env: dict[str, str] = {}
        self.budget = Budget(None, {})
        self.debs: dict[str, str] = {}
        self.metadata: dict[str, str] = {}

    def install(self, name: str, version: str, files: dict[str, str]) -> None:
        """Write a distribution with its METADATA and RECORD."""
        info = f"{name.replace('-', '_')}-{version}.dist-info"
        files = {**files, f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"}
        for path, text in files.items():
            self.write(path, text)
        rows = [f"{path},sha256={record_hash(text)},{len(text)}" for path, text in files.items()]
        self.write(f"{info}/RECORD", "\n".join([*rows, f"{info}/RECORD,,"]) + "\n")
        self.packages[name] = version

    def component(self, name: str, distribution: str, version: str, commit: str | None = None) -> None:
        self.components[name] = Component(distribution, version, commit, None, ())

    def waive(self, check: str, file: str, package: str | None = None, arch: str | None = None) -> None:
        self.waivers.append(Waiver(check, file, package, arch, "their maker's fault", "their next release"))

    def write(self, path: str, text: str) -> Path:
        place = self.path / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        return place

    def add_metadata(self) -> None:
        """What the build puts beside the facts: name below /usr/share/graft -> sha256."""
        smoke = self.root / "smoke"
        smoke.mkdir(exist_ok=True)
        (smoke / "metadata.json").write_text(json.dumps(self.metadata))

    def facts(self) -> Facts:
        return Facts(
            root=self.root / "smoke",
            recipe="toy",
            arch="sm90",
            compute_capability="9.0",
            cuda="13.0",
            torch_arch_list="9.0a",
            nvcc_arch="sm_90a",
            python="3.11",
            site_packages=self.path,
            packages=self.packages,
            debs=self.debs,
            components=self.components,
            patches=tuple(self.patches),
            waivers=tuple(self.waivers),
            profiles=tuple(self.profiles),
            env=self.env,
            size_budget=self.budget,
        )


def cache(source: Path, mode: str = "TIMESTAMP") -> Path:
    """Compile a source as Python caches it; mode: of py_compile.PycInvalidationMode."""
    made = py_compile.compile(str(source), doraise=True, invalidation_mode=py_compile.PycInvalidationMode[mode])
    return Path(str(made))


def record_hash(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def checks_of(report: Report) -> list[dict[str, Any]]:
    data: Any = report.as_dict()
    return list(data["checks"])


def failed(report: Report) -> dict[str, str]:
    """The checks that failed: id -> detail."""
    return {check["id"]: check["detail"] for check in checks_of(report) if check["verdict"] == "fail"}


def waived(report: Report) -> list[str]:
    return [check["id"] for check in checks_of(report) if check["verdict"] == "waived"]
