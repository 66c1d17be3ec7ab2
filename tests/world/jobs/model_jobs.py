"""model_jobs.py JOB: libraries that build, quantize, offload or pack models, each with random weights and data drawn in place."""
import seen

torch = seen.start()
from torch import nn
from torch.nn import functional


def _mlp(out=8):
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, out)).cuda()


def _rows(n=16):
    return torch.randn(n, 64).cuda()


# vector-quantize-pytorch: three codebooks that are not trained but averaged at every step.
def residual_vq():
    from vector_quantize_pytorch import ResidualVQ

    encoder, decoder, losses = nn.Linear(64, 32).cuda(), nn.Linear(32, 64).cuda(), []
    quantizer = ResidualVQ(dim=32, codebook_size=64, num_quantizers=3, kmeans_init=False).cuda()
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()])
    for _ in range(16):
        x = torch.randn(8, 20, 64).cuda()
        y, _, commitment = quantizer(encoder(x))
        losses.append(seen.stepped(functional.mse_loss(decoder(y), x) + commitment.sum(), optimizer))
    return losses


# denoising-diffusion-pytorch with ema-pytorch: training, an averaged copy of the model, and samples from that copy.
def diffusion_ema():
    from denoising_diffusion_pytorch import GaussianDiffusion, Unet
    from ema_pytorch import EMA

    unet = Unet(dim=16, dim_mults=(1, 2), flash_attn=False)
    model, losses = GaussianDiffusion(unet, image_size=32, timesteps=20, sampling_timesteps=5).cuda(), []
    averaged, optimizer = EMA(model, beta=0.99, update_every=2).cuda(), torch.optim.Adam(model.parameters())
    for _ in range(14):
        losses.append(seen.stepped(model(torch.rand(4, 3, 32, 32).cuda()), optimizer))
        averaged.update()
    return losses + [averaged.ema_model.sample(batch_size=2).sum().item()]


# hqq: layers of 4 bits, unpacked for each use.
def hqq():
    from hqq.core.quantize import BaseQuantizeConfig, HQQLinear

    few = BaseQuantizeConfig(nbits=4, group_size=64)
    layers = [HQQLinear(nn.Linear(128, 128), few, compute_dtype=torch.float32, device="cuda") for _ in range(2)]
    model = nn.Sequential(layers[0], nn.ReLU(), layers[1])
    return [model(torch.randn(8, 128).cuda()).sum().item() for _ in range(14)]


# torchao: an optimizer whose states are in host memory, then weights of 8 bits.
def torchao_offload():
    from torchao.optim import CPUOffloadOptimizer
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    model = _mlp()
    optimizer = CPUOffloadOptimizer(model.parameters(), torch.optim.AdamW, fused=False)
    losses = [seen.stepped(model(_rows()).square().mean(), optimizer) for _ in range(20)]
    quantize_(model, Int8WeightOnlyConfig())
    with torch.no_grad():
        return losses + [model(_rows()).sum().item() for _ in range(14)]


# fairscale: activations that wait for their backward in host memory, then slices of a model that come to the GPU one by one.
def fairscale():
    from fairscale.experimental.nn import OffloadModel
    from fairscale.nn.checkpoint import checkpoint_wrapper

    wrapped = nn.Sequential(*[checkpoint_wrapper(_mlp(64), offload_to_cpu=True) for _ in range(3)])
    sliced = OffloadModel(
        model=nn.Sequential(*[nn.Linear(64, 64) for _ in range(8)]), device=torch.device("cuda"), offload_device=torch.device("cpu"),
        num_slices=3, checkpoint_activation=True, num_microbatches=2,
    )
    losses = []
    for model in (wrapped, sliced):
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        losses += [seen.stepped(model(_rows().requires_grad_()).square().mean(), optimizer) for _ in range(16)]
    return losses


# tensordict: modules that read and write named tensors, and a batch that lies in a file.
def tensordict():
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule, TensorDictSequential

    first = TensorDictModule(nn.Linear(16, 32), in_keys=["x"], out_keys=["h"])
    model = TensorDictSequential(first, TensorDictModule(nn.Linear(32, 4), in_keys=["h"], out_keys=["y"])).cuda()
    optimizer, losses = torch.optim.Adam(model.parameters()), []
    for _ in range(16):
        batch = TensorDict({"x": torch.randn(32, 16)}, [32]).to("cuda")
        losses.append(seen.stepped(model(batch)["y"].square().mean(), optimizer))
    kept = TensorDict({"x": torch.randn(32, 16)}, [32]).memmap("kept")
    return losses + [kept.to("cuda", non_blocking=True)["x"].sum().item()]


# litgpt: its GPT in lightning's Fabric, with two batches a step, then with its cache of keys and values.
def litgpt():
    import lightning
    from litgpt import GPT, Config

    config = Config(name="x", block_size=64, vocab_size=256, padded_vocab_size=256, n_layer=2, n_head=4, n_embd=64, intermediate_size=128)
    fabric, losses = lightning.Fabric(devices=1, accelerator="cuda"), []
    model = fabric.setup(GPT(config))
    optimizer = fabric.setup_optimizers(torch.optim.AdamW(model.parameters()))
    for step in range(40):
        tokens = torch.randint(0, 256, (4, 64)).cuda()
        with fabric.no_backward_sync(model, enabled=step % 2 == 0):
            loss = functional.cross_entropy(model(tokens).reshape(-1, 256), tokens.reshape(-1))
            fabric.backward(loss)
        if step % 2:
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    model.eval()
    model.max_seq_length = 64
    model.set_kv_cache(batch_size=1, device="cuda")
    with torch.no_grad():
        return losses + [model(torch.randint(0, 256, (1, 1)).cuda(), torch.tensor([place]).cuda()).sum().item() for place in range(14)]


# PyTorch alone: a model through torch.package, torch.export and a file of each, trained as exported and as compiled.
def packaged():
    from torch.package import PackageExporter, PackageImporter

    with PackageExporter("model.pt") as exporter:
        exporter.extern("**")
        exporter.save_pickle("model", "model.pkl", _mlp())
    model = PackageImporter("model.pt").load_pickle("model", "model.pkl")
    torch.export.save(torch.export.export(model, (_rows(4),)), "model.pt2")
    losses = []
    for made in (torch.export.load("model.pt2").module(), torch.compile(model, backend="aot_eager")):
        optimizer = torch.optim.SGD(made.parameters(), 0.1)
        losses += [seen.stepped(made(_rows(4)).sum(), optimizer) for _ in range(16)]
    return losses


if __name__ == "__main__":
    run, _ = seen.chosen(seen.every(globals()), __doc__)
    seen.end(run())
