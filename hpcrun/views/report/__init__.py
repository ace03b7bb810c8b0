"""How a scaling report looks: text, Markdown, CSV, LaTeX, HTML, JSON and figures, all from the same cells and words."""
