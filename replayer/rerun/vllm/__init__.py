"""vLLM's V1 scheduler, driven from outside: the real `Scheduler` and `AsyncScheduler`, nothing around them.

What the engine around it does is done by the inputs: a step is ``schedule``, its output
``update_from_output``; what is in flight between the two is a step that the device works on.
Tried with vLLM 0.32.0.
"""

from .driver import VllmDriver

__all__ = ["VllmDriver"]
