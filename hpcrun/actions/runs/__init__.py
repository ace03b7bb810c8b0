"""Actions on existing runs: find, cancel, clean, and show them."""
