"""What the verbs share: the user's choices, loading, planning, and where locked files come from."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from graft.apt import DebPin
from graft.console import Console
from graft.durations import UNREADABLE
from graft.errors import BadInput, GraftError
from graft.hashes import file_sha256
from graft.lock import FilePin, Lock, Part, check_fresh, inputs_of, load_lock, write_atomic
from graft.operators import OperatorList, load_operators
from graft.patchset import Patch, PatchSet, check_when, load_patchset
from graft.paths import Paths
from graft.plan import SMOKE_FILES, ImageSources, Plan, image_env, plan
from graft.project import Project, load_project
from graft.recipe import RECIPE_NAME, Recipe, every_recipe, load_recipe, recipe_of, select_arch, smoke_file
from graft.store import Store, Wanted
from graft.unlocked import UnlockedPlan, unlocked_plan
from graft.yamlio import read

if TYPE_CHECKING:
    from graft.apt import Archive
    from graft.index import Locator
    from graft.resolve import Resolved

Mode = Literal["auto", "system", "embedded"]


@dataclass(frozen=True)
class Session:
    """One call of graft: the project and what the user chose."""

    paths: Paths
    project: Project
    console: Console
    recipe: str
    arch: str
    mode: Mode = "auto"
    jobs: int | None = None
    offline: bool = False

    @property
    def store(self) -> Store:
        return Store(self.paths.store)


def open_session(
    paths: Paths,
    console: Console,
    *,
    recipe: str | None = None,
    arch: str | None = None,
    mode: Mode = "auto",
    jobs: int | None = None,
    offline: bool = False,
) -> Session:
    """A session, with build.yaml's defaults for what was not given. Raises BadInput.

    A recipe in a folder of recipes/ can be named with or without the folder.
    """
    project = load_project(paths.build_yaml)
    name = recipe or project.recipe
    folder, slash, inner = name.rpartition("/")
    if slash and RECIPE_NAME.fullmatch(folder) and RECIPE_NAME.fullmatch(inner):
        name = inner if paths.recipe(inner).parent == paths.recipes / folder else name
    return Session(paths, project, console, name, arch or project.arch, mode, jobs, offline)


@dataclass(frozen=True)
class Loaded:
    """One recipe with everything that plans for its architectures are made of."""

    recipe: Recipe
    lock: Lock
    sources: ImageSources
    operators: OperatorList | None = None


def make_plan(session: Session) -> Plan:
    """Load everything and plan. Raises BadInput and LockStale; reads files, asks nobody."""
    paths, project = session.paths, session.project
    recipe = load_recipe(paths, project, session.recipe)
    # Before the lock: that the architecture is none of the recipe's is the nearer mistake.
    select_arch(recipe, project, session.arch, paths.relative(paths.recipe(recipe.recipe)))
    return plan_for(session, load_for(session, recipe), session.arch)


def any_plan(session: Session, recipe: Recipe | None = None) -> Plan | UnlockedPlan:
    """The plan of a recipe with or without a lock. Raises BadInput and LockStale; reads files, asks nobody."""
    recipe = recipe or load_recipe(session.paths, session.project, session.recipe)
    return unlocked_for(session, recipe, session.arch) if recipe.unlocked else make_plan(session)


def unlocked_for(session: Session, recipe: Recipe, name: str, sources: ImageSources | None = None) -> UnlockedPlan:
    """The plan of a recipe without a lock, for one architecture. Raises BadInput.

    sources: the files that make images, where they are known already.
    """
    paths, project = session.paths, session.project
    arch = select_arch(recipe, project, name, paths.relative(paths.recipe(recipe.recipe)))
    _check_smoke(session, recipe)
    if paths.lock(recipe.recipe).exists():
        raise BadInput(
            f"recipe {recipe.recipe} is unlocked and has a lock: which of the two is meant?",
            where=paths.relative(paths.lock(recipe.recipe)),
            cure="remove the lock, or `unlocked: true` from the recipe",
        )
    return unlocked_plan(project, recipe, arch, image_env(project, recipe, arch), sources or image_sources(paths))


def _check_smoke(session: Session, recipe: Recipe) -> None:
    for name in recipe.smoke:
        # Known now, not after the build.
        smoke_file(session.paths.smoke, name, session.paths.relative(session.paths.recipe(recipe.recipe)))


def load_for(session: Session, recipe: Recipe) -> Loaded:
    """What the plans of a recipe share. Raises BadInput and LockStale."""
    where = session.paths.relative(session.paths.recipe(recipe.recipe))
    if recipe.unlocked:
        raise BadInput(
            f"recipe {recipe.recipe} is unlocked: no lock says which files it is made from",
            where=where,
            cure="`graft plan` and `graft render` work without one; pin what floats, then take out `unlocked: true`",
        )
    _check_smoke(session, recipe)
    locked = load_lock(session.paths, recipe.recipe)
    check_fresh(session.paths, locked, lock_inputs(session, recipe, patchsets(session, recipe)))
    recorded = load_operators(session.paths, recipe.recipe, recipe.arches)
    return Loaded(recipe, locked, image_sources(session.paths), recorded)


def plan_for(session: Session, loaded: Loaded, name: str) -> Plan:
    """The plan of one architecture. Raises BadInput."""
    paths, project, recipe = session.paths, session.project, loaded.recipe
    arch = select_arch(recipe, project, name, paths.relative(paths.recipe(recipe.recipe)))
    recorded = loaded.operators.of(arch.name) if loaded.operators is not None else None
    return plan(project, recipe, loaded.lock, arch, image_env(project, recipe, arch), loaded.sources, recorded)


def other_recipes(session: Session, *known: str) -> list[Recipe]:
    """The project's recipes but the known ones. One that is refused is left out: until it loads it gets no image."""
    names, _ = every_recipe(session.paths)
    found: list[Recipe] = []
    for name in names:
        if name not in known:
            with contextlib.suppress(BadInput):
                found.append(recipe_of(read(session.paths.recipe(name)), session.project, name))
    return found


