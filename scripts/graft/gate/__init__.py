"""The gate: the smoke tests run in the candidate; a receipt says what was found. Nothing is tagged here."""

from __future__ import annotations

from graft.gate.config import Expected, image_config
from graft.gate.hostvalues import Finder, HostValue, host_values
from graft.gate.operators import TEST as OPERATORS_TEST
from graft.gate.operators import bound_to, found_operators, newest_receipt
from graft.gate.receipt import TIERS, Receipt, ReceiptFacts, Tier, find_receipt, parse_receipt
from graft.gate.run import run_gate
from graft.gate.tests import SmokeTest, gpu_tests, smoke_tests

__all__ = [
    "OPERATORS_TEST",
    "TIERS",
    "Expected",
    "Finder",
    "HostValue",
    "Receipt",
    "ReceiptFacts",
    "SmokeTest",
    "Tier",
    "bound_to",
    "find_receipt",
    "found_operators",
    "gpu_tests",
    "host_values",
    "image_config",
    "newest_receipt",
    "parse_receipt",
    "run_gate",
    "smoke_tests",
]
