# What draws from the processes' own generators is left alone: all ranks begin with rank 0's.

# first cell
from datasets import load_dataset
d = load_dataset('x', split='train')

# case: random, NumPy and PyTorch
import random
import numpy as np
import torch
random.shuffle(d)
x = np.random.randn(3)
order = torch.randperm(9)
a, b = torch.utils.data.random_split(d, [9, 1])

# case: splits and samples of datasets, scikit-learn and pandas
import pandas as pd
from sklearn.model_selection import ShuffleSplit, train_test_split
from sklearn.utils import resample
d = d.shuffle().train_test_split(test_size=9)
a, b = train_test_split(x)
k = ShuffleSplit(3)
c = frame.sample(frac=1)
y = resample(x, n_samples=5)

# last cell
from trl import SFTTrainer
trainer = SFTTrainer(model, train_dataset=d)
trainer.train()
