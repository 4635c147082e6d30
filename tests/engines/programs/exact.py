"""Reruns recorded schedulers exactly, in the Python that has their engine.

``exact.py ENGINE FILE``: FILE is JSON, name -> ``scenario``, ``recorded``. Prints one JSON object.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tapedelay.replayer.rerun.drive import Limits, run
from tapedelay.replayer.rerun.protocol import Driver
from tapedelay.replayer.rerun.registry import driver as named
from tapedelay.replayer.rerun.scenario import Scenario
from tapedelay.replayer.rerun.strict import compare, recorded_of

__all__ = ["strict"]


def strict(runs: Mapping[str, Any], driver: Driver) -> dict[str, Any]:
    """Return of each recorded run where its rerun diverges, the kinds of violations, and the steps."""
    told = {}
    for name, entry in runs.items():
        scenario = Scenario.from_dict(entry["scenario"])
        made = run(scenario, driver, limits=Limits(stop_at_first=False), drain=False)
        ordered = getattr(driver, "ordered", True)
        divergence = compare(recorded_of(entry["recorded"]), made, ordered=ordered)
        told[name] = {
            "divergence": None if divergence is None else divergence.as_dict(),
            "kinds": [list(v.kind) for v in made.violations],
            "steps": made.steps,
        }
    return told


def main(engine: str, file: str) -> None:
    print(json.dumps(strict(json.loads(Path(file).read_text()), named(engine))))


if __name__ == "__main__":
    main(*sys.argv[1:])
