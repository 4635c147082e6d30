"""What is done with a tape: check it for races, later re-execute it."""