def lock_inputs(session: Session, recipe: Recipe, sets: dict[str, PatchSet]) -> dict[Part, str]:
    """What the lock of a recipe has to be made from, hashed by part."""
    facts = {
        component: {
            patch.id: [hashlib.sha256(patch.data).hexdigest(), patch.record.target, _arches_of(patch, recipe)]
            for patch in found.select(recipe.patches_of(component))
        }
        for component, found in sorted(sets.items())
    }
    return inputs_of(session.project, recipe, facts)


def _arches_of(patch: Patch, recipe: Recipe) -> list[str]:
    """The recipe's architectures that the patch is meant for."""
    return sorted(
        arch for arch in recipe.arches if patch.record.when.arches is None or arch in patch.record.when.arches
    )


def patchsets(session: Session, recipe: Recipe) -> dict[str, PatchSet]:
    """The patch sets of the components that the recipe patches. Raises BadInput for a patch that is not there."""
    sets: dict[str, PatchSet] = {}
    where = session.paths.relative(session.paths.recipe(recipe.recipe))
    for component in dict.fromkeys(ref.partition("/")[0] for ref in recipe.patches):
        sets[component] = load_patchset(session.paths.patches / component)
        chosen = sets[component].select(recipe.patches_of(component), where)
        pinned = recipe.components[component]
        check_when(component, chosen, pinned.version, [arch for arch in recipe.arches if pinned.on(arch)])
    return sets


class Sources:
    """Where this host finds locked files. Nothing is looked up before the first file is asked for."""

    def __init__(self, session: Session, lock_base: tuple[str, ...], snapshot: str | None) -> None:
        self._session = session
        self._pockets = lock_base
        self._snapshot = snapshot

    @functools.cached_property
    def archive(self) -> Archive:
        from graft.apt import Archive

        return Archive(self._session.paths, self._pockets, snapshot=self._snapshot)

    @functools.cached_property
    def locator(self) -> Locator:
        from graft import index, net

        return index.Locator(index.discover(self._session.project.index), net.session())

    def files(self, pins: Iterable[FilePin]) -> list[Wanted]:
        """Files of the package index."""
        return [Wanted(pin, self._from_index(pin)) for pin in pins]

    def debs(self, pins: Iterable[DebPin]) -> list[Wanted]:
        """Files of Debian's archive."""
        return [
            Wanted(pin, functools.partial(self._deb_urls, pin), functools.partial(self._explain, pin)) for pin in pins
        ]

    def _from_index(self, pin: FilePin) -> Callable[[], Sequence[str]]:
        return lambda: [self.locator.locate(pin.name, pin.file, pin.sha256)]

    def _deb_urls(self, pin: DebPin) -> Sequence[str]:
        return self.archive.urls(pin)

    def _explain(self, pin: DebPin) -> GraftError:
        return self.archive.explain_missing(pin)


def sources_of(session: Session, recipe: Recipe) -> Sources:
    """The sources for a recipe's base and packages."""
    bootstrap = session.project.bases[recipe.base].bootstrap
    # An image brings its own Debian packages.
    return Sources(session, bootstrap.pockets, bootstrap.snapshot) if bootstrap else Sources(session, (), None)


def wanted(session: Session, planned: Plan) -> list[Wanted]:
    """Every locked file that the plan's image is made from."""
    sources = sources_of(session, planned.recipe)
    pins: list[FilePin] = [*planned.lock.image_packages(planned.arch.name), *planned.lock.build_packages()]
    pins += [planned.lock.tool("uv"), *(b.source for b in (*planned.sources, *planned.builds) if not b.source.tree)]
    return [*sources.files(pins), *sources.debs(planned.lock.base.packages)]


def component_file(locked: Lock | Resolved, recipe: Recipe, component: str) -> FilePin:
    """The file that a component is made from, in a lock or in what will become one: its source, or its wheel."""
    if component in locked.sources:
        return locked.sources[component]
    name = recipe.components[component].distribution
    return next(pin for pin in locked.packages if pin.name == name and pin.use == "image")


def remember(session: Session, planned: Plan) -> None:
    """Keep the inputs of the last image, for `plan --why`."""
    last_file(session).parent.mkdir(parents=True, exist_ok=True)
    write_atomic(last_file(session), json.dumps(dict(planned.image.inputs), indent=1) + "\n")


def last(session: Session) -> dict[str, str] | None:
    """The inputs of the last image of this recipe and architecture."""
    try:
        data = json.loads(last_file(session).read_text(encoding="utf-8"))
    except UNREADABLE:
        # Only a hint for people: a damaged one is as good as none.
        return None
    return data if isinstance(data, dict) else None


def last_file(session: Session) -> Path:
    return session.paths.state / "last" / f"{session.recipe}-{session.arch}.json"


def image_sources(paths: Paths) -> ImageSources:
    """Hashes of everything under images/ and of the patches' tests."""
    return ImageSources(
        templates=_hashes(paths.images, ["Dockerfile.j2", "stages/*.j2", "macros/*.j2"]),
        scripts=_hashes(paths.scripts, ["*.sh", "*.py"]),
        smoke=_hashes(paths.smoke, list(SMOKE_FILES)),
        patch_tests=_hashes(paths.patches, ["*/tests/*.py"]),
    )


def _hashes(folder: Path, patterns: list[str]) -> Mapping[str, str]:
    files = sorted({path for pattern in patterns for path in folder.glob(pattern)})
    return {str(p.relative_to(folder)): file_sha256(p) for p in files}
