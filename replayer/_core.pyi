"""Types of the native core."""
