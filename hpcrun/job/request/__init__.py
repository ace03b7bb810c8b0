"""What a person asked for: the options of hpcrun submit, and their texts."""
