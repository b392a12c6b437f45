"""What this machine, or a cluster, has and lacks."""
