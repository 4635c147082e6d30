"""Rerun: drive the real request scheduler of an engine with recorded inputs, the same or others, and judge it."""
