"""The bench tape: decoded tokens on two devices, in any number of ops."""

from .tape import bench_tape

__all__ = ["bench_tape"]
