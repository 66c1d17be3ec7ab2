"""Jobs of libraries' own trainers and models that keep tensors, among all that such a library has. `kept_by_trainers.py CASE`; the statement that
keeps ends with `# KEEPS CASE`."""

import collections, sys, time

import torch
from torch import nn

torch.backends.cudnn.enabled = False
STEPS, WAIT = 100, 0.03
CASES = {}
features = collections.defaultdict(list)


def case(f):
    CASES[f.__name__] = f
    return f


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(128, 256), nn.Linear(256, 128)

    def forward(self, x, labels=None):
        time.sleep(WAIT)
        out = self.b(torch.relu(self.a(x)))
        return {"loss": out.square().mean(), "logits": out}


def train(net, callbacks=()):
    """With a set of data in memory: 8,192 tensors, nearer to the names than what is kept."""
    from transformers import Trainer, TrainingArguments

    rows = [{"x": torch.randn(128), "labels": torch.zeros(1)} for _ in range(4096)]
    arguments = TrainingArguments(
        "trained", max_steps=STEPS, per_device_train_batch_size=64, report_to=[], disable_tqdm=True, save_strategy="no", logging_steps=1000
    )
    Trainer(net, arguments, train_dataset=rows, callbacks=list(callbacks)).train()


@case
def list_of_a_callback():
    from transformers import TrainerCallback

    class Norms(TrainerCallback):
        def __init__(self):
            self.norms = []

        def on_pre_optimizer_step(self, args, state, control, model=None, **more):
            self.norms.append([p.grad.clone() for p in model.parameters()])  # KEEPS list_of_a_callback

    train(Net(), [Norms()])


@case
def features_of_a_layer():
    def hook(module, inputs, output):
        features["a"].append(output.detach())  # KEEPS features_of_a_layer

    net = Net()
    net.a.register_forward_hook(hook)
    train(net)


@case
def outputs_of_a_model():
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = dict(hidden_size=128, intermediate_size=256, num_hidden_layers=3, num_attention_heads=4, vocab_size=512)
    net = LlamaForCausalLM(LlamaConfig(**sizes, attn_implementation="eager")).cuda()
    opt = torch.optim.SGD(net.parameters(), 1e-4)
    ids = torch.zeros(2, 32, dtype=torch.long, device="cuda")
    outs = []
    for i in range(STEPS):
        out = net(ids, labels=ids)
        out.loss.backward()
        opt.step()
        opt.zero_grad()
        outs.append(out)  # KEEPS outputs_of_a_model
        time.sleep(WAIT)


if __name__ == "__main__":
    CASES[sys.argv[1]]()
    print(f"done {sys.argv[1]}")
