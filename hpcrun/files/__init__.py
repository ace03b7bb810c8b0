"""Reading and writing files that other people and programs may write, and who owns them."""
