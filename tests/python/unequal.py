"""Jobs in which not every optimizer runs in each iteration, or one runs once more now and then; by their own count.

    unequal.py [CASE…]     as patterns.py
"""

import copy
import random

import torch
from patterns import backward, batch, main, mlp, step

rng = random.Random(1)
CASES = {}


def case(f):
    CASES[f.__name__] = f
    return f


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=1e-4)


def rollouts(stops, who="actor", nets=2):
    """PPO: an actor's and a critic's step (and more) for each of 12 minibatches, until one of them has moved too far."""
    names = ["actor", "critic", "curiosity"][:nets]
    models = {name: mlp(2) for name in names}
    optimizers = {name: adam(model) for name, model in models.items()}
    steps = 0
    for stop, early in zip(stops, who if isinstance(who, list) else [who] * len(stops)):
        with torch.no_grad():
            [models["actor"](batch()) for _ in range(8)]
        for k in range(12):
            if k < stop or early != "actor":
                step(models["actor"], optimizers["actor"])
            if k < stop or early != "critic":
                step(models["critic"], optimizers["critic"])
            if nets == 3:
                step(models["curiosity"], optimizers["curiosity"])
            steps += 1
    return steps


@case
def actor_that_stops_early():
    return rollouts([rng.randint(5, 12) for _ in range(6)])


@case
def actor_that_stops_at_once():
    return rollouts([2, 4, 3, 2, 4, 2])


@case
def critic_that_stops_early():
    return rollouts([7, 11, 5, 9, 12, 6], who="critic")


@case
def both_stop_early():
    """At the end two steps are known at once: those of the actor alone."""
    return rollouts([6, 8, 10], who=["actor", "actor", "critic"])


@case
def actor_that_stops_and_two_others():
    return rollouts([4, 9, 6, 12, 5], nets=3)


@case
def sweep_of_actors_that_stop():
    return rollouts([6, 9, 8]) + rollouts([5]) + rollouts([10, 4, 7, 5])


@case
def epochs_of_the_actor_then_of_the_critic():
    """All of the actor's minibatches, which stop early, and then the critic's: each is a step."""
    actor, critic = mlp(2), mlp(2)
    pi, v = adam(actor), adam(critic)
    steps = 0
    for stop in (7, 12, 5, 9):
        for _ in range(stop):
            step(actor, pi)
        for _ in range(12):
            step(critic, v)
        steps += stop + 12
    return steps


def lazy(iterations, r1, path, critics=1, first=0):
    """A GAN, with regularizations that are steps of their own every so many iterations."""
    d, g = mlp(2), mlp(2)
    od, og = adam(d), adam(g)
    for i in range(first, first + iterations):
        for _ in range(critics):
            od.zero_grad()
            (d(batch()).mean() - d(g(batch()).detach()).mean()).backward()
            od.step()
        if r1 and i % r1 == 0:
            od.zero_grad()
            x = batch().requires_grad_()
            gradient = torch.autograd.grad(d(x).sum(), x, create_graph=True)[0]
            gradient.square().mean().backward()
            od.step()
        og.zero_grad()
        d(g(batch())).mean().backward()
        og.step()
        if path and i % path == 0:
            og.zero_grad()
            g(batch()).square().mean().backward()
            og.step()
    return iterations


@case
def lazy_regularization():
    return lazy(60, 16, 4)


@case
def lazy_regularization_of_one():
    return lazy(20, 8, 0) + lazy(20, 0, 4)


@case
def lazy_regularization_often():
    return lazy(20, 3, 2)


@case
def lazy_regularization_later():
    return lazy(30, 16, 8, first=1)


@case
def lazy_regularization_with_five_critics():
    return lazy(20, 16, 0, critics=5)


@case
def lazy_regularization_in_the_critics_loop():
    d, g = mlp(2), mlp(2)
    od, og = adam(d), adam(g)
    seen = 0
    for _ in range(16):
        for _ in range(5):
            step(d, od)
            if seen % 16 == 0:
                od.zero_grad()
                d(batch()).square().sum().backward()
                od.step()
                od.zero_grad()
            seen += 1
        step(g, og)
    return 16


@case
def delayed_policy_after_the_critic_alone():
    """TD3: targets follow by an average; at first the critic learns alone."""
    critic, actor = mlp(2), mlp(2)
    targets = [copy.deepcopy(m) for m in (critic, actor)]
    q, pi = adam(critic), adam(actor)
    for _ in range(25):
        step(critic, q)
    for _ in range(20):
        for _ in range(2):
            step(critic, q)
        step(actor, pi)
        with torch.no_grad():
            for target, model in zip(targets, (critic, actor)):
                for t, p in zip(target.parameters(), model.parameters()):
                    t.lerp_(p, 0.01)
    return 45


@case
def soft_actor_critic():
    """Critics, policy and temperature in each update, after some without the policy."""
    critic, actor = mlp(2), mlp(2)
    q, pi = adam(critic), adam(actor)
    temperature = torch.zeros((), device="cuda", requires_grad=True)
    alpha = torch.optim.Adam([temperature])
    for i in range(40):
        step(critic, q)
        if i >= 10:
            step(actor, pi)
            (temperature.exp() * batch().mean()).backward()
            alpha.step()
            alpha.zero_grad()
    return 40


