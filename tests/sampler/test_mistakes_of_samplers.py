"""Wrong arguments of samplers, and what the error says; ../mistakes.py explains the table."""

from pathlib import Path

import numpy as np
from mistakes import mistakes

from gluonloader import MixtureSampler, buckets
from gluonloader.text import TokenDataset

LENGTHS = KEYS = [5, 3, 8, 1, 9, 2, 7, 4, 6, 0]
CODE = Path("code.bin")
PAIRS = [(1, 2), (5, 3), (3, 9), (10, 1), (2, 2), (7, 7)]


def mix(sources=(3, 4), weights=None, **arguments):
    return MixtureSampler(sources, weights, seed=0, **arguments)


def documents(*lengths):
    return TokenDataset([np.zeros(length, int) for length in lengths])


@mistakes(
    {**vars(buckets), **globals()},
    r"""
# order and length
BatchSampler(range(3), 0) -> batch_size=0: must be the number of samples in a batch, an int >= 1
BatchSampler(range(3), -1) -> batch_size=-1: must be the number of samples in a batch, an int >= 1
BatchSampler(range(3), 2.0) -> batch_size=2.0: must be the number of samples in a batch, an int >= 1
BatchSampler(range(3), "2") -> batch_size='2': must be the number of samples in a batch, an int >= 1
BatchSampler(range(3), True) -> batch_size=True: must be the number of samples in a batch, an int >= 1
BatchSampler(range(3), None) -> batch_size=None: must be the number of samples in a batch, an int >= 1
BatchSampler(range(3), 2, "drop") -> last_batch=...'keep', 'discard' or 'rollover'...
BatchSampler(range(3), 2, None) -> last_batch=None: must be 'keep', 'discard' or 'rollover'
BatchSampler(range(3), 2, True) -> last_batch=...'keep', 'discard' or 'rollover'...
BatchSampler(range(3), 2, 3) -> last_batch=3: must be 'keep', 'discard' or 'rollover'
IntervalSampler(3, 0) -> interval=0: must be an int from 1 to length (3)
IntervalSampler(3, 4) -> interval=4: must be an int from 1 to length (3)
IntervalSampler(3, -1) -> interval=-1: must be an int from 1 to length (3)
IntervalSampler(0, 1) -> interval=1: must be an int from 1 to length (0)
SequentialSampler(-1) -> length=-1: must be the number of samples, an int >= 0, e.g. len(dataset)
SequentialSampler(2.5) -> length=2.5: must be the number of samples, an int >= 0, e.g. len(dataset)
SequentialSampler("3") -> length='3': must be the number of samples, an int >= 0, e.g. len(dataset)
SequentialSampler(None) -> length=None: must be the number of samples, an int >= 0, e.g. len(dataset)
SequentialSampler(True) -> length=True: must be the number of samples, an int >= 0, e.g. len(dataset)
RandomSampler(-1) -> length=-1: must be the number of samples, an int >= 0, e.g. len(dataset)
RandomSampler(True) -> length=True: must be the number of samples, an int >= 0, e.g. len(dataset)
IntervalSampler(-1, 1) -> length=-1: must be the number of samples, an int >= 0, e.g. len(dataset)
RandomSampler(9, generator=1) -> TypeError: RandomSampler() has no argument generator: pass an int as seed instead
RandomSampler(9, replacement=True) -> TypeError: ...replacement: remove replacement; WeightedSampler(np.ones...
RandomSampler(9, num_samples=3) -> TypeError: ...num_samples: remove num_samples; WeightedSampler(np.ones...
RandomSampler(data_source=[1]) -> TypeError: ...data_source: pass length=len(dataset) instead
WeightedSampler([1], generator=1)
    -> TypeError: WeightedSampler() has no argument generator: pass an int as seed instead
BatchSampler([1], 1, drop_last=True) -> TypeError: BatchSampler() has no ... drop_last: pass last_batch="disc...
RandomSampler(9, sede=1) -> TypeError: RandomSampler() got an unexpected keyword argument 'sede'; did you mean seed?
RandomSampler(2**62 + 1) -> length=4611686018427387905: must be at most 2**62
RandomSampler(5, method="table") -> method='table': must be 'permutation', 'bijection', or None...
RandomSampler(5, seed="x") -> seed='x': must be an int
RandomSampler(5, seed=1.0) -> seed=1.0: must be an int
SubsetSampler([1.5]) -> indices: pass a list or an array of ints, not values of shape (1,) and dtype float64
SubsetSampler("ab") -> indices: pass a list or an array of ints (invalid literal for int() with base 10: 'ab')
SubsetSampler([[1, 2]]) -> indices: pass a list or an array of ints, not values of shape (1, 2) and dtype int64
SubsetSampler([[1], [1, 2]]) -> indices: pass a list or an array of ints...
SubsetSampler(None) -> indices: pass a list or an array of ints...
SubsetSampler([True, False]) -> indices: pass a list or an array of ints, not values of shape (2,) and dtype bool
SubsetSampler({1, 2}) -> indices: pass a list or an array of ints...
SubsetSampler([1], shuffle="no") -> shuffle='no': must be True or False
BlockShuffleSampler([3, -1]) -> blocks=-1: all lengths must be >= 0
BlockShuffleSampler([1.5]) -> blocks: pass a list or an array of ints, not values of shape (1,) and dtype float64
BlockShuffleSampler([1], buffer=0) -> buffer=0: must be an int >= 1
BlockShuffleSampler.of_size(5, 0) -> block_size=0: must be an int >= 1
BlockShuffleSampler.of_size(-5, 2) -> length=-5: must be the number of samples, an int >= 0, e.g. len(dataset)
WeightedSampler([]) -> weights: pass a number >= 0 for each sample, and at least one number > 0; their sum is 0.0
WeightedSampler([0, 0]) -> weights: pass a number >= 0 for each sample, and at least one number > 0; their sum is 0.0
WeightedSampler([1, -2]) -> weights: ...weights[1] is -2...
WeightedSampler([1, float("nan")]) -> weights: ...weights[1] is nan
WeightedSampler([float("inf")]) -> weights: ...weights[0] is inf
WeightedSampler([1e308, 1e308]) -> weights: ...sum is inf
WeightedSampler([[1, 2]]) -> weights: ...not values of shape (1, 2)
WeightedSampler(["a"]) -> weights: ...could not convert...
WeightedSampler(None) -> weights: pass a number >= 0...
WeightedSampler([1, 2], num_samples=-1) -> num_samples=-1: must be an int >= 0
WeightedSampler([1, 2], num_samples=2.5) -> num_samples=2.5: must be an int >= 0
WeightedSampler([1, 2], num_samples=3, replacement=False)
    -> num_samples=3: must be at most 2, the number of weights > 0, if replacement=False
WeightedSampler([1, 0], replacement=False)
    -> num_samples=2: must be at most 1, the number of weights > 0, if replacement=False
WeightedSampler([1, 2], replacement="no") -> replacement='no': must be True or False
WeightedSampler([1, 2], seed="x") -> seed='x': must be an int
# ranks
ShardedSampler(range(5), 0, 0) -> num_shards=0: must be an int >= 1
ShardedSampler(range(5), 2.0, 0) -> num_shards=2.0: must be an int >= 1
ShardedSampler(range(5), 2, 2) -> index=2: must be an int from 0 to num_shards - 1 (1)
ShardedSampler(range(5), 2, -1) -> index=-1: must be an int >= 0
ShardedSampler(range(5), 2, 0, "uneven") -> even='uneven': must be 'pad', 'drop' or 'keep'
ShardedSampler(RandomSampler(5), 2, 0) -> sampler=RandomSampler(5): ...set the same seed...
ShardedSampler(WeightedSampler([1, 2]), 2, 0) -> sampler=...set the same seed...
ShardedSampler(5, 2, 0) -> sampler=5: it has no length; pass a sampler or indices, e.g. range(len(dataset))
ShardedSampler(iter([1]), 2, 0) -> sampler=...: it has no length...
ShardedSampler(range(5), num_replicas=2)
    -> TypeError: ShardedSampler() has no argument num_replicas: pass num_shards instead
ShardedSampler(range(5), rank=0) -> TypeError: ShardedSampler() has no argument rank: pass index instead
ShardedSampler(range(5), shuffle=True)
    -> TypeError: ...shuffle: pass sampler=RandomSampler(len(dataset), seed=...) instead
ShardedSampler(range(5), drop_last=True) -> TypeError: ...drop_last: pass even="drop" instead
ShardedSampler.of_rank(range(4), "slurm") -> source='slurm': must be 'torch', 'mpi' or 'env'
# functions of the epoch
DataLoader(range(20), 3, sampler=lambda epoch: np.random.permutation(20))
    -> ...it returns another order when it is called again ...default_rng...
DataLoader(range(20), 3, sampler=lambda epoch: 5)
    -> sampler=...it returned 5 for epoch 0; let it return a list or an array
DataLoader(range(20), 3, sampler=lambda epoch: "ab") -> ...it returned 'ab' for epoch 0...
DataLoader(range(20), 3, sampler=np.random.permutation) -> ...it returned no index for epoch 0...
DataLoader(range(20), 3, sampler=lambda: range(5))
    -> sampler=...it must accept one argument, the number of the epoch...
DataLoader(IterableDataset(range(9)), 2, sampler=range)
    -> ...is an iterable dataset, which sets the order itself; remove sampler
# mixtures
mix([]) -> sources=[]: pass at least one dataset, in a list or a dict
mix([3, 0]) -> len(sources[1])=0: it has no samples; remove it
mix([3, iter([])]) -> sources[1]...must be a dataset with a length...
mix(iter([3, 4])) -> sources=<list_iterator object at ...>: pass at least one dataset, in a list or a dict
mix("web.bin") -> sources='web.bin': pass at least one dataset, in a list or a dict
mix([3, "web.bin"]) -> sources[1]='web.bin': it is a path or a name: pass a dataset, such as TokenDataset(path)
mix({"web": 3, "code": CODE}) -> sources['code']=...it is a path or a name...
mix({"web": 3, "code": 0}) -> len(sources['code'])=0: it has no samples; remove it
mix({"web": 3, "code": 4}, {"web": 1}) -> weights={'web': 1}: the names are ['web', 'code']
mix(weights={"web": 1}) -> weights={'web': 1}: the sources have no names; pass a list
mix([documents(0, 0), documents(1)], unit="tokens") -> sources[0]: its documents have no tokens...
mix(weights=[1]) -> weights=[1]: pass 2 numbers >= 0, one for each dataset, and at least one number > 0
mix(weights=[0, 0]) -> weights=[0, 0]: pass 2 numbers >= 0, one for each dataset, and at least one number > 0
mix(weights=[1, float("nan")]) -> ...pass 2 numbers >= 0...
mix(weights=[1, 1], temperature=2) -> weights, temperature and epochs all set the shares; pass one of them
mix(temperature=0) -> temperature=0: must be a number > 0
mix(unit="words") -> unit='words': must be 'samples' or 'tokens'
mix(unit="tokens") -> ...unit='tokens' needs the lengths of its samples; pass a TokenDataset...
mix(stop="never") -> stop='never': must be 'first' or 'all'...
mix(num_samples=0) -> num_samples=0: must be an int >= 1
mix(samplers=[SequentialSampler(3)]) -> samplers=[SequentialSampler(3)]: pass 2 samplers, one for each dataset
mix(samplers=[SequentialSampler(3), iter([])]) -> samplers[1]...must be a sampler of gluonloader...
mix(samplers=[SequentialSampler(3), []]) -> samplers[1]=[]: it must have a length, and at least one index
mix(samplers=[SequentialSampler(3), RandomSampler(4)]) -> ...its order has no seed; pass seed=... to it
mix(samplers=[SequentialSampler(3), WeightedSampler([1] * 4, seed=0)]) -> ...its weights may change...
mix(samplers=[SequentialSampler(3), ShardedSampler(range(4), 2, 0)]) -> ...pass ranks to the loader instead
[*mix(samplers=[[0, 3], range(4)], num_samples=20)]
    -> samplers[0]...the index 3, but the dataset has 3 samples...
[*mix(samplers=[[-1, 0, 1], range(4)], num_samples=20)]
    -> samplers[0]...the index -1, but the dataset has 3 samples...
mix().schedule([(300, [0, 1])], linear=True)
    -> ...linear=True changes the weights from one place to another; pass at least two
mix().schedule({300: [0, 1]}) -> changes={300: [0, 1]}: must be pairs (k, weights)...
mix().schedule((300, [0, 1])) -> changes=(300, [0, 1]): must be pairs (k, weights)...
mix().schedule([(0, [1, 0]), (300, [0, 1]), (300, [1, 0])])
    -> k=300: two changes have this place; ... pass k and k + 1
# buckets and splits
FixedBucketSampler([1, 9, 2, 10], 2, bucket_keys=[4, 8])
    -> lengths[1]=9: no bucket is large enough: the last key is 8; add a larger key to bucket_keys
FixedBucketSampler(PAIRS, 2, bucket_keys=[(10, 3), (5, 9)]) -> lengths[5]=(7, 7): no bucket is large enough...
FixedBucketSampler([5], 2, bucket_scheme=lambda most, least, number: [most - 1]) -> lengths[0]=5: no bucket...
FixedBucketSampler(PAIRS, 2, bucket_keys=[4, 12]) -> bucket_keys=4: must be like the lengths, e.g. (1, 2)
FixedBucketSampler([1, 2], 2, bucket_keys=[(4, 4)]) -> bucket_keys=(4, 4): must be like the lengths, e.g. 1
FixedBucketSampler([1, 2], 2, bucket_keys=[]) -> bucket_keys: pass at least one int >= 0...
FixedBucketSampler([1, 2], 2, bucket_keys=[2.5]) -> bucket_keys: pass at least one int >= 0...
FixedBucketSampler([1, 2], 2, bucket_keys=[4, -1]) -> bucket_keys[1]=-1: a length must be >= 0
FixedBucketSampler([], 2) -> lengths: pass at least one int >= 0...
FixedBucketSampler([1, -2], 2) -> lengths[1]=-2: a length must be >= 0
FixedBucketSampler([(1, 2), (1, -1)], 2) -> lengths[1]=(1, -1): a length must be >= 0
FixedBucketSampler([1.5, 2.0], 2) -> lengths: pass at least one int >= 0, ... dtype float64
FixedBucketSampler(["ab"], 2) -> lengths: pass at least one int >= 0...
FixedBucketSampler([True], 2) -> lengths: pass at least one int >= 0...
FixedBucketSampler([(1, 2), (1,)], 2) -> lengths: pass at least one int >= 0...
FixedBucketSampler([2**70], 2) -> lengths: pass at least one int >= 0...
FixedBucketSampler([[[1]]], 2) -> lengths: pass at least one int >= 0...
FixedBucketSampler(3, 2) -> lengths: pass at least one int >= 0...
FixedBucketSampler(None, 2) -> lengths: pass at least one int >= 0...
FixedBucketSampler(LENGTHS, 0) -> batch_size=0: must be an int >= 1
FixedBucketSampler(LENGTHS, 2.0) -> batch_size=2.0: must be an int >= 1
FixedBucketSampler(LENGTHS, 2, num_buckets=0) -> num_buckets=0: must be an int >= 1
FixedBucketSampler(LENGTHS, 2, ratio=-1) -> ratio=-1: must be a number >= 0
FixedBucketSampler(LENGTHS, 2, ratio=float("nan")) -> ratio=nan: must be a number >= 0
FixedBucketSampler(LENGTHS, 2, ratio="x") -> ratio='x': must be a number >= 0
FixedBucketSampler(LENGTHS, 2, shuffle="yes") -> shuffle='yes': must be True or False
FixedBucketSampler(LENGTHS, 2, use_average_length=None) -> use_average_length=None: must be True or False
FixedBucketSampler(LENGTHS, 2, bucket_scheme=2)
    -> bucket_scheme=2: must be ConstWidthBucket()... for num_shards, use Split
FixedBucketSampler(LENGTHS, 2, shuffle=True, seed="x") -> seed='x': must be an int
ExpWidthBucket(0) -> bucket_len_step=0: must be a number > 0
ExpWidthBucket(-1) -> bucket_len_step=-1: must be a number > 0
ExpWidthBucket(float("nan")) -> bucket_len_step=nan: must be a number > 0
ExpWidthBucket(float("inf")) -> bucket_len_step=inf: must be a number > 0
ExpWidthBucket("x") -> bucket_len_step='x': must be a number > 0
ExpWidthBucket(None) -> bucket_len_step=None: must be a number > 0
ExpWidthBucket(True) -> bucket_len_step=True: must be a number > 0
ConstWidthBucket()(10, 1, 0) -> num_buckets=0: must be an int >= 1
LinearWidthBucket()(10, 1, 0) -> num_buckets=0: must be an int >= 1
ExpWidthBucket()(10, 1, 0) -> num_buckets=0: must be an int >= 1
SortedBucketSampler(KEYS, 0) -> batch_size=0: must be an int >= 1
SortedBucketSampler(KEYS, 2, mult=0.5) -> mult=0.5: must be a number >= 1, the number of batches in a bucket
SortedBucketSampler(KEYS, 2, mult="2") -> mult='2': must be a number >= 1, the number of batches in a bucket
SortedBucketSampler(KEYS, 2, reverse=None) -> reverse=None: must be True or False
SortedBucketSampler(KEYS, 2, shuffle=2.5) -> shuffle=2.5: must be True or False
SortedBucketSampler(KEYS, 2, shuffle=True, seed=1.5) -> seed=1.5: must be an int
SortedBucketSampler(iter(KEYS), 2) -> sort_keys=...pass a list or an array...
SortedSampler({3, 1}) -> sort_keys={1, 3}: pass a list or an array with one key for each sample
SortedSampler(KEYS, reverse="no") -> reverse='no': must be True or False
SplitSampler(-1) -> length=-1: must be an int >= 0
SplitSampler(5.0) -> length=5.0: must be an int >= 0
SplitSampler(5, 0) -> num_parts=0: must be an int >= 1
SplitSampler(5, 2, 2) -> part_index=2: must be an int from 0 to num_parts - 1 (1)
SplitSampler(5, 2, -1) -> part_index=-1: must be an int >= 0
SplitSampler(5, 2, 0, repeat=0) -> repeat=0: must be an int >= 1
SplitSampler(5, 2, 0, even_size=2.5) -> even_size=2.5: must be True or False
SplitSampler(5, 2, 0, shuffle=None) -> shuffle=None: must be True or False
SplitSampler(5, 2, seed="x") -> seed='x': must be an int
""",
)
def test_a_wrong_argument_is_named(mistake):
    mistake.check()
