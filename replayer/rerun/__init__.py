"""Rerun: drive an engine's real request scheduler with recorded inputs, the same or others, and judge it."""
