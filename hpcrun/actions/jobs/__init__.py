"""Jobs before they run: a request becomes a plan, a script and a submission."""
