"""The gate: the smoke tests run in the candidate; a receipt says what was found. Nothing is tagged here."""

from __future__ import annotations

from graft.gate.receipt import Receipt, ReceiptFacts, find_receipt
from graft.gate.run import run_gate
from graft.gate.tests import SmokeTest, smoke_tests

__all__ = ["Receipt", "ReceiptFacts", "SmokeTest", "find_receipt", "run_gate", "smoke_tests"]
