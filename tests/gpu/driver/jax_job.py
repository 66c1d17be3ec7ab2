"""JAX: jax_job.py leak|clean SECONDS. Its allocator is what XLA_PYTHON_CLIENT_ALLOCATOR says."""

import sys
import time

import jax
import jax.numpy as jnp

leaks, seconds = sys.argv[1] == "leak", float(sys.argv[2])
kept = []
weights = jnp.ones((2048, 2048), dtype=jnp.float32)


@jax.jit
def step(w, x):
    return w * 0.5 + x.mean(), (w @ w).sum()


def train(w):
    x = jnp.full((1024, 1024), 2.0, dtype=jnp.float32)
    w, loss = step(w, x)
    if leaks:
        kept.append(w + 1)  # LEAK
    jax.block_until_ready((w, loss))
    return w


end = time.monotonic() + seconds
while time.monotonic() < end:
    train(weights)
    time.sleep(0.1)
print("done", float(weights[0, 0]))
