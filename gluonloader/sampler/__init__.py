"""Samplers define the order in which a dataset is read, and batch samplers cut that order into batches.

ordered     deterministic samplers
shuffled    samplers that yield each index once, in random order
weighted    random samplers that follow weights
sharded     samplers for processes that train together: each process reads its share of an order or of a dataset
mixture     several datasets in given shares
function    the order that a function of the user returns for an epoch

base        the protocol, base classes, and BatchSampler
passes      what an order is, and the iterators of one epoch
saved       what a position in an order contains, as JSON
users       a user's samplers: their epochs, and copies that draw an order again
bijection   a shuffled order of any length, without a table
mixing      the steps of a mixture
"""
