"""The verbs around receipts. Each imports its own module only, when it runs."""

from __future__ import annotations

import argparse

from graft.cli.options import REPORT, Verb, session_of
from graft.console import Console

WHICH: dict[str, object] = {
    "nargs": "?",
    "default": None,
    "metavar": "IMAGE|FILE",
    "help": "an image's id or reference, or a receipt's file (default: the image of the recipe and architecture)",
}

TIER: dict[str, object] = {"default": None, "choices": ("cpu", "gpu"), "help": "only of this tier (default: of both)"}


def _show(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.receipt_show import show

    show(session_of(options, console), options.which, tier=options.tier, report=options.report)


def _verify(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.receipt_verify import verify

    verify(session_of(options, console), options.which, tier=options.tier)


RECEIPT_VERBS: dict[str, Verb] = {
    "show": (_show, "what the gate found in an image", {"which": WHICH, "--tier": TIER, "--report": REPORT}),
    "verify": (
        _verify,
        "hold receipts to their format, to the image in the engine, and to the tests as they are today",
        {"which": WHICH, "--tier": TIER},
    ),
}
