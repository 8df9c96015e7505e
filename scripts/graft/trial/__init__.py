"""Patches tried in images that exist: red without the patch, green with it. Nothing is built but what `onto` adds."""

from __future__ import annotations

from graft.trial.outcome import MEANING, RunResult, TrialVerdict, explain
from graft.trial.result import TrialInputs, TrialResult, keep, kept, last_result, results_folder

__all__ = [
    "MEANING",
    "RunResult",
    "TrialInputs",
    "TrialResult",
    "TrialVerdict",
    "explain",
    "keep",
    "kept",
    "last_result",
    "results_folder",
]
