"""The verbs around images, recipes and the engine. Each imports its own module only, when it runs."""

from __future__ import annotations

import argparse

from graft.cli.options import FLAG, REPORT, Verb, paths_of, session_of
from graft.console import Console


def _image(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.image import image

    image(
        session_of(options, console),
        rerun_gate=options.rerun_gate,
        no_cache=options.no_cache,
        unlocked=options.unlocked,
    )


def _plan(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.show import show_plan

    show_plan(session_of(options, console), why=options.why, report=options.report)


def _fetch(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.tools import fetch_only

    fetch_only(session_of(options, console))


def _lock(options: argparse.Namespace, console: Console) -> None:
    if options.operators:
        from graft.commands.operators import accept

        accept(
            session_of(options, console), alone=not (options.upgrade or options.base or options.tools or options.check)
        )
        return
    from graft.commands.locking import lock

    lock(
        session_of(options, console),
        upgrade=options.upgrade,
        base_anew=options.base,
        tools_anew=options.tools,
        check=options.check,
    )


def _lint(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.lint import lint

    recipes = [options.recipe] if options.recipe else []
    lint(session_of(options, console), recipes, sarif=options.sarif, report=options.report, online=options.online)


def _render(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.show import show_render

    show_render(session_of(options, console))


def _smoke(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.image import smoke

    smoke(session_of(options, console), tier=options.tier)


def _inspect(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.inspect import inspect

    inspect(
        session_of(options, console),
        options.image,
        arch=options.arch,
        recipe=options.recipe,
        outside=options.outside,
    )


def _engine(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.tools import start_engine

    start_engine(session_of(options, console))


def _engine_stop(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.tools import stop_engine

    stop_engine(paths_of(options), console)


def _clean(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.tools import clean

    clean(paths_of(options), console, yes=options.yes)


def _update(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.update import update

    update(session_of(options, console), options.components, to=options.to, dry_run=options.dry_run)


VERBS: dict[str, Verb] = {
    "image": (
        _image,
        "plan, fetch, build, gate and tag the image",
        {
            "--rerun-gate": {**FLAG, "help": "run the gate even when this image has passed it"},
            "--no-cache": {**FLAG, "help": "build every step again"},
            "--unlocked": {**FLAG, "help": "also a recipe without a lock; the image says so"},
        },
    ),
    "plan": (
        _plan,
        "what would be fetched and built, with keys; no network, no engine",
        {"--why": {**FLAG, "help": "name the first input that differs from the last image"}, "--report": REPORT},
    ),
    "lock": (
        _lock,
        "resolve what changed in the recipe and write its lock",
        {
            "--upgrade": {**FLAG, "help": "choose all versions anew"},
            "--base": {**FLAG, "help": "choose the base's Debian packages anew"},
            "--tools": {**FLAG, "help": "choose the Debian packages whose programs run on the host anew"},
            "--operators": {**FLAG, "help": "record the operators that the last gate run found; nothing else"},
            "--check": {**FLAG, "help": "write nothing; exit 3 when the lock is stale"},
        },
    ),
    "update": (
        _update,
        "newer components, what moves with them and what becomes of the patches; then recipe and lock, or nothing",
        {
            "components": {"nargs": "*", "metavar": "COMPONENT", "help": "only these (default: all)"},
            "--to": {"default": None, "metavar": "VERSION", "help": "the version, for one component"},
            "--dry-run": {**FLAG, "help": "write nothing; the same report and exit code"},
        },
    ),
    "fetch": (_fetch, "download everything that the lock names", {}),
    "lint": (
        _lint,
        "hold every recipe, its lock and patches to the rules of docs/rules.md, and plan and render its images",
        {
            "--sarif": {**FLAG, "help": "SARIF 2.1.0 on stdout, for code review tools"},
            "--report": REPORT,
            "--online": {**FLAG, "help": "ask git hosts, too, whether a ref or pull request beside a commit has moved"},
        },
    ),
    "render": (_render, "print the Dockerfile", {}),
    "smoke": (
        _smoke,
        "run the gate again, or its tests on GPUs; moves no tag",
        {"--tier": {"default": "cpu", "choices": ("cpu", "gpu"), "help": "gpu: on all GPUs; red where there is none"}},
    ),
    "inspect": (
        _inspect,
        "the GPU code of an image's files, and with --arch what it means there; --recipe gives waivers",
        {
            "image": {"metavar": "IMAGE", "help": "a reference, a reference with digest, or an image id"},
            "--outside": {**FLAG, "help": "run nothing of the image: read its files from outside"},
        },
    ),
    "engine": (_engine, "start the engine and print how to use it", {}),
    "engine-stop": (_engine_stop, "end the embedded engine", {}),
    "clean": (_clean, "remove .graft, after asking", {"--yes": {**FLAG, "help": "do not ask"}}),
}
