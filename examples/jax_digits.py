"""Trains a network in plain JAX on scikit-learn's digits.

    pip install ".[examples,jax]"
    python examples/jax_digits.py

Batches are JAX arrays that refer to the shared memory that the workers wrote, without a copy.
"""

import jax
import jax.numpy as jnp
from digits import CLASSES, SIZE, load_datasets
from tqdm import tqdm

from gluonloader import DataLoader

EPOCHS, HIDDEN, RATE = 30, 128, 0.15


def layer(key, inputs, outputs):
    """Initial weights and biases of one layer."""
    return jax.random.normal(key, (inputs, outputs)) * (2 / inputs) ** 0.5, jnp.zeros(outputs)


def scores(network, images):
    (weights, bias), (out_weights, out_bias) = network
    hidden = jnp.maximum(images.reshape(len(images), -1) @ weights + bias, 0)
    return hidden @ out_weights + out_bias


def cross_entropy(network, images, labels):
    chances = jax.nn.log_softmax(scores(network, images))
    return -jnp.take_along_axis(chances, labels[:, None], axis=1).mean()


@jax.jit
def train(network, velocity, images, labels, rate):
    """Takes one step of gradient descent with momentum; also returns the loss of the batch."""
    loss, gradient = jax.value_and_grad(cross_entropy)(network, images, labels)
    velocity = jax.tree.map(lambda speed, slope: 0.9 * speed - rate * slope, velocity, gradient)
    return jax.tree.map(jnp.add, network, velocity), velocity, loss


def accuracy(network, loader):
    hits = [scores(network, images).argmax(axis=1) == labels for images, labels in loader]
    return jnp.concatenate(hits).mean()


def main():
    train_data, test_data = load_datasets()
    inner, outer = jax.random.split(jax.random.key(0))
    network = [layer(inner, SIZE * SIZE, HIDDEN), layer(outer, HIDDEN, CLASSES)]
    velocity = jax.tree.map(jnp.zeros_like, network)
    with DataLoader(
        train_data, batch_size=32, shuffle=True, last_batch="rollover", num_workers=2, seed=0, output="jax"
    ) as loader:
        for epoch in (bar := tqdm(range(EPOCHS), unit="epoch")):
            rate = RATE * (1 - epoch / EPOCHS)
            for images, labels in loader:
                network, velocity, loss = train(network, velocity, images, labels, rate)
            bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
    print(f"test accuracy: {accuracy(network, DataLoader(test_data, batch_size=120, output='jax')):.4f}")


if __name__ == "__main__":
    main()
