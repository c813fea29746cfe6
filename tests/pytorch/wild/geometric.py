"""Torch Geometric: batches of graphs, whose loader derives from torch's and has its own collate function."""

import torch
from show import show, workers
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

count = workers()
graphs = [Data(x=torch.rand(n, 3), edge_index=torch.randint(n, (2, 2 * n)), y=torch.tensor([n])) for n in range(3, 40)]
loader = DataLoader(graphs, batch_size=8, shuffle=True, num_workers=count, follow_batch=["x"])
for _ in range(2):
    for batch in loader:
        show(batch.to_dict())
        show(batch.ptr)
