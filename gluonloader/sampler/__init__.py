"""Samplers define the order in which a dataset is read, and batch samplers cut that order into batches.

ordered         deterministic samplers
shuffled        samplers that yield each index once, in random order
weighted        random samplers that follow weights
sharded         samplers for processes that train together: each process reads its share of an order or of a dataset
buckets         samplers that put samples of similar length together
mixture         several datasets in given shares
packing         rows of tokens that consist of several documents
token_batches   batches with a limited number of tokens

base            base classes, and BatchSampler
passes          iterators of one epoch
epochs          the epochs of samplers, also of a user's samplers
copies          copies of samplers for any epoch, to draw an order again
saved           the state of an iterator of one epoch, as JSON
bijection       a shuffled order of any length, without a table
windowed        the base class of samplers that plan one window of documents after another
"""
