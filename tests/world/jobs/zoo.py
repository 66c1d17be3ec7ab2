"""zoo.py NAME: one healthy mini-job per feature of the ecosystem; prints what it computed. Bare and recorded must print and exit alike."""
import sys, os, warnings, json, random, tempfile
warnings.filterwarnings("ignore"); os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
name = sys.argv[1]
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0); random.seed(0); dev = "cuda"; torch.use_deterministic_algorithms(False); SIM = os.environ.get("WORLD_SIMULATED") == "1"; torch.backends.cudnn.enabled = not SIM
def mlp(d=256): return nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d)).to(dev)
def train(m, n=30, f=None, d=256, o=None):
    o = o or torch.optim.AdamW(m.parameters(), 1e-4)
    for i in range(n):
        l = m(torch.randn(32, d, device=dev)).square().mean(); o.zero_grad(); l.backward(); o.step(); f and f(i)
    return round(l.item(), 3)
def conv_net(): return nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 8, 3), nn.Flatten(), nn.LazyLinear(10)).to(dev)
def convs(n, **kw):
    m = conv_net(); m(torch.randn(2, 3, 32, 32, device=dev)); m = m.to(**kw) if kw else m; o = torch.optim.SGD(m.parameters(), .01)
    for i in range(n):
        x = torch.randn(8, 3, 32, 32, device=dev); x = x.to(**kw) if kw else x
        with torch.autocast("cuda", dtype=torch.bfloat16): l = m(x).float().square().mean()
        o.zero_grad(); l.backward(); o.step()
    return "ok"

def cudnn_bench(): torch.backends.cudnn.benchmark = True; return convs(30), convs(10, memory_format=torch.channels_last)
def cudnn_plain(): return convs(30)
def rnn():
    m = nn.LSTM(64, 128, 2, batch_first=True, dropout=.1).to(dev); o = torch.optim.Adam(m.parameters())
    for i in range(30): m(torch.randn(8, 20 + i % 7, 64, device=dev))[0].square().mean().backward(); o.step(); o.zero_grad()
def profiler():
    from torch.profiler import profile, ProfilerActivity, schedule
    m = mlp(); o = torch.optim.Adam(m.parameters())
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True, record_shapes=True, with_stack=True, schedule=schedule(wait=1, warmup=1, active=3, repeat=2)) as p:
        for i in range(15): l = m(torch.randn(32, 256, device=dev)).square().mean(); l.backward(); o.step(); o.zero_grad(); p.step()
    return len(p.key_averages()) > 10
def user_history():
    torch.cuda.memory._record_memory_history(max_entries=5000, stacks="all"); r = train(mlp(), 20); s = torch.cuda.memory._snapshot(); torch.cuda.memory._dump_snapshot(os.path.join(tempfile.gettempdir(), "zoo_%d.pickle" % os.getpid()))
    torch.cuda.memory._record_memory_history(enabled=None); return len(s["device_traces"][0]), len(s["segments"])
def mempool():
    p = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(p): x = [torch.empty(1 << 20, device=dev) for _ in range(8)]
    r = train(mlp()); del x; del p; torch.cuda.empty_cache(); return r
def threads():
    import threading
    def w(k):
        s = torch.cuda.Stream()
        with torch.cuda.stream(s): train(mlp(128), 40, d=128)
        s.synchronize()
    t = [threading.Thread(target=w, args=(k,)) for k in range(8)]; [x.start() for x in t]; [x.join() for x in t]
def _child(q, t, ev): t.add_(1); q.put(float(t.sum().item())); ev.wait(20)
def mp_spawn():
    import torch.multiprocessing as mp
    c = mp.get_context("spawn"); q = c.Queue(); ev = c.Event(); t = torch.ones(1000, device=dev); ps = [c.Process(target=_child, args=(q, t, ev)) for _ in range(2)]; [p.start() for p in ps]
    r = sorted(q.get(timeout=60) for _ in ps); ev.set(); [p.join() for p in ps]; return [p.exitcode for p in ps]
class DS(torch.utils.data.Dataset):
    def __len__(s): return 320
    def __getitem__(s, i): return torch.full((256,), float(i))
def loader():
    m = mlp(); o = torch.optim.Adam(m.parameters())
    for ep in range(3):
        for x in torch.utils.data.DataLoader(DS(), 16, num_workers=4, pin_memory=True, persistent_workers=False, prefetch_factor=4): l = m(x.to(dev, non_blocking=True)).mean(); o.zero_grad(); l.backward(); o.step()
def func():
    from torch.func import vmap, jacrev, hessian, jvp, functional_call
    f = lambda x: (x.sin() ** 2).sum()
    for i in range(20): h = vmap(hessian(f))(torch.randn(16, 8, device=dev)); j = jacrev(f)(torch.randn(8, device=dev)); jvp(f, (torch.randn(8, device=dev),), (torch.ones(8, device=dev),))
    return tuple(h.shape)
