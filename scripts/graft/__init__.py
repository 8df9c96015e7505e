"""Graft: pinned upstream projects plus small patches, built into a tested container image per GPU architecture."""

__version__ = "0.1.0"
