"""`with record(...)` around a real engine that the same process imports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tapedelay.formats.load import load_tape
from tapedelay.recorder.demo.commands import PROGRAMS, tapedelay

CODE = """
import json, sys
from tapedelay.formats.errors import UsageError
from tapedelay.recorder import record
sys.path.insert(0, sys.argv[1])
import llama_prompt
words = ["--model", sys.argv[2], "--prompt-tokens", "40", "--ubatch", "32", "--n-predict", "2"]
with record(sys.argv[3], devices=1) as recording:
    llama_prompt.main(words)
print(json.dumps(recording.as_dict()))
llama_prompt.main(words)  # the engine goes on; nothing of this is recorded
try:
    with record(sys.argv[3] + ".second", devices=1):
        pass
except UsageError as error:
    print(error.found)
"""


def test_the_engine_is_recorded_and_goes_on(racy: dict[str, str], tiny_model: Path, tmp_path: Path) -> None:
    import os

    done = subprocess.run(
        [sys.executable, "-c", CODE, str(PROGRAMS), str(tiny_model), str(tmp_path / "run.tape")],
        env={**os.environ, **racy},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    first, said, second, refused = done.stdout.splitlines()
    assert json.loads(first)["tokens"] == json.loads(second)["tokens"]
    report = json.loads(said)
    assert (report["complete"], report["lost"], report["exit_code"]) == (True, 0, 0)
    assert report["computes"]["TAPE0"] >= 3
    assert refused == "this process has been recorded already"
    tape = load_tape(tmp_path / "run.tape")
    assert tape.table("ops").num_rows == report["ops"]
    assert tape.manifest.engine["package"] == "xllamacpp"


def test_inside_tapedelay_record_it_is_refused(
    racy: dict[str, str], tiny_model: Path, tmp_path: Path
) -> None:
    inner, outer = tmp_path / "inner.tape", tmp_path / "outer.tape"
    code = CODE.replace("import llama_prompt\n", "import llama_prompt, xllamacpp\n")
    program = [sys.executable, "-c", code, str(PROGRAMS), str(tiny_model), str(inner)]
    done = tapedelay("record", "-o", outer, "--", *program, environment=racy)
    assert done.code == 1
    assert "UsageError: this process is already being recorded by `tapedelay record`" in done.err
    assert not inner.exists()
    assert not outer.exists()
