"""Workers that all ranks of a node share: `Ranks(share="node")`."""
