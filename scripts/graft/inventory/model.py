"""One form for what recipes, locks and images hold. What one of them cannot know is None, never empty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Kind = Literal["recipe", "lock", "image"]
#: What the sizes of packages mean: bytes of files to download, or of files in the image.
SizeKind = Literal["download", "installed"]


@dataclass(frozen=True)
class Component:
    """One upstream project. distribution: what is installed of it; source: wheel, sdist, git, ..."""

    version: str
    commit: str | None
    source: str
    distribution: str

    def __str__(self) -> str:
        return f"{self.version} ({self.commit})" if self.commit else self.version


@dataclass(frozen=True)
class Package:
    """A Python or Debian package; size in bytes, None where nobody knows it."""

    version: str
    size: int | None = None


@dataclass(frozen=True)
class Layer:
    """One layer: digest of its uncompressed tar, bytes of its files, and the step that made it."""

    digest: str
    size: int
    step: str


@dataclass(frozen=True)
class Inventory:
    """What one recipe, lock or image holds.

    facts:     name -> value: recipe, arch, CUDA, key, lock, ...
    patches:   component/id -> sha256 (hex), or a state where there is no hash.
    gpu:       file -> architectures of its code, as nvcc spells them.
    operators: library -> what it registers.
    compressed: whether the sizes of layers are those of what is downloaded.
    """

    name: str
    kind: Kind
    facts: Mapping[str, str]
    size_kind: SizeKind
    components: Mapping[str, Component] | None = None
    patches: Mapping[str, str] | None = None
    python: Mapping[str, Package] | None = None
    debian: Mapping[str, Package] | None = None
    env: Mapping[str, str] | None = None
    entrypoint: Sequence[str] | None = None
    gpu: Mapping[str, Sequence[str]] | None = None
    operators: Mapping[str, Sequence[str]] | None = None
    layers: Sequence[Layer] | None = None
    compressed: bool = False
    notes: Sequence[str] = field(default=())

    def as_dict(self) -> dict[str, Any]:
        """The inventory as `--json` prints it."""
        return asdict(self)

    @property
    def size(self) -> int | None:
        """Bytes of all layers; without layers, of all packages whose size is known."""
        if self.layers is not None:
            return sum(layer.size for layer in self.layers)
        known = [p.size for group in (self.python, self.debian) for p in (group or {}).values() if p.size is not None]
        return sum(known) if known else None

    def component_sizes(self) -> dict[str, int]:
        """Component -> bytes of its distribution, for those that are known."""
        found = {}
        for name, component in (self.components or {}).items():
            package = (self.python or {}).get(component.distribution)
            if package is not None and package.size is not None:
                found[name] = package.size
        return found
