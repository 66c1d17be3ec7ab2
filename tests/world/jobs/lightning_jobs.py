"""lightning_jobs.py JOB: Lightning's own demos and Trainer, and Fabric; data drawn in place."""
import seen

torch = seen.start()
import lightning as L
from lightning.pytorch.callbacks import Callback, GradientAccumulationScheduler, ModelCheckpoint, StochasticWeightAveraging
from lightning.pytorch.demos import Transformer
from lightning.pytorch.demos.boring_classes import BoringDataModule, BoringModel, ManualOptimBoringModel
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class _Losses(Callback):
    def __init__(self):
        self.all = []

    def on_train_batch_end(self, trainer, module, outputs, *_):
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if loss is not None:
            self.all.append(loss.detach().item())


def _fit(model, data, callbacks=(), ckpt=None, **more):
    losses = _Losses()
    told = dict(
        accelerator="gpu", devices=1, max_steps=40, logger=False, enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False, default_root_dir="."
    )
    L.Trainer(**{**told, **more}, callbacks=[losses, *callbacks]).fit(model, data, ckpt_path=ckpt)
    return losses.all


class _Convolutions(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)
        )

    def training_step(self, batch, _):
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        o = torch.optim.SGD(self.parameters(), 0.05, momentum=0.9)
        return [o], [torch.optim.lr_scheduler.OneCycleLR(o, 0.05, total_steps=200)]


def _images(n=256, workers=0):
    data = TensorDataset(torch.randn(n, 3, 32, 32), torch.randint(0, 10, (n,)))
    return DataLoader(data, 16, num_workers=workers, pin_memory=True, shuffle=True)


class _Language(L.LightningModule):
    """The demo's transformer, as lightning.pytorch.demos.LightningTransformer trains it, without the download of WikiText."""

    def __init__(self):
        super().__init__()
        self.model = Transformer(vocab_size=200, ninp=64, nhead=4, nhid=128, nlayers=2)

    def training_step(self, batch, _):
        x, y = batch
        return nn.functional.nll_loss(self.model(x, y), y.view(-1))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def _text():
    ids = torch.randint(0, 200, (256, 36))
    return DataLoader(TensorDataset(ids[:, :-1], ids[:, 1:]), 8)


def boring():
    return _fit(BoringModel(), BoringDataModule(), max_epochs=3, max_steps=-1)


def manual():
    return _fit(ManualOptimBoringModel(), BoringDataModule())


def transformer():
    return _fit(_Language(), _text())


def transformer_16():
    return _fit(_Language(), _text(), precision="16-mixed", gradient_clip_val=1.0)


def convolutions():
    return _fit(_Convolutions(), _images(workers=2), precision="bf16-mixed", benchmark=True)


def accumulated():
    return _fit(_Convolutions(), _images(), callbacks=[GradientAccumulationScheduler({0: 1, 1: 4})])


def averaged():
    return _fit(_Convolutions(), _images(64), callbacks=[StochasticWeightAveraging(0.01, swa_epoch_start=2)], max_epochs=6, max_steps=-1)


def checkpointed():
    keep = ModelCheckpoint("kept", save_top_k=-1, every_n_train_steps=10, filename="{step}")
    first = _fit(_Convolutions(), _images(), callbacks=[keep], enable_checkpointing=True, max_steps=20)
    return first + _fit(_Convolutions(), _images(), ckpt="kept/step=20.ckpt")


def sanity_and_test():
    model, data = BoringModel(), BoringDataModule()
    trainer = L.Trainer(accelerator="gpu", devices=1, max_epochs=2, logger=False, enable_progress_bar=False, enable_checkpointing=False, enable_model_summary=False)
    trainer.fit(model, data)
    print(sorted(trainer.test(model, data, verbose=False)[0]))
    return [float(v) for v in trainer.callback_metrics.values()]


def fabric():
    fabric = L.Fabric(accelerator="cuda", devices=1, precision="bf16-mixed")
    fabric.launch()
    model = _Language().model
    model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters(), 1e-3))
    losses = []
    for x, y in fabric.setup_dataloaders(_text()):
        loss = nn.functional.nll_loss(model(x, y), y.view(-1))
        fabric.backward(loss)
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    fabric.save("fabric.ckpt", {"model": model, "optimizer": optimizer})
    return losses


def spawned():
    """Lightning's own spawn launcher: the training runs in a child process."""
    L.Trainer(
        accelerator="gpu", devices=1, strategy="ddp_spawn", max_steps=20, logger=False, enable_progress_bar=False, enable_checkpointing=False, enable_model_summary=False
    ).fit(BoringModel(), BoringDataModule())
    return []


if __name__ == "__main__":
    run, _ = seen.chosen(seen.every(globals()), __doc__)
    seen.end(run())
