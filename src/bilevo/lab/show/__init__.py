"""Show tables and curves: as text, LaTeX, figures, and a report for a browser."""
