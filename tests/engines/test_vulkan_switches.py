"""What `check` says that hides a finding, against a real Vulkan backend run under it (lavapipe)."""

from __future__ import annotations

from pathlib import Path

from tapedelay.formats.load import load_tape
from tapedelay.recorder.demo import engines
from tapedelay.replayer.check import check_tape

from .test_vulkan import program, record


def test_the_switch_that_check_names_hides_it(
    vulkan: dict[str, str], tiny_model: Path, tmp_path: Path
) -> None:
    command = program(engines.VULKAN_RACY, tiny_model)
    bad = tmp_path / "bad.tape"
    code, findings = record(bad, command, vulkan).check()
    assert code == 1
    report = check_tape(load_tape(bad))
    (group,) = [g for g in report.groups if "input_embed" in g.example.text]
    named = [(h.setting, h.backend) for h in group.hidden_by]
    assert ("GGML_VK_DISABLE_ASYNC=1", "") in named
    # A delay of the CPU split at its issue hides it, one of the copy on its queue shows it.
    assert group.example.delay_hides.startswith("first compute of ")
    assert group.example.delay_hides.endswith(" on host0 +10ms before_issue")
    assert group.example.delay_shows == "first copy of model.input_embed on Vulkan0 +3ms before_start"
    told = [f for f in findings if "input_embed" in f["text"]]
    assert all({"kind": "delay", "line": group.example.delay_hides} not in f["shown_by"] for f in told)
    assert all("GGML_VK_DISABLE_ASYNC" in str(f["hidden_by"]) for f in told)

    # Recorded under that switch, by the same build: the tape says so, and nothing is left to find.
    good = tmp_path / "good.tape"
    recording = record(good, command, {**vulkan, "GGML_VK_DISABLE_ASYNC": "1"})
    assert load_tape(good).manifest.switches == {"GGML_VK_DISABLE_ASYNC": "on"}
    assert recording.check() == (0, [])
