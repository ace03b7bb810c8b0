"""Jobs before they run: what is asked for becomes a plan, a script and a submission."""
