"""transformers' continuous batching: what is recorded of its request scheduler, and how it is watched."""
