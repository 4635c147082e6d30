"""DeepInfer's request scheduler compiled for a machine without a GPU; for tests, part of no wheel."""
