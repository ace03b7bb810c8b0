"""The screens of ``hpcrun top``; the only room that imports textual."""
