"""What every test may rely on."""

from __future__ import annotations

import os
import signal

# What the outside says about output (CI lets pytest print whole failures in its summary; colours, widths) is
# not for the programs and inner test runs that the tests start: they print the same everywhere.
_OUTPUT = "BUILD_NUMBER CI COLUMNS FORCE_COLOR LINES NO_COLOR PY_COLORS PYTEST_ADDOPTS PYTEST_THEME"
for name in _OUTPUT.split():
    os.environ.pop(name, None)

# A shell that puts a job into the background lets it ignore Ctrl-C; tests that press it would wait for ever,
# in their own process and in those that they start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
