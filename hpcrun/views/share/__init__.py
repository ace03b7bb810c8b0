"""The page of `hpcrun share`: its text, its drawings, and the template that joins them."""
