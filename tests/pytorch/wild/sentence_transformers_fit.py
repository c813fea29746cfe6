"""Sentence Transformers: its trainer and the loaders that it makes, over a model without weights from the network."""

import tempfile

import datasets
import torch
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.losses import MultipleNegativesRankingLoss
from sentence_transformers.models import BoW, Dense
from show import show, workers

count = workers()
words = ["data", "loader", "batch", "sample", "worker", "order", "epoch"]
texts = [" ".join(words[(n * k) % 7] for k in range(1, 5)) for n in range(40)]
rows = datasets.Dataset.from_dict({"anchor": texts, "positive": texts[::-1]})
model = SentenceTransformer(modules=[BoW(words), Dense(7, 4, activation_function=torch.nn.Tanh())])
with tempfile.TemporaryDirectory() as folder:
    arguments = SentenceTransformerTrainingArguments(
        folder,
        num_train_epochs=2,
        per_device_train_batch_size=8,
        dataloader_num_workers=count,
        report_to=[],
        save_strategy="no",
        logging_steps=1,
        disable_tqdm=True,
        use_cpu=True,
    )
    loss = MultipleNegativesRankingLoss(model)
    trainer = SentenceTransformerTrainer(model, arguments, train_dataset=rows, loss=loss)
    trainer.train()
    show([entry.get("loss") for entry in trainer.state.log_history])
    show([weight.detach() for weight in model.parameters()])
