"""transformers: the Trainer, over a tiny model without weights from the network."""

import tempfile

import torch
from show import show, workers
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

count = workers()
config = BertConfig(vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
rows = [{"input_ids": torch.randint(20, (6,)), "labels": torch.tensor(n % 2)} for n in range(48)]
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        per_device_train_batch_size=8,
        num_train_epochs=2,
        logging_steps=1,
        dataloader_num_workers=count,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = Trainer(BertForSequenceClassification(config), arguments, train_dataset=rows)
    trainer.train()
    show([entry.get("loss") for entry in trainer.state.log_history])
    show(list(trainer.model.state_dict().values()))
