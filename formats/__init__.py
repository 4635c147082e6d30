"""What a tape is and what its words mean: schema, read, write, validate, litmus, the edge contract."""
