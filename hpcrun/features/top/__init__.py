"""The screens of hpcrun top, in textual."""
