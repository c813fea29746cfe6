"""A stand-in: streaming imports torchvision at its top, and its loader does not use it.

No build of torchvision for CPUs is among the packages that the environments install.
"""
