"""How a tape is made: launch an engine, let it write a spool, collect the spool into a tape."""
