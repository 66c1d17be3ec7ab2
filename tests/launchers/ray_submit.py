"""A Ray of its own, and `ray job submit` into it: ray_submit.py RUNTIME_ENV_JSON COMMAND…"""

import subprocess
import sys

import ray

context = ray.init(num_cpus=1, num_gpus=1, include_dashboard=True)
submit = ["ray", "job", "submit", "--address", f"http://{context.dashboard_url}", "--runtime-env-json", sys.argv[1], "--", *sys.argv[2:]]
status = subprocess.run(submit).returncode
ray.shutdown()
sys.exit(status)
