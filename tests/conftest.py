"""Settings for all tests: examples are drawn from a fixed seed, and a slow shared machine is no failure."""

import hypothesis
import torch

hypothesis.settings.register_profile("default", deadline=None, max_examples=40, derandomize=True)
hypothesis.settings.load_profile("default")
torch.set_num_threads(1)  # tests run in two processes
