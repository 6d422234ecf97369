"""Verification: a follower's answer is checked by independent searches, or by a solver."""
