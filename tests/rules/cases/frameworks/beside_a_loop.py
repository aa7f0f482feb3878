# A loop, or a stray backward(), does not make another framework's training one that can be converted.

# first cell
import torch

warm_up = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(warm_up.parameters(), lr=0.1)
for x in torch.utils.data.DataLoader(data):
    warm_up(x).sum().backward()
    optimizer.step()

# case: LightningCLI
from lightning.pytorch.cli import LightningCLI
LightningCLI(Model, Data)
# decline, line 2: this notebook trains with LightningCLI...make L.Trainer(...) in a cell...

# case: a Trainer of Lightning's out of sight
import lightning as L
runs = [L.Trainer(max_epochs=1)]
runs[0].fit(model)
# decline, line 3: this notebook trains with a Trainer of Lightning's that it cannot follow...

# case: NeMo
from nemo import lightning as nl
trainer = nl.Trainer(devices=2)
trainer.fit(model)
# decline, line 3: this notebook trains with NeMo...

# case: a library that is not known, on rank 0 alone
import torchkeras
torchkeras.KerasModel(net).fit(rows)
torchkeras.KerasModel(net).fit(more)
# note, line 2: rank 0 trains it alone, no faster than the notebook: this notebook calls `torchkeras.KerasModel(...).fit()` of torchkeras...

# case: what computes on the CPU
import tokenizers
tokenizers.ByteLevelBPETokenizer().train(files, trainer)

# case: functions of helpers whose names begin with train, and that train nothing
import helpers
from helpers import train_dataset, train_transforms
transform = train_transforms(3, model_size=4)
rows = train_dataset("model", helpers.train_epoch_count(2))
rows, held_out = helpers.train_and_val_split(rows)

# case: a model that a library makes of data and of settings for its training
from forecasts import Transformer
model = Transformer.from_dataset(data, learning_rate=0.03, optimizer="adam")

# case: a function of a library that makes and trains a model
from forecasts import make_trained
model = make_trained(data, optimizer="adam")
# note, line 2: rank 0 trains it alone, no faster than the notebook: this notebook calls `make_trained()` of forecasts...

# case: jobs of a cloud that train nothing
import boto3
boto3.client("glue").create_job(Name="rows", Role="r", Command={})

# case: a job of Kubeflow
from kubeflow.training import TrainingClient
TrainingClient().create_job(name="rows")
# decline, line 2: this notebook trains with a job of Kubeflow...

# case: a magic that runs a file, which no process of its own does
%run train_utils.py

# case: an import alone
import lightning as L
L.seed_everything(1)

# case: Ray
from ray.train.torch import TorchTrainer
result = TorchTrainer(train_func).fit()
# decline, line 2: this notebook trains with Ray...ScalingConfig...

# case: Keras
import keras
model = keras.Sequential([keras.layers.Dense(2)])
model.fit(x, y)
# decline, line 3: this notebook trains with Keras...on PyTorch its fit() trains on one GPU

# case: names of a star import
from fastai.vision.all import *
learn = vision_learner(dls, resnet18)
learn.fine_tune(3)
# decline, line 3: this notebook trains with fastai...distrib_ctx(in_notebook=True)...

# case: FSDP by hand
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
model = FSDP(model)
# decline, line 2: this notebook trains with FSDP...

# case: Opacus
from opacus import PrivacyEngine
engine = PrivacyEngine()
model, optimizer, loader = engine.make_private(module=model, optimizer=optimizer, data_loader=loader)
# decline, line 3: this notebook trains with Opacus...

# case: a TPU
import torch_xla.distributed.xla_multiprocessing as xmp
xmp.spawn(train, nprocs=8)
# decline, line 2: this notebook trains with PyTorch/XLA...

# case: processes that train
import torch.multiprocessing as mp
mp.spawn(train, nprocs=2)
# decline, line 2: this notebook trains with processes that it starts itself...there is nothing to convert...

# case: a process that trains
from torch.multiprocessing import Process

def work(model):
    model(x).sum().backward()

Process(target=work, args=(warm_up,)).start()
# decline, line 6: this notebook trains with processes that it starts itself...

# case: a process that trains nothing
from multiprocessing import Process

def work(path):
    print(path)

Process(target=work, args=("a",)).start()

# case: a library's training whose result is kept, and one of a class of the notebook that a later import hides
from lib import Estimator, Other
class Own:
    def fit(self, rows):
        return rows
estimator = Estimator()
found = estimator.train()
other = Other()
other = other.train()
Own().fit(rows)
from lib import Own
# note, line 6: rank 0 trains it alone...`estimator.train()` of lib...

# case: what trains on the CPU, on every rank alike
from sklearn.preprocessing import StandardScaler
scaler = StandardScaler().fit(rows)

# case: a model that only evaluates
from ignite.engine import create_supervised_evaluator
create_supervised_evaluator(warm_up).run(loader)

# case: a command that trains
!python train_other.py --epochs 3
# note, line 1: what trains here is the command `python train_other.py --epochs 3`...`torchrun --nproc_per_node 2 ...

# case: commands that do not
!python tools/convert_lora.py --out a.gguf
!python run_eval.py
!mkdir train
!cat train.csv

# case: a function that runs as a job of a cloud
from sagemaker.remote_function import remote
@remote(instance_type="ml.g5.xlarge")
def fit(path):
    warm_up(load(path)).sum().backward()
fit("s3://rows")
# decline, line 2: this notebook trains with a job of a cloud...

# case: a command that a cloud runs as a job
from azure.ai.ml import MLClient, command
client = MLClient(credential, "group")
job = client.jobs.create_or_update(command(command="python train.py", compute="gpus"))
# decline, line 3: this notebook trains with a job of a cloud...

# case: a job of a service's first client
from mistralai.client import MistralClient
client = MistralClient()
client.jobs.create(model="m", training_files=["a"])
# decline, line 3: this notebook trains with a service's fine-tuning...

# case: a training that rank 0 alone runs, for it writes
import pairs
pairs.BPE.train(data="t.txt", output="bpe.model")
for x in torch.utils.data.DataLoader(data):
    warm_up(x).sum().backward()
    optimizer.step()
# note, line 2: rank 0 trains it alone, no faster than the notebook...