def resume():
    m = mlp(); o = torch.optim.AdamW(m.parameters()); train(m, 10, o=o); torch.save(dict(m=m.state_dict(), o=o.state_dict()), p := os.path.join(tempfile.gettempdir(), "zoo_%d.pt" % os.getpid()))
    torch.cuda.reset_peak_memory_stats(); torch.cuda.empty_cache(); c = torch.load(p, map_location=dev); m.load_state_dict(c["m"]); o.load_state_dict(c["o"]); os.unlink(p); return train(m, 20, o=o)
def graphs():
    m = mlp(); x = torch.randn(32, 256, device=dev); s = torch.cuda.Stream(); s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        for _ in range(3): m(x).sum().backward()
    torch.cuda.current_stream().wait_stream(s); g = torch.cuda.CUDAGraph(); o = torch.optim.SGD(m.parameters(), 1e-4, ); o.zero_grad(set_to_none=True)
    with torch.cuda.graph(g): l = m(x).square().mean(); l.backward(); o.step()
    for _ in range(50): x.copy_(torch.randn(32, 256, device=dev)); g.replay()
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()): m(x).sum().item()
    except RuntimeError as e: print("refused as due")
    gm = torch.cuda.make_graphed_callables(mlp(), (torch.randn(32, 256, device=dev, requires_grad=True),)); return train(gm, 20)
def triton_k():
    import triton, triton.language as tl
    globals().update(triton=triton, tl=tl)
    import tempfile, importlib.util
    p = tempfile.mkdtemp() + "/k.py"; open(p, "w").write("import triton, triton.language as tl\n@triton.autotune([triton.Config({'B': b}) for b in (128, 256, 512)], key=['n'])\n@triton.jit\ndef add(a, b, c, n, B: tl.constexpr):\n    i = tl.program_id(0) * B + tl.arange(0, B)\n    m = i < n\n    tl.store(c + i, tl.load(a + i, m) + tl.load(b + i, m), m)\n")
    sp = importlib.util.spec_from_file_location("k", p); k = importlib.util.module_from_spec(sp); sp.loader.exec_module(k)
    for n in (1000, 5000, 77777):
        a, b = torch.randn(n, device=dev), torch.randn(n, device=dev); c = torch.empty_like(a); k.add[lambda M: (triton.cdiv(n, M["B"]),)](a, b, c, n); assert torch.allclose(c, a + b)
def interop():
    import cupy, numba.cuda
    x = torch.arange(1000., device=dev)
    for i in range(30): y = cupy.from_dlpack(x) * 2; z = torch.from_dlpack(y); cupy.cuda.Stream.null.synchronize()
    n = numba.cuda.as_cuda_array(z); k = numba.cuda.jit("void(float32[:])")(lambda a: None); k[1, 32](n); return float(z.sum())
def jax_torch():
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"; import jax, jax.numpy as jnp
    g = jax.jit(jax.value_and_grad(lambda w, x: jnp.mean((x @ w) ** 2))); w = jnp.ones((256, 256))
    for i in range(30): v, dw = g(w, jnp.ones((32, 256)) * i); w = w - 1e-6 * dw
    return train(mlp(), 20)
def conv_jax():
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"; import jax, jax.numpy as jnp
    f = jax.jit(jax.grad(lambda k, x: jnp.mean(jax.lax.conv(x, k, (1, 1), "SAME") ** 2)))
    for i in range(10): f(jnp.ones((8, 3, 3, 3)), jnp.ones((4, 3, 32 + i % 2, 32)))
    return "ok"
def libs():
    for i in range(20):
        a = torch.randn(8, 64, 64, device=dev); a = a @ a.mT + torch.eye(64, device=dev) * 64; torch.linalg.cholesky(a); torch.linalg.eigh(a); torch.linalg.svd(a); torch.fft.fft2(a); s = a[0].relu().to_sparse_csr(); s @ a[0]; torch.linalg.solve(a, a); torch.sort(a.flatten()); torch.unique(a.round())
def attention():
    q = [torch.randn(2, 8, 512, 64, device=dev, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
    from torch.nn.attention import sdpa_kernel, SDPBackend
    for b in (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH, SDPBackend.CUDNN_ATTENTION):
        with sdpa_kernel(b):
            for i in range(10): F.scaled_dot_product_attention(*q, is_causal=True).sum().backward()
def compiled_max(): m = torch.compile(mlp(), mode="max-autotune"); return train(m, 20)
def flex():
    from torch.nn.attention.flex_attention import flex_attention
    f = torch.compile(flex_attention); q = torch.randn(1, 4, 256, 64, device=dev, requires_grad=True)
    for i in range(10): f(q, q, q).sum().backward()
def ddp1():
    import torch.distributed as d; os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 20000), RANK="0", WORLD_SIZE="1"); d.init_process_group("nccl")
    m = nn.parallel.DistributedDataParallel(mlp()); r = train(m); d.destroy_process_group(); return r
def fsdp1():
    import torch.distributed as d; from torch.distributed.fsdp import fully_shard; os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 20000), RANK="0", WORLD_SIZE="1"); d.init_process_group("nccl")
    m = mlp(); fully_shard(m); r = train(m); d.destroy_process_group(); return r
