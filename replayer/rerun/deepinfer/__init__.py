"""DeepInfer's real C++ request scheduler, driven without its engine."""

from .driver import DeepInferDriver

__all__ = ["DeepInferDriver"]
