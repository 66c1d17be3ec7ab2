"""array_jobs.py JOB: JAX with flax and optax, CuPy, and numba, without PyTorch's allocator."""
import os
import sys

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
import seen


def _drawn(n=64, d=16):
    import numpy as np

    return np.random.default_rng(0).standard_normal((n, d)).astype("float32")


def flax_optax():
    import jax
    import jax.numpy as jnp
    import optax
    from flax import linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(1)(nn.relu(nn.Dense(64)(x)))

    net, x = Net(), jnp.asarray(_drawn())
    weights = net.init(jax.random.PRNGKey(0), x)
    optimizer = optax.adamw(1e-3)
    state = optimizer.init(weights)

    @jax.jit
    def step(weights, state):
        loss, grads = jax.value_and_grad(lambda w: jnp.mean(net.apply(w, x) ** 2))(weights)
        updates, state = optimizer.update(grads, state, weights)
        return optax.apply_updates(weights, updates), state, loss

    losses = []
    for _ in range(50):
        weights, state, loss = step(weights, state)
        losses.append(float(loss))
    return losses


def flax_nnx():
    import jax.numpy as jnp
    import optax
    from flax import nnx

    model = nnx.Sequential(nnx.Linear(16, 64, rngs=nnx.Rngs(0)), nnx.relu, nnx.Linear(64, 1, rngs=nnx.Rngs(1)))
    optimizer, x = nnx.Optimizer(model, optax.sgd(1e-2), wrt=nnx.Param), jnp.asarray(_drawn())

    @nnx.jit
    def step(model, optimizer):
        loss, grads = nnx.value_and_grad(lambda m: (m(x) ** 2).mean())(model)
        optimizer.update(model, grads)
        return loss

    return [float(step(model, optimizer)) for _ in range(30)]


def jax_scan():
    import jax
    import jax.numpy as jnp

    def body(carry, x):
        carry = jnp.tanh(carry @ jnp.ones((16, 16)) * 0.1 + x)
        return carry, carry.sum()

    f = jax.jit(jax.grad(lambda x: jax.lax.scan(body, jnp.zeros(16), x)[1].sum()))
    return [float(f(jnp.asarray(_drawn(n=20 + 10 * k))).sum()) for k in range(4)]


def equinox_diffrax():
    import diffrax
    import jax.numpy as jnp

    term = diffrax.ODETerm(lambda t, y, args: -y)
    out = [diffrax.diffeqsolve(term, diffrax.Tsit5(), 0, 1, 0.1, jnp.ones(8) * k) for k in range(1, 6)]
    return [float(o.ys.sum()) for o in out]


def numpyro_nuts():
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS

    x = jnp.asarray(_drawn(64, 3))

    def model(x, y=None):
        w = numpyro.sample("w", dist.Normal(jnp.zeros(3), 1.0))
        numpyro.sample("y", dist.Normal(x @ w, 0.5), obs=y)

    mcmc = MCMC(NUTS(model), num_warmup=50, num_samples=50, progress_bar=False)
    mcmc.run(jax.random.PRNGKey(0), x, x.sum(-1))
    return [float(v) for v in mcmc.get_samples()["w"].mean(0)]


def cupy_pool():
    import cupy as cp

    x, seen_so_far = cp.asarray(_drawn(512, 512)), []
    for i in range(30):
        y = cp.linalg.norm(x @ x.T + i)
        z = cp.fft.fft(x[: 64 + i])
        seen_so_far += [float(y), float(cp.abs(z).sum())]
    pool = cp.get_default_memory_pool()
    print("cupy", pool.used_bytes() > 0, pool.total_bytes() >= pool.used_bytes())
    pool.free_all_blocks()
    return seen_so_far


def cupy_async():
    import cupy as cp

    cp.cuda.set_allocator(cp.cuda.MemoryAsyncPool().malloc)
    kernel = cp.RawKernel("extern \"C\" __global__ void twice(float* x, int n) { int i = blockDim.x * blockIdx.x + threadIdx.x; if (i < n) x[i] *= 2; }", "twice")
    out = []
    with cp.cuda.Stream(non_blocking=True) as s:
        for n in (1000, 2000, 4000):
            x = cp.ones(n, dtype=cp.float32)
            kernel((n // 256 + 1,), (256,), (x, n))
            out.append(float(x.sum()))
        s.synchronize()
    return out


def numba_kernels():
    import numpy as np
    from numba import cuda

    @cuda.jit
    def add(a, b, c):
        i = cuda.grid(1)
        if i < c.size:
            c[i] = a[i] + b[i]

    out = []
    for n in (1000, 5000, 20000):
        a = cuda.to_device(np.arange(n, dtype=np.float32))
        c = cuda.device_array(n, dtype=np.float32)
        add[n // 128 + 1, 128](a, a, c)
        out.append(float(c.copy_to_host().sum()))
    return out


if __name__ == "__main__":
    run, _ = seen.chosen(seen.every(globals()), __doc__)
    seen.end(run())
