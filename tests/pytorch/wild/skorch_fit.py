"""skorch: a classifier with the interface of scikit-learn, which makes its loaders by itself."""

import numpy as np
import torch
from show import show, workers
from skorch import NeuralNetClassifier

count = workers()
x = np.random.rand(200, 8).astype("float32")
net = NeuralNetClassifier(
    torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(16, 2)),
    criterion=torch.nn.CrossEntropyLoss,
    max_epochs=3,
    batch_size=32,
    iterator_train__shuffle=True,
    iterator_train__num_workers=count,
    iterator_valid__num_workers=count,
    verbose=0,
)
net.fit(x, (x.sum(axis=1) > 4).astype("int64"))
show([net.history[:, "train_loss"], net.history[:, "valid_loss"]])
show(net.predict_proba(x))
