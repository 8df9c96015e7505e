"""The verbs of publishing and pulling. Each imports its own module only, when it runs."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from graft.cli.options import FLAG, Verb, session_of
from graft.console import Console


def _push(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.push import push

    push(session_of(options, console), address=options.registry)


def _pull(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.pull import pull

    pull(
        session_of(options, console),
        channel=options.channel,
        image=options.image,
        address=options.registry,
        key=options.key,
        unsigned=options.unsigned,
    )


def _verify(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.pull import verify_image

    verify_image(
        session_of(options, console),
        options.image,
        address=options.registry,
        key=options.key,
        unsigned=options.unsigned,
    )


def _history(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.channels import history

    history(session_of(options, console), address=options.registry)


def _promote(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.channels import promote

    promote(
        session_of(options, console),
        options.image,
        to=options.channel,
        address=options.registry,
        key=options.key,
        unsigned=options.unsigned,
    )


def _rollback(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.channels import rollback

    rollback(
        session_of(options, console),
        channel=options.channel,
        address=options.registry,
        key=options.key,
        unsigned=options.unsigned,
    )


def _key_new(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.push import new_key

    new_key(session_of(options, console), options.private, options.public)


ADDRESS: dict[str, dict[str, object]] = {
    "--registry": {
        "default": os.environ.get("REGISTRY") or None,
        "metavar": "HOST[:PORT][/PATH]",
        "help": "the registry, or the whole repository (default: build.yaml's)",
    }
}
CHECKED: dict[str, dict[str, object]] = {
    **ADDRESS,
    "--key": {
        "type": Path,
        "default": None,
        "metavar": "FILE",
        "help": "public key of the publisher (default: build.yaml's)",
    },
    "--unsigned": {**FLAG, "help": "do without a signature; everything else is checked"},
}


def _channel(default: str) -> dict[str, dict[str, object]]:
    return {"--channel": {"choices": ("candidate", "stable"), "default": default, "help": f"(default: {default})"}}


IMAGE: dict[str, object] = {"metavar": "IMAGE", "help": "host/path:tag, host/path@sha256:..., or a tag or digest alone"}

REGISTRY_VERBS: dict[str, Verb] = {
    "push": (
        _push,
        "publish the image that passed its gate, with receipt, lock, bill of material and signature",
        ADDRESS,
    ),
    "pull": (
        _pull,
        "what a channel points to, verified and pulled by digest; prints how to run it",
        {**CHECKED, **_channel("candidate"), "image": {**IMAGE, "nargs": "?", "default": None}},
    ),
    "verify": (_verify, "check a published image: signature, receipt, lock and labels", {"image": IMAGE, **CHECKED}),
    "history": (_history, "where the channels of a recipe stand, and every move", ADDRESS),
    "promote": (
        _promote,
        "move a channel to an image that verifies (default: the candidate)",
        {"image": {**IMAGE, "nargs": "?", "default": None}, **CHECKED, **_channel("stable")},
    ),
    "rollback": (_rollback, "move a channel back to its previous verified image", {**CHECKED, **_channel("stable")}),
}
KEY_VERBS: dict[str, Verb] = {
    "new": (
        _key_new,
        "make a pair of keys for signatures, sealed with GRAFT_SIGNING_PASSWORD",
        {
            "--private": {"type": Path, "required": True, "metavar": "FILE", "help": "outside of the project"},
            "--public": {"type": Path, "required": True, "metavar": "FILE", "help": "to be committed"},
        },
    ),
}
