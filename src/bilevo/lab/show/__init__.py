"""Show tables and curves as text, as LaTeX, as figures, and in a report for a browser."""
