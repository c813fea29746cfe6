"""What this library knows of the insides of other libraries, a file for each; it imports none of them."""
