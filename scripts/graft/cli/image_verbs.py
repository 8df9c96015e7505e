"""The verbs on what is built: compare, measure, carry to other machines, make again."""

from __future__ import annotations

import argparse

from graft.cli.options import FLAG, Verb, file_name, session_of
from graft.console import Console

_WHAT = "a recipe (NAME or NAME@REVISION), a lock file, or an image (reference, reference@digest or id)"
_ALL: dict[str, object] = {**FLAG, "help": "every row of long tables"}


def _diff(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.inventories import diff

    diff(session_of(options, console), options.before, options.after, report=options.report, every=options.all)


def _size(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.inventories import size

    size(session_of(options, console), options.what, every=options.all)


def _export(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.bundles import export

    export(session_of(options, console), options.file, options.contents)


def _import(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.bundles import load

    load(session_of(options, console), options.file, options.digest)


def _reproduce(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.reproduce import reproduce

    reproduce(session_of(options, console), options.image, trust=options.trust, without_gate=options.no_gate)


BUNDLE_VERBS: dict[str, Verb] = {
    "export": (
        _export,
        "write a file with everything that a build, or a pull, needs on a machine without network",
        {
            "file": {"type": file_name, "metavar": "FILE", "help": "the file to write"},
            "--contents": {
                "choices": ("build", "image", "all"),
                "default": "build",
                "help": "what a build needs (default), the image that is built and has passed, or both",
            },
        },
    ),
    "import": (
        _import,
        "check all of a bundle, then put its files into the store and its image onto the engine",
        {
            "file": {"type": file_name, "metavar": "FILE", "help": "what `graft bundle export` wrote"},
            "--digest": {"default": None, "metavar": "SHA256", "help": "refuse every other bundle; export says it"},
        },
    ),
}
IMAGE_VERBS: dict[str, Verb] = {
    "diff": (
        _diff,
        "what two recipes, locks or images hold and how they differ, down to packages, GPU code and layers",
        {
            "before": {"metavar": "A", "help": _WHAT},
            "after": {"metavar": "B", "help": _WHAT},
            "--report": {"choices": ("table", "md"), "default": "table", "help": "md: a changelog for release notes"},
            "--all": _ALL,
        },
    ),
    "size": (
        _size,
        "bytes of each component, package and layer",
        {"what": {"nargs": "?", "metavar": "WHAT", "help": f"{_WHAT}; default: the recipe"}, "--all": _ALL},
    ),
    "reproduce": (
        _reproduce,
        "build an image again from nothing but itself, gate it, and say which files of which layers differ",
        {
            "image": {"metavar": "IMAGE", "help": "a reference, a reference with digest, or an image id"},
            "--no-gate": {**FLAG, "help": "build and compare only"},
            "--trust": {**FLAG, "help": "run scripts of the image that are not those of this checkout"},
        },
    ),
}
