"""The arguments of a loader: checks them, and makes its parts of them."""
