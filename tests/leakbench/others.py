"""Jobs that no rule was made for, leaks beside healthy twins: `others.py` lists them, `others.py CASE` runs one (TRUTH=1: torch's own bytes at each step's end, in a summary). `# SITE` marks the line that allocates what is kept."""
from t import *

class Metric:
    """as metrics of libraries have it: states on the device, put together when asked"""
    def __init__(s): s.preds, s.target = [], []
    def update(s, p, t): s.preds.append(p); s.target.append(t)
    def compute(s): return (torch.cat(s.preds).sum(1) - torch.cat(s.target)).abs().mean()
    def reset(s): s.preds.clear(); s.target.clear()

# leaks
@case
def metric_without_reset():
    t = Base(2); m = Metric()
    for i in range(120):
        x = t.x(); out, _ = t.train(x)
        m.update(out.detach().clone(), x.sum(1))  # SITE
        if i % 20 == 19: m.compute()
        mark()

# leaks
@case
def losses_of_microbatches():
    """for a report that is never written, with their graphs, which retain_graph keeps alive"""
    t = Base(2); losses = []
    for i in range(240):
        l = t.net(t.x()).pow(2).mean() / 4; l.backward(retain_graph=True)  # SITE
        losses.append(l)
        if i % 4 == 3: t.opt.step(); t.opt.zero_grad(set_to_none=True); mark()

# leaks
@case
def handles_not_removed():
    """a hook for each step's mask, registered and forgotten"""
    t = Base(2)
    for i in range(80):
        mask = torch.rand(256, D, device="cuda")  # SITE
        t.net[0].register_forward_hook(lambda m, a, out, mask=mask: out * mask)
        t.train(); mark()

# leaks
@case
def scheduler_closures():
    """a scheduler for each phase of 6 steps, whose function has closed over the phase's importance weights"""
    t = Base(2); all = []
    for i in range(150):
        if i % 6 == 0:
            w = torch.rand(512, D, device="cuda")  # SITE
            all.append(torch.optim.lr_scheduler.LambdaLR(t.opt, lambda e, w=w: 1.0))
        t.train(); all[-1].step(); mark()

# leaks
@case
def penalty_kept():
    """a gradient penalty is logged with the graph that create_graph made"""
    t = Base(2); log = []
    for i in range(60):
        x = t.x().requires_grad_(True)
        g, = torch.autograd.grad(t.net(x).sum(), x, create_graph=True)  # SITE
        gp = (g.norm(dim=1) - 1).pow(2).mean(); gp.backward(retain_graph=True)
        log.append(gp); t.opt.step(); t.opt.zero_grad(set_to_none=True); mark()

# leaks
@case
def log_by_step():
    t = Base(2); log = {}
    for i in range(90):
        out, l = t.train(); log[i] = {"loss": l.item(), "sample": out[:16].detach()}; del out, l; mark()

# leaks
@case
def prefetcher_without_end():
    """two batches are fetched for each that is used"""
    t = Base(2); s, q = torch.cuda.Stream(), collections.deque()
    for i in range(120):
        for _ in range(2):
            with torch.cuda.stream(s): q.append(torch.randn(256, D, device="cuda"))  # SITE
        torch.cuda.current_stream().wait_stream(s); t.train(q.popleft()); mark()

# leaks
@case
def errors_kept():
    """one step in five fails, and its exception is kept with all frames"""
    t = Base(2); errors = []
    def one(i):
        x = torch.randn(256, D, device="cuda")  # SITE
        if i % 5 == 2: raise ValueError(i)
        t.train(x)
    for i in range(150):
        try: one(i)
        except ValueError as e: errors.append(e)
        mark()

SEEN = []

# leaks
@case
def list_of_the_file():
    """a layer that puts what it sees into a list of its file"""
    class Remembers(nn.Module):
        def forward(s, x): SEEN.append(x.mean(1)); return x * 1.0  # SITE
    t = Base(2); t.net.append(Remembers()); t.b = 2048
    for i in range(100): t.train(); mark()

# leaks
@case
def buffer_by_cat():
    """one block, which is made anew in every step, and larger each time"""
    t = Base(2); t.net.register_buffer("cache", torch.zeros(0, D, device="cuda"))
    for i in range(120):
        out, _ = t.train()
        t.net.cache = torch.cat([t.net.cache, out.detach()]); del out; mark()  # SITE

# leaks
@case
def packed_and_not_taken_back():
    """saved tensors are packed into a dict by number; what is unpacked is not taken out"""
    t = Base(2); d = {}
    def pack(x): d[len(d)] = x.clone(); return len(d) - 1  # SITE
    for i in range(60):
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda k: d[k]): t.train()
        mark()

# leaks
@case
def needles():
    """one step in thirty keeps its batch"""
    t = Base(2); kept = []
    for i in range(400):
        x = torch.randn(256, D, device="cuda")  # SITE
        t.train(x)
        if rng.random() < 0.03: kept.append(x)
        del x; mark()

# leaks
@case
def needles_of_a_server():
    """the same where nothing is trained: no optimizer, no backward"""
    net = mlp(2); kept = []; import time
    begin = time.monotonic(); i = 0
    while time.monotonic() - begin < 24:
        x = torch.randn(256, D, device="cuda")  # SITE
        with torch.no_grad(): net(x)
        if i % 150 == 77: kept.append(x)
        del x; i += 1; time.sleep(.004); mark()

# leaks
@case
def snapshots_of_weights():
    """for an average that is never made, every tenth step"""
    t = Base(2); kept = []
    for i in range(160):
        t.train()
        if i % 10 == 9: kept.append({k: v.detach().clone() for k, v in t.net.state_dict().items()})  # SITE
        mark()

