"""Faults of a real engine, and the probe of the smoke tests that must see each, whatever else fails.

With a dropped patch nothing serves: see tests/image.
"""

from tests.engine.broken_drafter import other_step, shifted_layers

#: What is broken: the shape that the embedded pair serves by default.
SHAPE = {"budget": 15, "top_k": 8}
#: Modes of the probe plugin.
BROKEN = {
    "width_bug:unchecked": "recorded_text",
    "sibling_leak": "recorded_text",
    "slots_off_by_one": "recorded_text",
    "greedy_sampling": "sampling",
}
#: Makers of a wrong drafter. The window of a quick run is too wide for one that is one layer off.
BROKEN_DRAFTERS = {shifted_layers: "accept_length_in_window", other_step: "accept_length_in_window"}
DRAFTER_CLASS = "full"
