"""method_jobs.py JOB: libraries that change how gradients are made or used, each on a small network with data drawn in place."""
import copy

import seen

torch = seen.start()
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset


def _mlp(out=8):
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, out)).cuda()


def _rows(n=16):
    return torch.randn(n, 64).cuda()


def _classes(n=16):
    return torch.randint(0, 8, (n,)).cuda()


# opacus: a gradient for each sample, clipped, with noise.
def _private(model, optimizer, data, batch, epochs, **more):
    from opacus import PrivacyEngine

    loader = DataLoader(data, batch_size=batch)
    made = PrivacyEngine().make_private(
        module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=1.0, max_grad_norm=1.0, poisson_sampling=False, **more
    )
    model, optimizer, *criterion, loader = made
    criterion, losses = criterion[0] if criterion else nn.CrossEntropyLoss(), []
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x.cuda()), y.cuda())
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def opacus_hooks():
    model, data = _mlp(), TensorDataset(torch.randn(512, 64), torch.randint(0, 8, (512,)))
    return _private(model, torch.optim.SGD(model.parameters(), 0.1), data, 32, 2)


def opacus_ghost():
    """Two backward passes a step: norms first, then clipped gradients, without a gradient for each sample in memory."""
    model, data = _mlp(), TensorDataset(torch.randn(512, 64), torch.randint(0, 8, (512,)))
    return _private(model, torch.optim.SGD(model.parameters(), 0.1), data, 32, 2, grad_sample_mode="ghost", criterion=nn.CrossEntropyLoss())


def opacus_lstm():
    from opacus.layers import DPLSTM

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.lstm, self.out = nn.Embedding(100, 32), DPLSTM(32, 64, batch_first=True), nn.Linear(64, 8)

        def forward(self, x):
            return self.out(self.lstm(self.words(x))[0][:, -1])

    model, data = Net().cuda(), TensorDataset(torch.randint(0, 100, (320, 12)), torch.randint(0, 8, (320,)))
    return _private(model, torch.optim.Adam(model.parameters()), data, 16, 1)


# torchsde: a stochastic differential equation solved with a Brownian motion that is drawn anew on demand.
def torchsde():
    import torchsde

    class Equation(nn.Module):
        noise_type, sde_type = "diagonal", "ito"

        def __init__(self):
            super().__init__()
            self.drift, self.diffusion = nn.Linear(4, 4), nn.Linear(4, 4)

        def f(self, t, y):
            return self.drift(y)

        def g(self, t, y):
            return 0.1 * torch.sigmoid(self.diffusion(y))

    equation, losses = Equation().cuda(), []
    optimizer = torch.optim.Adam(equation.parameters())
    for step in range(14):
        motion = torchsde.BrownianInterval(0.0, 1.0, size=(16, 4), device="cuda", entropy=step)
        path = torchsde.sdeint(equation, torch.ones(16, 4).cuda(), torch.linspace(0, 1, 8), bm=motion, method="euler", dt=0.1)
        losses.append(seen.stepped(path.square().mean(), optimizer))
    return losses


# higher: gradients through three steps of an inner optimizer, for three tasks a step.
def higher():
    import higher

    model, losses = _mlp(), []
    outer, inner = torch.optim.Adam(model.parameters()), torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(16):
        for _ in range(3):
            with higher.innerloop_ctx(model, inner, copy_initial_weights=False) as (fast, inside):
                for _ in range(3):
                    inside.step(functional.cross_entropy(fast(_rows(8)), _classes(8)))
                loss = functional.cross_entropy(fast(_rows(8)), _classes(8))
                loss.backward()
                losses.append(loss.item())
        outer.step()
        outer.zero_grad()
    return losses


# torchjd: the Jacobian of three losses, put together into one gradient.
def torchjd():
    from torchjd.aggregation import Mean
    from torchjd.autojac import backward, jac_to_grad

    model, losses = _mlp(), []
    optimizer, together = torch.optim.SGD(model.parameters(), 0.1), Mean()
    for _ in range(16):
        y = model(_rows())
        three = torch.stack([y[:, 0].mean(), y[:, 1].mean(), y[:, 2].square().mean()])
        backward(three)
        jac_to_grad(model.parameters(), together)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(three.sum().item())
    return losses


# pytorch_optimizer: states unlike Adam's, a second copy of the weights (Lookahead), two gradients a step (SAM). Without those that need cuSOLVER.
def pytorch_optimizer():
    import pytorch_optimizer as po

    losses = []
    for name in ("lion", "muon", "adan", "prodigy", "ademamix", "lookahead"):
        model = _mlp()
        optimizer = po.Lookahead(torch.optim.Adam(model.parameters())) if name == "lookahead" else po.create_optimizer(model, name, lr=1e-3)
        losses += [seen.stepped(functional.cross_entropy(model(_rows()), _classes()), optimizer) for _ in range(13)]
    model = _mlp()
    sharp = po.SAM(model.parameters(), torch.optim.SGD, lr=0.1)
    for _ in range(13):
        loss = functional.cross_entropy(model(_rows()), _classes())
        loss.backward()
        sharp.first_step(zero_grad=True)
        functional.cross_entropy(model(_rows()), _classes()).backward()
        sharp.second_step(zero_grad=True)
        losses.append(loss.item())
    return losses


# lightly: MoCo, whose second network follows the first, and whose loss keeps a bank of past outputs on the GPU.
def lightly_moco():
    from lightly.loss import NTXentLoss
    from lightly.models.modules import MoCoProjectionHead
    from lightly.models.utils import deactivate_requires_grad, update_momentum

    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 128)).cuda()
    head, losses = MoCoProjectionHead(128, 128, 64).cuda(), []
    slow_net, slow_head = copy.deepcopy(net), copy.deepcopy(head)
    deactivate_requires_grad(slow_net)
    deactivate_requires_grad(slow_head)
    criterion = NTXentLoss(memory_bank_size=(512, 64)).cuda()
    optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], 0.06)
    for _ in range(20):
        update_momentum(net, slow_net, 0.99)
        update_momentum(head, slow_head, 0.99)
        one, other = torch.randn(16, 3, 16, 16).cuda(), torch.randn(16, 3, 16, 16).cuda()
        with torch.no_grad():
            key = slow_head(slow_net(other))
        losses.append(seen.stepped(criterion(head(net(one)), key), optimizer))
    return losses


# PyTorch alone: an actor that learns once an episode, whose graph grows until then, and a critic that learns at every step of it.
def episodes():
    actor, critic, losses = _mlp(4), _mlp(1), []
    acts, judges = torch.optim.Adam(actor.parameters()), torch.optim.Adam(critic.parameters())
    for length in (12, 20, 45, 90, 200):
        policy = 0
        for _ in range(length):
            state = _rows(64)
            value = critic(state)
            advantage = (1 - value).detach()
            losses.append(seen.stepped((1 - value).square().mean(), judges))
            policy = policy - (torch.log_softmax(actor(state), -1)[:, :1] * advantage).mean()
        losses.append(seen.stepped(policy, acts))
    return losses


if __name__ == "__main__":
    run, _ = seen.chosen(seen.every(globals()), __doc__)
    seen.end(run())
