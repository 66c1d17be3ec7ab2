"""tests/python/launched.py under Hydra, which changes the folder and reads the command line."""

import hydra
import launched


@hydra.main(version_base=None, config_path=None)
def main(config):
    launched.train()


main()
