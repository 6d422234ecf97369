"""The method nested-ties: every leader is judged by the tie that it expects."""
