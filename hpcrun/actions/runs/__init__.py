"""What is done with runs that exist: find, cancel, clean, and look into them."""
