"""The operators that a gate run found, read from its receipt."""

from __future__ import annotations

from pathlib import Path

from graft.errors import GateFailed
from graft.gate.forms import forms
from graft.gate.receipt import FAILED, PASSED, Receipt, read_receipt, write_receipt
from graft.recipe import OPERATORS_TEST

#: The smoke test that lists operators, and its checks that hold them (images/smoke/lib/operators.py).
TEST = OPERATORS_TEST
CHECK = "registers:"
#: Checks that compare with what was recorded: red ones do not make the list itself doubtful.
COMPARED = frozenset({"lost", "new"})


def found_operators(receipt: Receipt) -> dict[str, tuple[str, ...]]:
    """file -> its operators. Raises GateFailed for a run that does not know them, or not all of them."""
    test = next((test for test in receipt.tests if test.id == TEST), None)
    where, cure = f"image {receipt.image_id}", "make image, with `load` in the recipe's smoke list"
    if test is None:
        raise GateFailed("no smoke test of this run lists operators", where=where, cure=cure)
    red = [check.id for check in test.checks if check.verdict == "fail" and check.id not in COMPARED]
    if red or test.verdict not in ("pass", "fail"):
        named = ", ".join(red[:5]) or test.detail
        raise GateFailed(f"not every extension was loaded: {named}", where=where, cure="mend that first")
    files = {check.id.removeprefix(CHECK): check.detail for check in test.checks if check.id.startswith(CHECK)}
    if not files:
        raise GateFailed("the run found no operators", where=where, cure=cure)
    return {file: tuple(text.splitlines()) for file, text in sorted(files.items())}


def bound_to(receipts: Path, receipt: Receipt, gate_digest: str) -> Receipt:
    """Write a passing receipt again for a gate that differs in nothing but the list which this very run made."""
    bound = receipt.model_copy(update={"gate_digest": gate_digest})
    write_receipt(receipts, bound, forms(bound))
    return bound


def newest_receipt(receipts: Path, key: str) -> Receipt | None:
    """The receipt of the last gate run without GPUs of images with this key; also a red one."""
    files = [path for name in (PASSED, FAILED) for path in receipts.glob(f"*/{name}")]
    found = [receipt for receipt in map(read_receipt, files) if receipt.key == key]
    return max(found, key=lambda receipt: receipt.started, default=None)