@case
def generator_that_waits():
    """A loop that leaves out the generator as long as the discriminator is too weak, and now and then the discriminator."""
    d, g = mlp(2), mlp(2)
    od, og = adam(d), adam(g)
    for i in range(60):
        if not 40 <= i < 45:
            step(d, od)
        if not 20 <= i < 28:
            step(g, og)
    return 60


@case
def generator_that_steps_twice():
    d, g = mlp(), mlp()
    od, og = torch.optim.Adam(d.parameters()), torch.optim.Adam(g.parameters())
    for _ in range(10):
        step(d, od)
        step(g, og)
        step(g, og)
    return 10


@case
def generator_alone_after_a_gan():
    d, g = mlp(2), mlp(2)
    od, og = adam(d), adam(g)
    for _ in range(12):
        step(d, od)
        step(g, og)
    for _ in range(20):
        og.zero_grad()
        g(batch()).square().mean().backward()
        og.step()
    return 32


@case
def two_schedules():
    """Encoder and head by optimizers of their own, in one step; the head's alone in the first iterations and each third."""
    encoder, head = mlp(2), mlp(1)
    slow, fast = adam(encoder), adam(head)
    schedules = [torch.optim.lr_scheduler.StepLR(o, 5) for o in (slow, fast)]
    for i in range(40):
        head(encoder(batch())).square().mean().backward()
        if i >= 6 and i % 3:
            slow.step()
        fast.step()
        for o, schedule in zip((slow, fast), schedules):
            o.zero_grad()
            schedule.step()
    return 40


@case
def gan_with_scalers_that_skip():
    d, g = mlp(2), mlp(2)
    od, og = adam(d), adam(g)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**10, growth_interval=10**6)
    for i in range(30):
        for model, optimizer, at in ((d, od, 7), (g, og, 11)):
            loss = model(batch()).square().mean()
            scaler.scale(loss * float("inf") if i % at == at - 1 else loss).backward()
            scaler.step(optimizer)
            optimizer.zero_grad()
        scaler.update()
    return 30


@case
def actor_that_stops_while_gradients_add_up():
    """PPO with more and more microbatches in a step."""
    actor, critic = mlp(2), mlp(2)
    pi, v = adam(actor), adam(critic)
    steps = 0
    for stop, micro in ((8, 1), (5, 2), (9, 4), (6, 4)):
        for k in range(10):
            if k < stop:
                step(actor, pi, micro)
            step(critic, v, micro)
            steps += 1
    return steps


@case
def losses_that_are_not_numbers_in_a_loop_of_two():
    a, b = mlp(2), mlp(2)
    oa, ob = adam(a), adam(b)
    for i in range(40):
        backward(a)
        if i % 9 != 5:
            oa.step()
        oa.zero_grad()
        step(b, ob)
    return 40


@case
def a_policy_that_every_second_iteration_trains():
    """TD3 as a loop with an `if`: its events are those of a critic's loop within the loop."""
    critic, actor = mlp(2), mlp(2)
    q, pi = adam(critic), adam(actor)
    for i in range(40):
        step(critic, q)
        if i % 2:
            step(actor, pi)
    return 40


@case
def a_policy_that_comes_first_and_makes_up():
    critic, actor = mlp(2), mlp(2)
    q, pi = adam(critic), adam(actor)
    for i in range(40):
        if i % 2 == 0:
            for _ in range(2):
                step(actor, pi)
        step(critic, q)
    return 40


class Agent:
    """A soft actor-critic whose policy and temperature are trained in every fourth update."""

    def __init__(self):
        self.critic, self.actor = mlp(2), mlp(2)
        self.q, self.pi = adam(self.critic), adam(self.actor)
        self.temperature = torch.zeros((), device="cuda", requires_grad=True)
        self.alpha = torch.optim.Adam([self.temperature])

    def train_critic(self):
        step(self.critic, self.q)

    def update(self, i):
        self.train_critic()
        if i % 4 == 0:
            step(self.actor, self.pi)
            self.alpha.zero_grad()
            (self.temperature.exp() * batch().mean()).backward()
            self.alpha.step()


@case
def an_agent_that_rarely_trains_its_policy():
    agent = Agent()
    for i in range(40):
        agent.update(i)
    return 40


@case
def a_critic_by_itself_in_four_of_five_iterations():
    """A WGAN as most are written: the generator in each fifth batch."""
    d, g = mlp(2), mlp(2)
    od, og = adam(d), adam(g)
    for i in range(60):
        od.zero_grad()
        (d(batch()).mean() - d(g(batch()).detach()).mean()).backward()
        od.step()
        if i % 5 == 0:
            og.zero_grad()
            (-d(g(batch())).mean()).backward()
            og.step()
    return 60


@case
def heads_in_branches():
    one, two, three = (mlp(2) for _ in range(3))
    a, b, c = (adam(m) for m in (one, two, three))
    for i in range(60):
        if i % 3 == 0:
            step(one, a)
        elif i % 3 == 1:
            step(two, b)
        else:
            step(three, c)
    return 60


@case
def heads_in_one_line():
    one, two = mlp(2), mlp(2)
    a, b = adam(one), adam(two)
    for i in range(60):
        step(one, a) if i % 2 else step(two, b)
    return 60


@case
def heads_by_continue():
    one, two = mlp(2), mlp(2)
    a, b = adam(one), adam(two)
    for i in range(60):
        if i % 3 == 0:
            step(one, a)
            continue
        step(two, b)
    return 60


if __name__ == "__main__":
    main(CASES)
