"""The forms of a scaling report: text, Markdown, CSV, LaTeX, HTML, JSON and figures, from the same cells and words."""
