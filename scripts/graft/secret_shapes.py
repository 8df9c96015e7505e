"""What a secret looks like, wherever it stands: one list for recipes, before anything is built, and for the gate."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

#: What it is -> how it is written.
SHAPES: Mapping[str, str] = {
    "a private key": r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----",
    "a token of a package index": r"pypi-A[A-Za-z0-9_-]{30,}",
    "a token of GitHub": r"gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,}",
    "a token of GitLab": r"glpat-[A-Za-z0-9_-]{20,}",
    "a key of AWS": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "a token of Hugging Face": r"\bhf_[A-Za-z0-9]{30,}",
    "a key of NVIDIA": r"\bnvapi-[A-Za-z0-9_-]{20,}",
    "a key of an API": r"\bsk-(?:proj|ant|or)-[A-Za-z0-9_-]{20,}|\bAIza[0-9A-Za-z_-]{35}",
    "a token of Slack": r"\bxox[abprs]-[A-Za-z0-9-]{10,}",
    "a signed token": r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.",
    "a password in a URL": r"[a-z][a-z0-9+.-]*://[^\s/:@\"'<>${}]+:[^\s/:@\"'<>${}]+@[^\s/]",
    "a proxy": r"(?i:\b(?:https?|ftp|all)_proxy\s*=\s*[\"']?[^\s\"'$|;&]+)",
}


@functools.cache
def _compiled() -> Mapping[str, re.Pattern[str]]:
    # Only where one is looked for: to compile them takes longer than to read a recipe.
    return {name: re.compile(shape) for name, shape in SHAPES.items()}


def shapes_in(text: str) -> list[str]:
    """What a text has the look of, by name, never by value."""
    return [name for name, shape in _compiled().items() if shape.search(text)]
