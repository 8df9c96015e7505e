"""`make lint`: everything that can be known without network, engine or GPU, of every recipe, all at once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from graft.commands.session import Loaded, Session, image_sources, lock_inputs, other_recipes, plan_for, unlocked_for
from graft.errors import BadInput, GraftError
from graft.linting import RULES, Finding, ProjectFacts, RecipeFacts, Wheels, judge_project, judge_recipe
from graft.linting.facts import listed
from graft.lock import Lock, check_fresh, load_lock
from graft.operators import OperatorList, load_operators
from graft.patching import Malformed, check_safety, parse
from graft.patchset import PatchSet, check_when, load_patchset
from graft.paths import Paths
from graft.plan import ImageSources
from graft.recipe import OPERATORS_TEST, Recipe, every_recipe, recipe_of, recipe_path_checked
from graft.render import render
from graft.report import comment
from graft.sarif import Result, Rule, document
from graft.toolslock import load_tools
from graft.yamlio import Document, findings_error, read

#: Files below images/ that make images, as text.
TEXTS = ("*.j2", "*.sh", "*.py")


@dataclass(frozen=True)
class Linted:
    """findings: all of them, waived ones too. images: the tags that plan and render."""

    recipes: int
    images: tuple[str, ...]
    findings: tuple[Finding, ...]

    def count(self, level: str) -> int:
        """Findings of a level that nobody waived."""
        return sum(1 for f in self.findings if f.level == level and f.waived is None)

    def as_dict(self) -> dict[str, Any]:
        """What --json prints."""
        counts = {level: self.count(level) for level in ("error", "warning", "note")}
        return {"images": list(self.images), "counts": counts, "findings": [asdict(f) for f in self.findings]}


def lint(
    session: Session,
    recipes: Sequence[str] = (),
    *,
    sarif: bool = False,
    report: str = "table",
    online: bool = False,
) -> None:
    """Print every finding, then raise BadInput when one of them is an error.

    recipes: all of the project's when none is named. Raises BadInput at once for a name that is none.
    sarif, report: what stdout gets, instead of one line with the counts.
    online: git hosts are asked, too, what the names beside commits are today.
    """
    if sarif and report != "table":
        raise BadInput("one of the two", where="--sarif, --report", cure="leave one out")
    for name in recipes:
        recipe_path_checked(session.paths, name)
        if not session.paths.recipe(name).is_file():
            read(session.paths.recipe(name))
    linted = lint_project(session, recipes, online=online)
    for finding in linted.findings:
        if finding.waived is None:
            session.console.say(_line(finding))
    line = _summary(linted)
    if sarif:
        found = as_sarif(linted.findings)
        session.console.result(json.dumps(found, indent=1), found)
    else:
        session.console.result(_comment(linted) if report == "md" else line, linted.as_dict())
    if linted.count("error"):
        raise BadInput(
            f"lint found {_counted(linted.count('error'), 'error')}", cure="docs/rules.md explains each rule"
        )


def lint_project(session: Session, recipes: Sequence[str] = (), *, online: bool = False) -> Linted:
    """Every finding about these recipes (all when none is named) and about what they share."""
    gather = _Gather(session)
    findings: list[Finding] = []
    images: list[str] = []
    used: set[str] | None = set()
    every, doubles = every_recipe(session.paths)
    loaded: list[Recipe] = []
    names = list(recipes) or every
    for name in names:
        facts, tags = gather.recipe(name)
        if online and facts.recipe is not None:
            # Only then: a git client and what belongs to it.
            from graft.commands.online import remote_refs

            facts = replace(facts, remote=remote_refs(session, facts.recipe))
        findings += judge_recipe(facts)
        images += tags
        loaded += [facts.recipe] if facts.recipe is not None else []
        if used is not None:
            # A recipe that cannot be read may list any patch.
            used = used | {str(ref) for ref in listed(facts.raw.get("patches"))} if facts.data is not None else None
    if recipes:
        doubles = [problem for name in recipes for problem in every_recipe(session.paths, name)[1]]
        # What they share with the others is theirs too.
        loaded += other_recipes(session, *recipes)
    around = replace(
        gather.around,
        recipes=tuple(loaded),
        linted=frozenset(recipes) if recipes else None,
        doubles=tuple(doubles),
        used=frozenset(used) if used is not None and not recipes else None,
    )
    return Linted(len(names), tuple(images), (*judge_project(around), *findings))


def check_new(session: Session, made: Document, recipe: Recipe, lock: Lock) -> None:
    """Hold a recipe and a lock that are not written yet to the rules. Raises BadInput with all errors."""
    gather = _Gather(session)
    facts, _ = gather.planned(RecipeFacts(gather.around, recipe.recipe, made, recipe), recipe, lock)
    errors = [f for f in judge_recipe(facts) if f.level == "error" and f.waived is None]
    if errors:
        problem = findings_error([(f"{f.file}:{f.line}", f"{f.message} [{f.rule}]") for f in errors])
        problem.cure = "\n".join(dict.fromkeys(f.cure for f in errors))
        raise problem


def as_sarif(findings: Iterable[Finding]) -> dict[str, Any]:
    """SARIF 2.1.0 with all rules, so that a reader sees what was looked for; waived findings are suppressed ones."""
    rules = [Rule(rule.id, rule.what, rule.why, rule.cure) for rule in RULES.values()]
    results = [
        Result(f.rule, f.level, f"{f.message}. {f.cure}" if f.cure else f.message, f.file, f.line, f.waived)
        for f in findings
    ]
    return document(rules, results)


def _comment(linted: Linted) -> str:
    """What nobody waived, the errors first, as Markdown."""
    open_ones = [finding for finding in linted.findings if finding.waived is None]
    open_ones.sort(key=lambda finding: ("error", "warning", "note").index(finding.level))
    rows = [(f.level, f"{f.file}:{f.line}", f.message, f.cure, f.rule) for f in open_ones]
    return comment("Lint", ("level", "where", "what", "what to do", "rule"), rows, [_summary(linted)])


def _line(finding: Finding) -> str:
    text = f"{finding.file}:{finding.line}: {finding.level}: {finding.message} [{finding.rule}]"
    return f"{text}\n  what to do: {finding.cure}" if finding.cure else text


def _summary(linted: Linted) -> str:
    waived = sum(1 for finding in linted.findings if finding.waived is not None)
    counts = [_counted(linted.count(level), level) for level in ("error", "warning", "note")]
    more = f", {waived} waived" if waived else ""
    return f"{len(linted.images)} images plan and render; {', '.join(counts)}{more}"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


class _Gather:
    """Reads the project into facts: what recipes share once, and what is refused as an error that is kept."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._wheels = Wheels(session.store, session.paths.state / "lint")
        self._sources: ImageSources = image_sources(session.paths)
        series, refused = _series(session.paths)
        build = read(session.paths.build_yaml)
        self.around = ProjectFacts(
            session.paths,
            session.project,
            build,
            _texts(session.paths),
            series,
            tuple(refused),
            _tools_refused(session),
        )

    def recipe(self, name: str) -> tuple[RecipeFacts, list[str]]:
        """The facts of one recipe, and the tags of its images that plan and render."""
        facts = RecipeFacts(self.around, name)
        try:
            recipe_path_checked(self._session.paths, name, self._session.paths.relative(facts.file))
            facts = replace(facts, data=read(facts.file))
            assert facts.data is not None
            facts = replace(facts, recipe=recipe_of(facts.data, self._session.project, name))
        except BadInput as problem:
            return replace(facts, refused=problem), []
        assert facts.recipe is not None
        if facts.recipe.unlocked:
            return self._unlocked(facts, facts.recipe)
        sets, refused = self._sets(facts.recipe)
        if sets is None:
            return replace(facts, patches_refused=tuple(refused)), []
        return self._locked(facts, facts.recipe, sets)

    def _unlocked(self, facts: RecipeFacts, recipe: Recipe) -> tuple[RecipeFacts, list[str]]:
        """A recipe without a lock: planned and rendered over what it pins."""
        images: list[str] = []
        refused: list[GraftError] = []
        for arch in recipe.arches:
            try:
                planned = unlocked_for(self._session, recipe, arch, self._sources)
                render(self._session.paths, planned)
                images.append(planned.tag)
            except BadInput as problem:
                refused.append(problem)
        return replace(facts, plans_refused=tuple(refused)), images

    def _sets(self, recipe: Recipe) -> tuple[dict[str, PatchSet] | None, list[GraftError]]:
        """The patch sets of a recipe; None, with what was refused, when one of them cannot be had."""
        sets: dict[str, PatchSet] = {}
        refused: list[GraftError] = []
        where = str(self._session.paths.recipe(recipe.recipe))
        broken = False
        for component in dict.fromkeys(ref.partition("/")[0] for ref in recipe.patches):
            folder = self._session.paths.patches / component
            try:
                if component not in self.around.series:
                    broken = True
                    if not folder.is_dir():
                        raise BadInput(
                            f"{component} has no patches", where=where, cure=f"there is no {folder.name}/ in patches/"
                        )
                    # The series itself is refused, for all recipes at once.
                    continue
                found = self.around.series[component]
                chosen = found.select(recipe.patches_of(component), where)
                pinned = recipe.components[component]
                check_when(component, chosen, pinned.version, [arch for arch in recipe.arches if pinned.on(arch)])
                sets[component] = found
            except BadInput as problem:
                refused.append(problem)
        return (None if broken or refused else sets), refused

    def _locked(self, facts: RecipeFacts, recipe: Recipe, sets: dict[str, PatchSet]) -> tuple[RecipeFacts, list[str]]:
        session = self._session
        try:
            lock = load_lock(session.paths, recipe.recipe)
            check_fresh(session.paths, lock, lock_inputs(session, recipe, sets))
        except GraftError as problem:
            return replace(facts, lock_refused=problem), []
        return self.planned(facts, recipe, lock)

    def planned(self, facts: RecipeFacts, recipe: Recipe, lock: Lock) -> tuple[RecipeFacts, list[str]]:
        """The facts with a lock that fits the recipe, and the tags of the images that plan and render with it."""
        session = self._session
        closure = self._wheels.closure(lock, session.project.bases[recipe.base])
        images: list[str] = []
        refused: list[GraftError] = []
        recorded: OperatorList | None = None
        lacking: list[str] = []
        try:
            recorded = load_operators(session.paths, recipe.recipe, recipe.arches)
            if OPERATORS_TEST in recipe.smoke:
                lacking = [arch for arch in recipe.arches if recorded is None or recorded.of(arch) is None]
        except GraftError as problem:
            refused.append(problem)
        loaded = Loaded(recipe, lock, self._sources, recorded)
        for arch in recipe.arches:
            try:
                planned = plan_for(session, loaded, arch)
                render(session.paths, planned)
                images.append(planned.tag)
            except BadInput as problem:
                refused.append(problem)
        return replace(
            facts, lock=lock, closure=closure, plans_refused=tuple(refused), unrecorded=tuple(lacking)
        ), images


