"""The verbs that edit a series. Each stands in a module of its own; the command line finds them all here."""

from __future__ import annotations

from graft.commands.patch_branch import export_branch, import_branch
from graft.commands.patch_drop import drop
from graft.commands.patch_import import import_patch
from graft.commands.patch_refresh import refresh

__all__ = ["drop", "export_branch", "import_branch", "import_patch", "refresh"]
