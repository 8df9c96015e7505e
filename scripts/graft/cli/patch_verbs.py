"""`graft patch ...`: the verbs on single patches and their series."""

from __future__ import annotations

import argparse
from pathlib import Path

from graft.cli.options import FLAG, Verb, session_of
from graft.console import Console


def _patch_status(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.patch_status import status

    status(session_of(options, console), options.components)


def _patch_check(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.patch_check import check

    check(
        session_of(options, console),
        options.component,
        against=options.against,
        clone=options.clone,
        commute=options.commute,
        report="sarif" if options.sarif else options.report,
    )


def _patch_test(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.patch_try import test

    test(session_of(options, console), options.patches, every=options.all, rerun=options.rerun)


def _patch_onto(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.patch_try import onto

    onto(
        session_of(options, console),
        options.image,
        options.component,
        options.patches,
        tag=options.tag,
        python=options.python,
    )


def _patch_import(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.patch_edit import import_patch

    given = {name: getattr(options, name) for name in _RECORD_OPTIONS if getattr(options, name) is not None}
    import_patch(
        session_of(options, console),
        options.url,
        head=options.head,
        component=options.component,
        clone=options.clone,
        without_tests=options.without_tests,
        record=given,
    )


def _patch_import_branch(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.patch_edit import import_branch

    import_branch(session_of(options, console), options.component, options.repository, options.branch)


def _patch_export(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.patch_edit import export_branch

    export_branch(session_of(options, console), options.component, options.repository, options.branch)


def _patch_refresh(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.patch_edit import refresh

    refresh(session_of(options, console), options.patches, merge=options.merge)


def _patch_drop(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.patch_edit import drop

    drop(session_of(options, console), options.patch, because=options.because)


#: What the record of an imported patch needs and the commit may not say: name -> help.
_RECORD_OPTIONS: dict[str, str] = {
    "id": "its name in the series (default: made from the title)",
    "title": "what it changes (default: the commit's subject)",
    "reason": "why it is needed",
    "until": "what retires it",
    "test": "a file with the test that fails without it",
    "target": "wheel or source (default: that of the series)",
    "upstream": "pending, submitted, backport, denied or inappropriate (default: backport)",
    "author": "whose it is (default: the commit's author)",
    "license": "SPDX name (default: what the touched files or LICENSE say)",
    "base": "the commit it is the difference from (default: the commit's parent, or the merge base)",
}
_CLONE: dict[str, object] = {
    "type": Path,
    "metavar": "CLONE",
    "help": "a local clone to read from, instead of the git host",
}
_PATCH: dict[str, object] = {"metavar": "COMPONENT/ID", "help": "a patch, as recipes write it"}
_BRANCH: dict[str, object] = {"default": None, "help": "name of the branch (default: graft/COMPONENT)"}
PATCH_VERBS: dict[str, Verb] = {
    "status": (
        _patch_status,
        "every patch of every recipe against its pin: verdict, symbols, end, last test; no network, no engine",
        {"components": {"nargs": "*", "metavar": "COMPONENT", "help": "only these components"}},
    ),
    "check": (
        _patch_check,
        "the whole series of a component against another version; writes nothing, exit 5 unless all can be built",
        {
            "component": {"help": "a component of the recipe"},
            "--against": {
                "required": True,
                "metavar": "WHAT",
                "help": "a version of the index, a 40-digit commit (with --from), or a folder with the source",
            },
            "--from": {**_CLONE, "dest": "clone"},
            "--commute": {**FLAG, "help": "also each patch alone and neighbours swapped: undeclared dependencies"},
            "--report": {"choices": ("table", "md"), "default": "table", "help": "md: a comment for a pull request"},
            "--sarif": {**FLAG, "help": "SARIF 2.1.0 on stdout, for code review tools"},
        },
    ),
    "test": (
        _patch_test,
        "red and green in the recipe's image: the test must fail on the pristine files and pass with the patch",
        {
            "patches": {**_PATCH, "nargs": "*"},
            "--all": {**FLAG, "help": "every patch of the recipe"},
            "--rerun": {**FLAG, "help": "also where the result of the same bytes is known"},
        },
    ),
    "import": (
        _patch_import,
        "a pull request or commit as a patch of the series, with its record",
        {
            "url": {"help": "the https address of the pull request or commit"},
            "--head": {"required": True, "metavar": "SHA", "help": "the commit, 40 hex digits"},
            "--component": {"required": True, "help": "patches/<component>"},
            "--from": {**_CLONE, "dest": "clone"},
            "--without-tests": {**FLAG, "help": "leave out upstream's test files"},
            **{f"--{name}": {"default": None, "help": text} for name, text in _RECORD_OPTIONS.items()},
        },
    ),
    "import-branch": (
        _patch_import_branch,
        "the commits of an exported branch, back into the series: one patch each",
        {
            "component": {"help": "patches/<component>"},
            "repository": {"type": Path, "help": "the repository that `graft patch export` made"},
            "--branch": _BRANCH,
        },
    ),
    "export": (
        _patch_export,
        "a git branch with one commit for each patch, on top of the pristine files",
        {
            "component": {"help": "patches/<component>"},
            "repository": {"type": Path, "help": "the folder to make the repository in"},
            "--branch": _BRANCH,
        },
    ),
    "refresh": (
        _patch_refresh,
        "canonical form of patches against the pinned version",
        {
            "patches": {**_PATCH, "nargs": "+"},
            "--merge": {**FLAG, "help": "take what a clean three-way merge leaves of the patch"},
        },
    ),
    "drop": (
        _patch_drop,
        "take a patch out of the recipes and the series",
        {"patch": _PATCH, "--because": {"required": True, "metavar": "REASON", "help": "why it is no longer needed"}},
    ),
    "onto": (
        _patch_onto,
        "a small layer with patches on an image that exists, tested red and green in it",
        {
            "image": {"help": "a reference, a reference with digest, or an image id"},
            "patches": {**_PATCH, "nargs": "+"},
            "--component": {"required": True, "help": "the component that the patches belong to"},
            "--tag": {
                "default": None,
                "help": "the reference to tag (default: IMAGE with -graft-<key> behind its tag)",
            },
            "--python": {"default": "python3", "help": "the image's interpreter that has the component installed"},
        },
    ),
}
