"""Workers that all ranks of a node share: `DataLoader(share="node")`."""
