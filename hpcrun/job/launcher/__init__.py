"""Programs that start ranks: which they are, what they are told, what hpcrun starts instead."""
