"""more_jobs.py JOB: one training each with other libraries' own trainers, on synthetic data made in place."""
import os
import shutil
import tempfile

import seen

torch = seen.start()
import numpy as np
from torch import nn


def _table(n=256, features=16, classes=3):
    draw = np.random.default_rng(0)
    return draw.standard_normal((n, features)).astype("float32"), draw.integers(0, classes, n)


def sentence_transformers():
    import transformers as tf
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments, losses
    try:
        from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    except ImportError:
        from sentence_transformers.models import Pooling, Transformer

    words = [f"w{i}" for i in range(60)]
    os.makedirs("base", exist_ok=True)
    with open("base/vocab.txt", "w") as f:
        f.write("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
    tf.BertTokenizerFast("base/vocab.txt").save_pretrained("base")
    tf.BertModel(tf.BertConfig(vocab_size=65, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128)).save_pretrained("base")
    layer = Transformer("base")
    model = SentenceTransformer(modules=[layer, Pooling(64)], device="cuda")
    say = lambda i, n: " ".join(words[(i * 5 + k * 3) % 60] for k in range(n))
    rows = seen.rows([{"anchor": say(i, 5 + i % 9), "positive": say(i, 4 + i % 5)} for i in range(128)])
    args = SentenceTransformerTrainingArguments("out", max_steps=16, per_device_train_batch_size=8, logging_steps=1, report_to=[], save_strategy="no", disable_tqdm=True)
    trainer = SentenceTransformerTrainer(model, args, train_dataset=rows, loss=losses.MultipleNegativesRankingLoss(model))
    trainer.train()
    vectors = model.encode([say(i, 6) for i in range(32)], show_progress_bar=False)
    return [h["loss"] for h in trainer.state.log_history if "loss" in h] + [float(np.abs(vectors).sum())]


# diffusers: a UNet from its config, its schedulers, its EMA and its pipeline.
def diffusers_ddpm():
    from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel
    from diffusers.optimization import get_cosine_schedule_with_warmup
    from diffusers.training_utils import EMAModel

    net = UNet2DModel(sample_size=16, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(32, 64), norm_num_groups=8,
                      down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"), attention_head_dim=8).cuda()
    noise, ema = DDPMScheduler(num_train_timesteps=50), EMAModel(net.parameters())
    optimizer = torch.optim.AdamW(net.parameters(), 1e-4)
    schedule, losses = get_cosine_schedule_with_warmup(optimizer, 4, 24), []
    for _ in range(24):
        x, e, t = torch.randn(4, 3, 16, 16).cuda(), torch.randn(4, 3, 16, 16).cuda(), torch.randint(0, 50, (4,)).cuda()
        loss = nn.functional.mse_loss(net(noise.add_noise(x, e, t), t).sample, e)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step(), schedule.step(), optimizer.zero_grad(), ema.step(net.parameters())
        losses.append(loss.item())
    pipe = DDPMPipeline(net.eval(), noise)
    pipe.set_progress_bar_config(disable=True)
    made = pipe(batch_size=2, num_inference_steps=8, output_type="np", generator=torch.Generator().manual_seed(0)).images
    return losses + [float(made.sum())]


def diffusers_vae():
    from diffusers import AutoencoderKL

    net = AutoencoderKL(block_out_channels=(16, 32), down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2, norm_num_groups=8, latent_channels=4).cuda()
    net.enable_gradient_checkpointing()
    optimizer, losses = torch.optim.AdamW(net.parameters(), 1e-4), []
    for _ in range(12):
        x = torch.randn(2, 3, 32, 32).cuda()
        posterior = net.encode(x).latent_dist
        loss = nn.functional.mse_loss(net.decode(posterior.sample()).sample, x) + 1e-4 * posterior.kl().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


# stable-baselines3 on its own small environments.
def _sb3(kind, env, steps, **more):
    import stable_baselines3 as sb3

    model = getattr(sb3, kind)("MlpPolicy", env, seed=0, device="cuda", **more)
    model.learn(steps)
    model.save("agent.zip")
    return [float(p.detach().float().sum()) for p in list(model.policy.parameters())[:4]]


def sb3_ppo():
    import gymnasium

    return _sb3("PPO", gymnasium.make("CartPole-v1"), 512, n_steps=128, batch_size=64, n_epochs=4)


def sb3_dqn():
    import gymnasium

    return _sb3("DQN", gymnasium.make("CartPole-v1"), 600, learning_starts=100, train_freq=4, buffer_size=1000)


def sb3_sac():
    import gymnasium

    return _sb3("SAC", gymnasium.make("Pendulum-v1"), 200, learning_starts=50, buffer_size=500)


# monai: its trainer, network, loss and synthetic images.
def monai_unet():
    import monai
    from monai.data import DataLoader, Dataset, create_test_image_2d
    from monai.engines import SupervisedTrainer
    from monai.networks.nets import UNet

    rows = []
    for i in range(24):
        image, label = create_test_image_2d(48, 48, num_seg_classes=1, rad_max=12, channel_dim=0, random_state=np.random.RandomState(i))
        rows.append({"image": torch.tensor(image).float(), "label": torch.tensor(label > 0).float()})
    net, losses = UNet(2, 1, 1, channels=(8, 16, 32), strides=(2, 2)).cuda(), []
    trainer = SupervisedTrainer(
        device=torch.device("cuda"), max_epochs=3, train_data_loader=DataLoader(Dataset(rows), num_workers=0, batch_size=4), network=net,
        optimizer=torch.optim.Adam(net.parameters(), 1e-3), loss_function=monai.losses.DiceLoss(sigmoid=True), amp=False,
    )
    from monai.engines import IterationEvents

    trainer.add_event_handler(IterationEvents.LOSS_COMPLETED, lambda e: losses.append(e.state.output["loss"].item()))
    trainer.run()
    return losses


def monai_sliding():
    from monai.inferers import sliding_window_inference
    from monai.networks.nets import SegResNet

    net = SegResNet(3, init_filters=8, in_channels=1, out_channels=2).cuda().eval()
    with torch.no_grad():
        return [float(sliding_window_inference(torch.randn(1, 1, 40, 40, 40).cuda(), (32, 32, 32), 2, net).sum()) for _ in range(3)]


def gpytorch_exact():
    import gpytorch

    class Model(gpytorch.models.ExactGP):
        def __init__(self, x, y, likelihood):
            super().__init__(x, y, likelihood)
            self.mean_module, self.covar_module = gpytorch.means.ConstantMean(), gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    x = torch.linspace(0, 1, 100).cuda()
    y = torch.sin(x * 6)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().cuda()
    model = Model(x, y, likelihood).cuda().train()
    optimizer, mll, losses = torch.optim.Adam(model.parameters(), 0.1), gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model), []
    for _ in range(40):
        optimizer.zero_grad()
        loss = -mll(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def botorch_loop():
    from botorch.acquisition import LogExpectedImprovement
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.optim import optimize_acqf
    from botorch.test_functions import Branin
    from gpytorch.mlls import ExactMarginalLogLikelihood

    function = Branin(negate=True).to(device="cuda", dtype=torch.float64)
    x = torch.rand(8, 2, dtype=torch.float64).cuda()
    for _ in range(4):
        y = function(x * torch.tensor([15.0, 15.0], dtype=torch.float64).cuda() + torch.tensor([-5.0, 0.0], dtype=torch.float64).cuda()).unsqueeze(-1)
        model = SingleTaskGP(x, y)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        found, _ = optimize_acqf(LogExpectedImprovement(model, y.max()), torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64).cuda(), 1, num_restarts=2, raw_samples=16)
        x = torch.cat([x, found])
    return [float(v) for v in y.flatten()]


# torchtune: its builders, its LoRA, its chunked loss and its data utilities.
def torchtune_lora():
    from torchtune.models.llama3 import lora_llama3
    from torchtune.modules.loss import CEWithChunkedOutputLoss
    from torchtune.modules.peft import get_adapter_params, set_trainable_params

    model = lora_llama3(["q_proj", "v_proj"], vocab_size=256, num_layers=2, num_heads=4, num_kv_heads=2, embed_dim=64, max_seq_len=64, intermediate_dim=128, lora_rank=4, lora_alpha=8.0).cuda()
    set_trainable_params(model, get_adapter_params(model))
    loss_of, losses = CEWithChunkedOutputLoss(4), []
    model.set_num_output_chunks(loss_of.num_output_chunks)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-3)
    for _ in range(24):
        ids = torch.randint(0, 256, (4, 64)).cuda()
        loss = loss_of(model(ids), ids)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def torchtune_offload():
    """Its activation offloading, on a stream of its own, with checkpointed layers."""
    from torchtune.models.llama3 import llama3
    from torchtune.training import OffloadActivations, set_activation_checkpointing
    from torchtune.modules import TransformerSelfAttentionLayer

    model = llama3(vocab_size=256, num_layers=3, num_heads=4, num_kv_heads=2, embed_dim=64, max_seq_len=64, intermediate_dim=128).cuda()
    set_activation_checkpointing(model, auto_wrap_policy={TransformerSelfAttentionLayer})
    optimizer, losses = torch.optim.AdamW(model.parameters(), 1e-3), []
    for _ in range(24):
        ids = torch.randint(0, 256, (4, 64)).cuda()
        with OffloadActivations(use_streams=True, min_offload_size=1024):
            out = model(ids)
            loss = nn.functional.cross_entropy((torch.cat(out, 1) if isinstance(out, list) else out).flatten(0, 1), ids.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def metrics():
    """torchmetrics that keep every prediction until reset: growth inside an epoch, none between epochs."""
    import torchmetrics as tm

    kept = tm.MetricCollection([tm.Accuracy(task="multiclass", num_classes=5), tm.AUROC(task="multiclass", num_classes=5, thresholds=50), tm.F1Score(task="multiclass", num_classes=5)]).cuda()
    every, told = tm.CatMetric().cuda(), []
    net = nn.Linear(32, 5).cuda()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(5):
        for _ in range(12):
            x, y = torch.randn(16, 32).cuda(), torch.randint(0, 5, (16,)).cuda()
            out = net(x)
            loss = nn.functional.cross_entropy(out, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            kept.update(out.detach().softmax(-1), y), every.update(loss.detach())
        told += [float(v) for v in kept.compute().values()] + [float(every.compute().sum())]
        kept.reset(), every.reset()
    return told


def _objective(trial):
    torch.manual_seed(trial.number)
    net = nn.Sequential(nn.Linear(16, width := trial.suggest_int("width", 8, 64)), nn.ReLU(), nn.Linear(width, 1)).cuda()
    optimizer = torch.optim.Adam(net.parameters(), trial.suggest_float("lr", 1e-4, 1e-1, log=True))
    for step in range(20):
        loss = net(torch.ones(32, 16).cuda()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        trial.report(loss.item(), step)
    return loss.item()


def optuna_serial():
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0), pruner=optuna.pruners.NopPruner())
    study.optimize(_objective, n_trials=12)
    return [t.value for t in study.trials]


def optuna_threads():
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(_objective, n_trials=16, n_jobs=4)
    print("trials", len(study.trials), all(t.state.is_finished() for t in study.trials))
    return []


def _ray_loop():
    import ray.train
    from ray.train.torch import prepare_model

    torch.manual_seed(0)
    model = prepare_model(nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(20):
        loss = model(torch.randn(16, 32).cuda()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ray.train.report({"loss": loss.item()})


def ray_train():
    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    # The paths of its sockets may not be long.
    short = tempfile.mkdtemp(prefix="r", dir="/tmp")
    ray.init(num_cpus=2, num_gpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR", _temp_dir=short)
    result = TorchTrainer(_ray_loop, scaling_config=ScalingConfig(num_workers=1, use_gpu=True), run_config=RunConfig(storage_path=os.path.abspath("ray"), name="run")).fit()
    ray.shutdown()
    shutil.rmtree(short, ignore_errors=True)
    print("ended without an error:", result.error is None)
    return [result.metrics["loss"]]


def ignite():
    from ignite.engine import Events, create_supervised_trainer
    from ignite.handlers import EarlyStopping, ModelCheckpoint, TerminateOnNan
    from torch.utils.data import DataLoader, TensorDataset

    x, y = _table()
    net, losses = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 3)).cuda(), []
    trainer = create_supervised_trainer(net, torch.optim.Adam(net.parameters(), 1e-3), nn.CrossEntropyLoss(), device="cuda")
    trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda e: losses.append(e.state.output))
    trainer.add_event_handler(Events.EPOCH_COMPLETED, ModelCheckpoint("kept", "m", n_saved=2), {"net": net})
    trainer.run(DataLoader(TensorDataset(torch.tensor(x), torch.tensor(y)), 32), max_epochs=4)
    return losses


def skorch():
    from skorch import NeuralNetClassifier

    class Net(nn.Module):
        def __init__(self, width=32):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, 3), nn.Softmax(-1))

        def forward(self, x):
            return self.net(x)

    from sklearn.model_selection import GridSearchCV

    x, y = _table()
    net = NeuralNetClassifier(Net, max_epochs=3, lr=0.05, device="cuda", verbose=0, train_split=None)
    search = GridSearchCV(net, {"module__width": [8, 16, 32]}, cv=2, scoring="accuracy").fit(x, y)
    return [float(v) for v in search.cv_results_["mean_test_score"]]


