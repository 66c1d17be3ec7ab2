"""tests/python/launched.py in a Ray actor: with `start`, the actor asks for strandline itself."""

import sys

import ray


@ray.remote(num_gpus=1)
class Trainer:
    def train(self, start):
        if start:
            import strandline

            strandline.start(quiet=True)
        import launched

        launched.train()
        return "done"


ray.init(num_cpus=1, num_gpus=1, include_dashboard=False)
trainer = Trainer.remote()
print(ray.get(trainer.train.remote("start" in sys.argv)))
ray.shutdown()
