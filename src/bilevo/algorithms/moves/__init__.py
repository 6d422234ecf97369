"""moves: whole numbers and choices, searched by moves from cell to cell."""
