"""Form 5: GluonNLP's `ShardedDataLoader` and buckets of sentences for several devices, as in its scripts."""

import logging
import sys

import gluonnlp as nlp
import mxnet as mx
import numpy as np
import record
from gluonnlp.data.batchify import Pad, Stack, Tuple
from mxnet import gluon

workers = record.num_workers()
logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")


def sentences(count, seed):
    rng = np.random.RandomState(seed)
    lengths = rng.randint(2, 20, (count, 2))
    return [
        (rng.randint(4, 99, source).astype(np.int32), rng.randint(4, 99, target).astype(np.int32), index)
        for index, (source, target) in enumerate(lengths)
    ]


def with_lengths(source, target, index):
    return source, target, len(source), len(target), index


def get_data_lengths(dataset):
    return list(dataset.transform(lambda src, tgt, src_len, tgt_len, idx: (src_len, tgt_len), lazy=False))


def main():
    data_train = gluon.data.SimpleDataset(sentences(61, 1)).transform(with_lengths, lazy=False)
    data_val = gluon.data.SimpleDataset(sentences(17, 2)).transform(with_lengths, lazy=False)
    train_batchify_fn = Tuple(
        Pad(axis=0, pad_val=1), Pad(axis=0, pad_val=1), Stack("float32"), Stack("float32"), Stack()
    )
    bucket_scheme = nlp.data.ExpWidthBucket(bucket_len_step=1.2)
    train_batch_sampler = nlp.data.FixedBucketSampler(
        lengths=get_data_lengths(data_train),
        batch_size=4,
        num_buckets=4,
        ratio=0.5,
        shuffle=False,
        num_shards=2,
        bucket_scheme=bucket_scheme,
    )
    logging.info("Train Batch Sampler:\n%s", train_batch_sampler.stats())
    train_data_loader = nlp.data.ShardedDataLoader(
        data_train,
        batch_sampler=train_batch_sampler,
        batchify_fn=train_batchify_fn,
        num_workers=workers,
    )
    tokens_batch_sampler = nlp.data.FixedBucketSampler(
        lengths=[max(pair) for pair in get_data_lengths(data_train)],
        batch_size=64,
        num_buckets=4,
        shuffle=True,
        use_average_length=True,
        num_shards=2,
    )
    val_batch_sampler = nlp.data.FixedBucketSampler(
        lengths=get_data_lengths(data_val), batch_size=5, num_buckets=4, shuffle=False
    )
    loaders = {
        "train": train_data_loader,
        "plain samples": nlp.data.ShardedDataLoader(
            dataset=data_train, batch_size=7, last_batch="rollover",
            batchify_fn=train_batchify_fn, num_workers=workers,
        ),
        "threads": nlp.data.ShardedDataLoader(
            data_train, batch_sampler=train_batch_sampler, batchify_fn=train_batchify_fn,
            num_workers=workers, thread_pool=True, prefetch=3,
        ),
        "numbers": nlp.data.ShardedDataLoader(
            gluon.data.ArrayDataset(np.arange(12.0), np.arange(12)),
            batch_sampler=[[[0, 1], [2, 3]], [[4], [5, 6, 7]], [[11, 8], (9, 10)]],
            num_workers=workers, pin_memory=True,
        ),
        "validation": gluon.data.DataLoader(
            data_val, batch_sampler=val_batch_sampler, batchify_fn=train_batchify_fn, num_workers=workers
        ),
    }  # fmt: skip
    for name, loader in loaders.items():
        record.loader(name, loader)
    np.random.seed(100)
    by_tokens = nlp.data.ShardedDataLoader(
        data_train, batch_sampler=tokens_batch_sampler, batchify_fn=train_batchify_fn, num_workers=workers
    )
    for epoch in range(2):
        np.random.seed(100 + epoch)  # the sampler shuffles with NumPy's global generator
        for shards in by_tokens:
            record.batch(f"tokens {epoch}", shards)
        words = 0
        for shards in train_data_loader:
            record.batch(f"train {epoch}", shards)
            shards = [[array.as_in_context(mx.cpu()) for array in shard] for shard in shards]
            words += sum(int(shard[2].sum().asscalar()) for shard in shards)
        logging.info("[Epoch %d] %d words", epoch, words)
        for name in ("plain samples", "threads", "numbers", "validation"):
            for batch in loaders[name]:
                record.batch(f"{name} {epoch}", batch)


if __name__ == "__main__":
    main()