def signals():
    import signal, faulthandler; n = []; signal.signal(signal.SIGUSR1, lambda *a: n.append(1)); signal.setitimer(signal.ITIMER_REAL, .01, .01); signal.signal(signal.SIGALRM, lambda *a: n.append(2)); faulthandler.dump_traceback_later(.5, file=open(os.devnull, "w"))
    train(mlp(), 100, lambda i: os.kill(os.getpid(), signal.SIGUSR1)); signal.setitimer(signal.ITIMER_REAL, 0); return len(n) > 50
def oom_retry():
    B = 1 << 36; ok = None
    while B:
        try: x = torch.empty(B, device=dev); ok = B; break
        except torch.OutOfMemoryError: B //= 2
    del x; torch.cuda.empty_cache(); return train(mlp())
def pinned_offload():
    m = mlp()
    with torch.autograd.graph.save_on_cpu(pin_memory=True): return train(m, 40)
def optims():
    for O, k in ((torch.optim.AdamW, dict(fused=True)), (torch.optim.AdamW, dict(foreach=True)), (torch.optim.Adam, dict(capturable=True)), (torch.optim.Adafactor, {}), (torch.optim.SGD, dict(momentum=.9, fused=True))): m = mlp(); train(m, 15, o=O(m.parameters(), 1e-4, **k))
def cuda_core():
    from cuda.bindings import runtime as rt, driver as dr
    e, p = rt.cudaMalloc(1 << 20); e, s = rt.cudaStreamCreate(); e, q = rt.cudaMallocAsync(1 << 20, s); rt.cudaMemGetInfo(); rt.cudaFreeAsync(q, s); rt.cudaStreamSynchronize(s); rt.cudaFree(p); e, pool = rt.cudaDeviceGetDefaultMemPool(0); return train(mlp())
def ctypes_threads():
    import ctypes, threading; rt = ctypes.CDLL([l.split()[-1] for l in open("/proc/self/maps") if "libcudart" in l][0]) if any("libcudart" in l for l in open("/proc/self/maps")) else None
    def w():
        a, b = ctypes.c_size_t(), ctypes.c_size_t()
        for i in range(50): torch.cuda.mem_get_info(); rt and rt.cudaMemGetInfo(ctypes.byref(a), ctypes.byref(b)); rt and rt.cudaMemGetInfo(None, None)
    torch.cuda.init(); t = [threading.Thread(target=w) for _ in range(4)]; [x.start() for x in t]; [x.join() for x in t]
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(4) as ex: return list(ex.map(lambda k: train(mlp(64), 10, d=64) < 9, range(8)))
def hook_error():
    m = mlp(); m[0].register_full_backward_hook(lambda *a: 1 / 0)
    for i in range(5):
        try: m(torch.randn(4, 256, device=dev)).sum().backward()
        except ZeroDivisionError: print("raised as due")
    return train(mlp())
def cpp_ext():
    from torch.utils.cpp_extension import load_inline
    e = load_inline("zoo_ext", cpp_sources="#include <torch/extension.h>\n#include <cuda_runtime.h>\nstruct N : torch::autograd::Function<N> { static torch::Tensor forward(torch::autograd::AutogradContext*c, torch::Tensor x){ return x*2; } static torch::autograd::tensor_list backward(torch::autograd::AutogradContext*c, torch::autograd::tensor_list g){ size_t f,t; cudaMemGetInfo(&f,&t); void*p; cudaMalloc(&p,1<<20); cudaFree(p); cudaStream_t s; cudaStreamCreate(&s); cudaStreamSynchronize(s); cudaStreamDestroy(s); void*h; cudaMallocHost(&h,4096); cudaFreeHost(h); cudaMalloc(&p,(size_t)1<<50); cudaGetLastError(); return {g[0]*2}; } }; torch::Tensor f(torch::Tensor x){ return N::apply(x); }", functions=["f"], with_cuda=True)
    m = mlp(); return train(nn.Sequential(m, type("E", (nn.Module,), dict(forward=lambda s, x: e.f(x)))()), 30)
def asyncio_serve():
    import asyncio; m = mlp().eval()
    async def one(i):
        await asyncio.sleep(random.random() / 50)
        with torch.inference_mode(): return float(m(torch.randn(8, 256, device=dev)).sum()) < 1e9
    async def main(): return sum(await asyncio.gather(*(one(i) for i in range(200))))
    return asyncio.run(main())
def jit():
    m = torch.jit.script(mlp()); t = torch.jit.trace(mlp(), torch.randn(4, 256, device=dev)); return train(m, 20), train(t, 20)
def exit_in_thread():
    import threading; train(mlp(), 10); t = threading.Thread(target=lambda: train(mlp(), 100000), daemon=True); t.start(); import time; time.sleep(.5); print("leaving"); sys.stdout.flush(); sys.exit(3)
def os_exit(): train(mlp(), 20); print("leaving", flush=True); os._exit(5)
r = globals()[name](); torch.cuda.synchronize(); print("done", name, r)
import seen; seen.end()
