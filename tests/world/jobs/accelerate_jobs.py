"""accelerate_jobs.py JOB: accelerate's Accelerator and its utilities, on its own test_utils.training models where it has them."""
import seen

torch = seen.start()
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.test_utils.training import RegressionDataset, RegressionModel
from accelerate.utils import find_executable_batch_size, set_seed
from torch.utils.data import DataLoader


def _train(accelerator, steps=48, folder=None):
    set_seed(0)
    model, data = RegressionModel(), DataLoader(RegressionDataset(length=96, seed=0), batch_size=8, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1 / (1 + n))
    model, optimizer, data, schedule = accelerator.prepare(model, optimizer, data, schedule)
    losses, done = [], 0
    while done < steps:
        for batch in data:
            with accelerator.accumulate(model):
                loss = torch.nn.functional.mse_loss(model(batch["x"]), batch["y"])
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            losses.append(loss.item())
            done += 1
        if folder:
            accelerator.save_state(f"{folder}/{done}")
    return losses


def plain():
    return _train(Accelerator())


def accumulated():
    return _train(Accelerator(gradient_accumulation_steps=4, mixed_precision="bf16"))


def scaled():
    return _train(Accelerator(mixed_precision="fp16"))


def saved():
    a = Accelerator()
    losses = _train(a, 24, "state")
    a.load_state("state/24")
    return losses


def dispatched():
    return _train(Accelerator(dataloader_config=DataLoaderConfiguration(dispatch_batches=True, split_batches=True)))


def batch_size_found():
    """find_executable_batch_size meets out-of-memory errors until a batch fits."""
    tried = []
    torch.cuda.set_per_process_memory_fraction(0.05)  # others are on the card

    @find_executable_batch_size(starting_batch_size=1 << 15)
    def train(size):
        tried.append(size)
        net = torch.nn.Linear(1024, 1024).cuda()
        held = torch.empty(size, 1024, 256, device="cuda")  # 1 MiB a row
        del held
        return net(torch.randn(64, 1024, device="cuda")).square().mean().item()

    loss = train()
    print("sizes tried:", len(tried) > 1)
    return [loss]


def oom_in_backward():
    """The same, where the forward fits and its gradient does not: the error is raised on autograd's own thread."""
    share = 0.05
    torch.cuda.set_per_process_memory_fraction(share)
    fits = int(torch.cuda.get_device_properties(0).total_memory * share) >> 20
    tried = []

    @find_executable_batch_size(starting_batch_size=int(0.4 * fits))
    def train(size):
        tried.append(size)
        x = torch.ones(size, 1 << 18, device="cuda", requires_grad=True)  # 1 MiB a row
        doubled = x * 2
        doubled.sum().backward()
        return x.grad.shape[0] == size

    print("fits at last:", train(), "after", len(tried))
    return []


def offloaded():
    """A model whose layers lie on the CPU and come to the card one after the other."""
    from accelerate import cpu_offload

    net = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(6)])
    cpu_offload(net, execution_device=torch.device("cuda:0"))
    with torch.no_grad():
        return [net(torch.randn(16, 512)).mean().item() for _ in range(20)]


def dispatched_model():
    from accelerate import dispatch_model

    net = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(4)])
    net = dispatch_model(net, {"0": 0, "1": 0, "2": "cpu", "3": "disk"}, offload_dir="offload")
    with torch.no_grad():
        return [net(torch.randn(16, 256)).mean().item() for _ in range(20)]


if __name__ == "__main__":
    run, _ = seen.chosen(seen.every(globals()), __doc__)
    seen.end(run())
