"""Tests with the real trainers; `nox -s trainers` installs them."""
