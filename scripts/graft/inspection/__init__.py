"""What GPU code an image holds: asked by a program in a container of it, or read from its files outside."""

from __future__ import annotations

from graft.inspection.model import Answer, FileCode, Unreadable
from graft.inspection.run import Program, inspect_image, read_program
from graft.inspection.table import matrix, summary

__all__ = ["Answer", "FileCode", "Program", "Unreadable", "inspect_image", "matrix", "read_program", "summary"]
