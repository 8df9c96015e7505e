"""What a recipe, a lock or an image holds, in one form, and how two of them differ."""

from __future__ import annotations

from graft.inventory.compare import Change, Difference, Section, compare
from graft.inventory.model import Component, Inventory, Layer, Package

__all__ = ["Change", "Component", "Difference", "Inventory", "Layer", "Package", "Section", "compare"]
