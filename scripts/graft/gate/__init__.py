"""The gate: the smoke tests run in the candidate; a receipt says what was found. Nothing is tagged here."""

from __future__ import annotations

from graft.gate.receipt import TIERS, Receipt, ReceiptFacts, Tier, find_receipt
from graft.gate.run import run_gate
from graft.gate.tests import SmokeTest, gpu_tests, smoke_tests

__all__ = [
    "TIERS",
    "Receipt",
    "ReceiptFacts",
    "SmokeTest",
    "Tier",
    "find_receipt",
    "gpu_tests",
    "run_gate",
    "smoke_tests",
]