def _series(paths: Paths) -> tuple[dict[str, PatchSet], list[GraftError]]:
    """Every series that loads, and what was refused of the others and of their patches."""
    series: dict[str, PatchSet] = {}
    refused: list[GraftError] = []
    for folder in sorted(path for path in paths.patches.glob("[!.]*") if path.is_dir()):
        try:
            series[folder.name] = load_patchset(folder)
        except GraftError as problem:
            refused.append(problem)
            continue
        for patch in series[folder.name].patches:
            try:
                check_safety(patch.data, patch.record, where=str(patch.path))
                parse(patch.data)
            except GraftError as problem:
                refused.append(problem)
            except Malformed as problem:
                refused.append(
                    BadInput(f"no patch that Graft accepts: {problem.reason}", where=f"{patch.path}:{problem.line}")
                )
    return series, refused


def _texts(paths: Paths) -> dict[str, str]:
    files: set[Path] = {path for pattern in TEXTS for path in paths.images.rglob(pattern)}
    files |= {path for path in (paths.root / "Makefile",) if path.is_file()}
    # What is no text is no template either; rendering says so where it is used.
    return {paths.relative(path): path.read_text(encoding="utf-8", errors="replace") for path in sorted(files)}


def _tools_refused(session: Session) -> GraftError | None:
    try:
        load_tools(session.paths, session.project)
    except GraftError as problem:
        return problem
    return None
