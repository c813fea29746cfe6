"""How processes of one user meet on a machine: names, the door, and messages with descriptors."""
