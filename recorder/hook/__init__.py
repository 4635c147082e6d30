"""How a Python program gets the plugin without being edited: a folder in front of ``PYTHONPATH``."""

from __future__ import annotations

from pathlib import Path

__all__ = ["SITE"]

SITE = Path(__file__).parent / "site"
"""Folder whose ``sitecustomize`` installs the import hook; it runs the program's own one first."""
