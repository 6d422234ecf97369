"""few: models of both levels over (x, y), for runs of about 30 to 1,000 evaluations."""
