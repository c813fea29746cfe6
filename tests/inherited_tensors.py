"""What a dataset can share by torch; new interpreters import this file. See inherited.py."""

import torch
from inherited import Kind, Queue, Slots


class Tensor(Slots):
    def make(self, context):
        return torch.zeros(2, dtype=torch.int64).share_memory_()


class View(Slots):
    def make(self, context):
        self.whole = torch.zeros(3, 4, dtype=torch.bfloat16).share_memory_()
        return self.whole[1, 2:]


class Storage(Slots):
    def make(self, context):
        return torch.zeros(2, dtype=torch.int64).share_memory_().untyped_storage()


class Special(torch.Tensor):
    pass


class OfSubclass(Slots):
    def make(self, context):
        return torch.zeros(2).share_memory_().as_subclass(Special)


class Model(Slots):
    def make(self, context):
        return torch.nn.Linear(2, 1).share_memory()

    def tell(self, shared):
        super().tell(shared.weight.detach()[0])

    def use(self, shared):
        return super().use(shared.weight.detach()[0])

    def heard(self, shared):
        return super().heard(shared.weight.detach()[0])


class Same(Slots):
    """Two tensors of the same memory."""

    def make(self, context):
        tensor = torch.zeros(2, dtype=torch.int64).share_memory_()
        return tensor, tensor.view(2, 1)

    def tell(self, shared):
        super().tell(shared[0])

    def use(self, shared):
        return super().use(shared[1])

    def heard(self, shared):
        return super().heard(shared[0])


class Empty(Kind):
    def make(self, context):
        return torch.zeros(0).share_memory_()

    def tell(self, shared):
        pass

    def use(self, shared):
        return len(shared) == 0


class TensorQueue(Queue):
    def make(self, context):
        context = torch.multiprocessing.get_context(context.get_start_method())
        return context.Queue()


TENSORS = {kind.__name__: kind for kind in (Tensor, View, Storage, OfSubclass, Model, Same, Empty, TensorQueue)}


class Ordinary(Slots):
    """A tensor that is not shared."""

    def make(self, context):
        return torch.zeros(2, dtype=torch.int64)
