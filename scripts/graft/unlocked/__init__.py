"""The plan of a recipe without a lock: the same stages, with keys over what the recipe itself pins.

Pure, as `plan` is. What the recipe gives by content (commits, heads, trees, digests, hashes) is taken as a lock would
take it; what it only names goes into the keys by name, is listed, and is a label of the image. So a key says that two
images were made from the same words; only a lock can say that they were made from the same bytes.
"""

from graft.unlocked.model import OpenBuild, OpenLayer, UnlockedPlan
from graft.unlocked.planning import unlocked_plan

__all__ = ["OpenBuild", "OpenLayer", "UnlockedPlan", "unlocked_plan"]
