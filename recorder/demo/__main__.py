"""``python -m tapedelay.recorder.demo``."""

from __future__ import annotations

import sys

from .demo import main

sys.exit(main())
