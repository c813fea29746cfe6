"""Decodes JPEG images on two nodes of a Ray cluster, and goes on when one of them is taken away in mid-epoch.

pip install ".[ray,vision]" scikit-learn
python examples/many_nodes.py

Both nodes run on this machine: Ray's own test cluster starts them. On a real cluster, call `ray.init(address=...)` or
set RAY_ADDRESS, and leave out everything about `Cluster`.
"""

import io

import numpy as np
import ray
from PIL import Image
from ray.cluster_utils import Cluster
from sklearn.datasets import load_sample_images

from gluonloader import DataLoader, vision

IMAGES, BATCH, TAKEN_AT = 1200, 16, 25


class Photos:
    """The first sample image of scikit-learn, as JPEG files of different sizes in memory."""

    def __init__(self, count):
        photo = Image.fromarray(load_sample_images().images[0])
        self.files = [jpeg(photo.resize((240 + 20 * size, 180 + 15 * size))) for size in range(8)]
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        image = vision.decode(self.files[index % len(self.files)])
        return image[:160, :160], index


def jpeg(image):
    file = io.BytesIO()
    image.save(file, "jpeg")
    return file.getvalue()


def main():
    """Reads an epoch, and counts which batches have come."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    node = cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, logging_level="error", log_to_driver=False)
    seen = []
    with DataLoader(Photos(IMAGES), BATCH, shuffle=True, seed=0, num_workers=2, executor="ray") as loader:
        expected = [loader.indices(epoch=0, batch=number) for number in range(len(loader))]
        for number, (images, indices) in enumerate(loader):
            assert images.shape == (BATCH, 160, 160, 3)
            if number == TAKEN_AT:
                cluster.remove_node(node)
                print("one of two nodes is gone")
            seen.append(indices.tolist())
            images.mean(axis=(1, 2))  # stands for training
    ray.shutdown()
    cluster.shutdown()
    print(f"{len(seen)} batches, in order: {seen == expected}")
    print(f"every image once: {np.array_equal(np.sort(np.concatenate(seen)), np.arange(IMAGES))}")


if __name__ == "__main__":
    main()