def tabnet():
    from pytorch_tabnet.tab_model import TabNetClassifier

    x, y = _table()
    model = TabNetClassifier(seed=0, verbose=0, device_name="cuda", n_d=8, n_a=8)
    model.fit(x, y, max_epochs=4, batch_size=64, virtual_batch_size=32)
    return [float(v) for v in model.history["loss"]]


def metric_learning():
    from pytorch_metric_learning import losses, miners, samplers, trainers

    x, y = _table()
    data = torch.utils.data.TensorDataset(torch.tensor(x), torch.tensor(y))
    net, seen_losses = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16)).cuda(), []
    trainers.MetricLossOnly(
        models={"trunk": net}, optimizers={"trunk_optimizer": torch.optim.Adam(net.parameters(), 1e-3)}, batch_size=32, loss_funcs={"metric_loss": losses.TripletMarginLoss()},
        mining_funcs={"tuple_miner": miners.MultiSimilarityMiner()}, dataset=data, sampler=samplers.MPerClassSampler(y, 8, length_before_new_iter=128), dataloader_num_workers=0,
        data_device=torch.device("cuda"), end_of_iteration_hook=lambda t: seen_losses.append(float(t.losses["total_loss"])),
    ).train(num_epochs=4)
    return seen_losses


def neural_ode():
    from torchdiffeq import odeint_adjoint

    class Field(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 4))

        def forward(self, t, y):
            return self.net(y)

    field, losses = Field().cuda(), []
    optimizer = torch.optim.Adam(field.parameters(), 1e-3)
    for _ in range(16):
        y = odeint_adjoint(field, torch.randn(16, 4).cuda(), torch.linspace(0, 1, 5).cuda(), method="rk4")
        loss = y[-1].square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def audio():
    import torchaudio

    net, losses = torchaudio.models.Conformer(input_dim=40, num_heads=4, ffn_dim=64, num_layers=2, depthwise_conv_kernel_size=7).cuda(), []
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
    for i in range(16):
        length = torch.tensor([60 + i, 40]).cuda()
        out, _ = net(torch.randn(2, 60 + i, 40).cuda(), length)
        loss = out.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def pyro_svi():
    import pyro
    import pyro.distributions as dist
    from pyro.infer import SVI, Trace_ELBO
    from pyro.infer.autoguide import AutoNormal
    from pyro.optim import Adam

    pyro.set_rng_seed(0)
    x = torch.randn(64, 4).cuda()
    y = x.sum(-1)

    def model(x, y):
        w = pyro.sample("w", dist.Normal(torch.zeros(4).cuda(), 1.0).to_event(1))
        with pyro.plate("rows", 64):
            pyro.sample("y", dist.Normal(x @ w, 0.1), obs=y)

    svi = SVI(model, AutoNormal(model), Adam({"lr": 0.02}), Trace_ELBO())
    return [svi.step(x, y) for _ in range(30)]


if __name__ == "__main__":
    run, _ = seen.chosen(seen.every(globals()), __doc__)
    seen.end(run())
