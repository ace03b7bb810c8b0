"""How results look: text for people, JSON for programs. Pure: nothing here prints or asks."""
