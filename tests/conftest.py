"""What every test may rely on."""

from __future__ import annotations

import signal

# A shell that puts a job into the background lets it ignore Ctrl-C; tests that press it would wait for ever,
# in their own process and in those that they start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
