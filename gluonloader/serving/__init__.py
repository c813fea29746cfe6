"""One loader for several programs: `serve` in one of them, `attach` in the others."""
