"""What several algorithms share: the leader's level, follower searches, SQP, ties."""
