"""The screens of ``hpcrun top``; the only folder that imports textual."""
