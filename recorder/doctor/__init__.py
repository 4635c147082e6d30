"""What can be recorded on this machine and of this engine, what cannot and why, and what helps."""
