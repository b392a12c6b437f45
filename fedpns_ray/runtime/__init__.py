"""Where it runs: processes, devices, machines, checkpoints. No science in here."""
