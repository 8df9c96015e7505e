"""Where everything lies, from the project's root. Nothing else joins these names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from graft.errors import BadInput


@dataclass(frozen=True)
class Paths:
    """The folders of one Graft project; `state` is the only one written at run time."""

    root: Path

    @property
    def build_yaml(self) -> Path:
        return self.root / "build.yaml"

    @property
    def recipes(self) -> Path:
        return self.root / "recipes"

    @property
    def locks(self) -> Path:
        return self.recipes / "locks"

    @property
    def patches(self) -> Path:
        return self.root / "patches"

    @property
    def images(self) -> Path:
        return self.root / "images"

    @property
    def smoke(self) -> Path:
        return self.images / "smoke"

    @property
    def scripts(self) -> Path:
        return self.images / "scripts"

    @property
    def state(self) -> Path:
        return self.root / ".graft"

    @property
    def store(self) -> Path:
        return self.state / "store"

    @property
    def engine(self) -> Path:
        return self.state / "engine"

    @property
    def contexts(self) -> Path:
        return self.state / "contexts"

    @property
    def receipts(self) -> Path:
        return self.state / "receipts"

    @property
    def logs(self) -> Path:
        return self.state / "logs"

    def recipe(self, name: str) -> Path:
        """recipes/<name>.yaml, or the one in a folder of recipes/; the first where there is none."""
        path = self.recipes / f"{name}.yaml"
        return path if path.is_file() else next(iter(self.recipe_folders(f"{name}.yaml")), path)

    def recipe_folders(self, pattern: str) -> list[Path]:
        """Recipes in folders one level below recipes/, where those of one origin lie together."""
        return sorted(path for path in self.recipes.glob(f"*/{pattern}") if path.parent != self.locks)

    def lock(self, recipe: str) -> Path:
        return self.locks / f"{recipe}.lock.yaml"

    @property
    def tools_lock(self) -> Path:
        """No recipe can have this name."""
        return self.locks / "_tools.lock.yaml"

    def requirements(self, recipe: str) -> Path:
        return self.locks / f"{recipe}.requirements.txt"

    def operators(self, recipe: str) -> Path:
        return self.locks / f"{recipe}.operators.yaml"

    def relative(self, path: Path) -> str:
        """`path` as the user would type it from the root."""
        try:
            return str(path.relative_to(self.root))
        except ValueError:
            return str(path)


def find_root(start: Path) -> Paths:
    """The project that holds `start`: the nearest folder upwards with a build.yaml.

    Raises BadInput when there is none.
    """
    for folder in (start, *start.parents):
        if (folder / "build.yaml").is_file():
            return Paths(folder)
        if (folder / ".git").exists():
            # Another checkout around this one is another project.
            break
    raise BadInput(
        f"no build.yaml in {start} or above it in this checkout",
        cure="run graft inside a project, or name it with --project",
    )