# leaks
@case
def a_stream_for_each_batch():
    """torch hands out 32 streams in turn: of each little is kept"""
    t = Base(2); held = []
    for i in range(100):
        s = torch.cuda.Stream()
        with torch.cuda.stream(s): x = torch.randn(256, D, device="cuda")  # SITE
        torch.cuda.current_stream().wait_stream(s); held.append((s, x)); t.train(x); mark()

# leaks
@case
def results_of_a_pool():
    """a thread computes when the last optimizer has run already"""
    import concurrent.futures
    t = Base(2); pool = concurrent.futures.ThreadPoolExecutor(1); kept = []
    def statistics(x): return torch.stack([x.abs(), x.sign()])  # SITE
    for i in range(80):
        x = t.x(); t.train(x); f = pool.submit(statistics, x); kept.append(f); f.result(); mark()

# healthy
@case
def average_in_place():
    t = Base(2); e = [p.detach().clone() for p in t.net.parameters()]
    for i in range(150):
        t.train()
        with torch.no_grad(): torch._foreach_lerp_(e, list(t.net.parameters()), 0.01)
        mark()

# healthy
@case
def average_out_of_place():
    """new tensors in every step, the old ones go"""
    t = Base(2); e = {k: v.detach().clone() for k, v in t.net.state_dict().items()}
    for i in range(150):
        t.train(); e = {k: 0.99 * e[k] + 0.01 * v.detach() for k, v in t.net.state_dict().items()}; mark()

# healthy
@case
def accumulation():
    t = Base(2); seen = torch.zeros((), device="cuda")
    for i in range(240):
        l = t.net(t.x()).pow(2).mean() / 4; l.backward(); seen += l.detach()
        if i % 4 == 3: t.opt.step(); t.opt.zero_grad(set_to_none=True); mark()

# healthy
@case
def metric_with_reset():
    t = Base(2); m = Metric()
    for i in range(190):
        x = t.x(); out, _ = t.train(x); m.update(out.detach().clone(), x.sum(1))
        if i % 35 == 34: m.compute(); m.reset()
        mark()

# healthy
@case
def least_recently_used():
    """64 blocks of keys and values, asked for by popularity"""
    t = Base(2); c = collections.OrderedDict()
    for i in range(300):
        for _ in range(3):
            k = int(rng.paretovariate(0.5)) % 200
            if k in c: c.move_to_end(k)
            else: c[k] = torch.randn(2, 128, D, device="cuda")
            if len(c) > 64: c.popitem(last=False)
        t.train(); mark()

# healthy
@case
def replay_that_pops():
    t = Base(2); r = []
    for i in range(300):
        out, _ = t.train(); r.append(out.detach().clone()); del out
        if len(r) > 120: r.pop(0)
        mark()

# healthy
@case
def handles_removed():
    t = Base(2); kept = {}
    for i in range(120):
        h = t.net[0].register_forward_hook(lambda m, a, out: kept.__setitem__("last", out.detach()))
        t.train(); h.remove(); mark()

# healthy
@case
def penalty():
    t = Base(2); log = []
    for i in range(100):
        x = t.x().requires_grad_(True)
        g, = torch.autograd.grad(t.net(x).sum(), x, create_graph=True)
        gp = (g.norm(dim=1) - 1).pow(2).mean(); gp.backward(); log.append(gp.item())
        t.opt.step(); t.opt.zero_grad(set_to_none=True); mark()

# healthy
@case
def prefetcher():
    """up to six batches ahead, as many as are there"""
    t = Base(2); s, q = torch.cuda.Stream(), collections.deque()
    for i in range(200):
        for _ in range(rng.randint(0, 3)):
            if len(q) < 6:
                with torch.cuda.stream(s): q.append(torch.randn(256, D, device="cuda"))
        torch.cuda.current_stream().wait_stream(s)
        if q: t.train(q.popleft())
        else: t.train()
        mark()

# healthy
@case
def errors_handled():
    t = Base(2); last = None
    def one(i):
        x = torch.randn(256, D, device="cuda")
        if i % 5 == 2: raise ValueError(i)
        t.train(x)
    for i in range(150):
        try: one(i)
        except ValueError as e: last = e
        mark()

# healthy
@case
def window_by_cat():
    """one block, which is made anew in every step, and larger until it has the last 40 batches"""
    t = Base(2); w = torch.zeros(0, D, device="cuda")
    for i in range(200):
        out, _ = t.train(); w = torch.cat([w, out.detach()])[-40 * 256:]; del out; mark()

# healthy
@case
def answers_by_token():
    """keys and values that are put together token by token, of answers of many lengths, two of which run at once"""
    t = Base(2); running = []
    for i in range(240):
        while len(running) < 2: running.append([rng.randint(5, 60), torch.zeros(0, 64, D, device="cuda")])
        for r in running: r[0] -= 1; r[1] = torch.cat([r[1], torch.randn(1, 64, D, device="cuda")])
        running = [r for r in running if r[0] > 0]; t.train(); mark()

# healthy
@case
def snapshots_of_the_best():
    """five at most"""
    t = Base(2); kept = []
    for i in range(260):
        t.train()
        if i % 12 == 11: kept.append((rng.random(), i, {k: v.detach().clone() for k, v in t.net.state_dict().items()})); kept.sort(key=lambda k: k[:2]); del kept[5:]
        mark()

# healthy
@case
def losses_as_tensors():
    """numbers that are kept as tensors without a graph"""
    t = Base(2); log = []
    for i in range(150): out, l = t.train(); log.append(l.detach()); del out, l; mark()

main()
