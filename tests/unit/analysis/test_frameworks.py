"""What trains with another framework, or in a command, is named as that, with what trains it on several GPUs."""

from __future__ import annotations

import pytest

from nb2ddp.analysis import frameworks
from tests.support.helpers import converted, facts_of

TRAINS: dict[str, tuple[list[str], str]] = {
    "axolotl": (["from axolotl.train import train", "train(cfg=cfg)"], "trains with axolotl"),
    "skorch": (["from skorch import NeuralNet", "NeuralNet(M).fit(X, y)"], "AccelerateMixin"),
    "reinforcement": (
        ["from stable_baselines3 import PPO", "m = PPO('Mlp', 'Cart')\nm.learn(1000)"],
        "trains with Stable-Baselines3, which nb2ddp does not convert: it does not divide",
    ),
    "a subclass of a trainer": (
        [
            "from detectron2.engine import DefaultTrainer",
            "class T(DefaultTrainer):\n    pass",
            "T(cfg).train()",
        ],
        "trains with Detectron2",
    ),
    "a trainer's method that is passed on": (
        ["from detectron2.engine import DefaultTrainer", "t = DefaultTrainer(cfg)\nlogged('a', t.train)"],
        "trains with Detectron2",
    ),
    "processes that are told what trains": (
        [
            "from torch.multiprocessing import Process",
            "def fit(rank):\n    for x in rows:\n        model(x).backward()",
            "def begin(rank, run):\n    run(rank)",
            "Process(target=begin, args=(0, fit)).start()",
        ],
        "trains with processes that it starts itself",
    ),
    "processes that train by a function": (
        [
            "import torch.multiprocessing as mp",
            "def update(opt, x):\n    model(x).backward()\n    opt.step()",
            "def worker():\n    for x in rows:\n        update(opt, x)",
            "mp.Process(target=worker).start()",
        ],
        "trains with processes that it starts itself",
    ),
    "AutoGluon": (
        ["from autogluon.tabular import TabularPredictor", "TabularPredictor(label='a').fit(rows)"],
        "trains with AutoGluon",
    ),
    "a pipeline": (
        ["from torch.distributed.pipeline.sync import Pipe", "model = Pipe(layers, chunks=2)"],
        "trains with a pipeline over several GPUs",
    ),
    "remote calls": (
        ["from torch.distributed import rpc", "rpc.init_rpc('a', rank=0, world_size=1)"],
        "a loop whose whole model is on one GPU",
    ),
    "Pyro": (
        ["from pyro.infer import SVI", "svi = SVI(model, guide, optim, loss)\nsvi.step(x)"],
        "pyro.optim.HorovodOptimizer",
    ),
    "NumPyro": (
        ["from numpyro.infer import MCMC, NUTS", "mcmc = MCMC(NUTS(f), num_warmup=9)\nmcmc.run(key)"],
        'chain_method="parallel"',
    ),
    "a library's trainer that is told a function": (
        [
            "from otherlib import Runner",
            "def check(m):\n    print(m)",
            "trainer = Runner()\ntrainer.run(rows, m, check)",
        ],
        "calls `trainer.run()` of otherlib",
    ),
    "a model of NeMo with a Trainer of Lightning's": (
        [
            "import lightning as L\nfrom nemo.collections.asr.models import EncDecCTCModel",
            "t = L.Trainer()\nm = EncDecCTCModel.from_pretrained('a')\nm.set_trainer(t)",
            "t.fit(m)",
        ],
        "trains with NeMo",
    ),
    "a runner": (
        ["from mmengine.runner import Runner", "runner = Runner.from_cfg(cfg)\nrunner.train()"],
        'launcher="pytorch"',
    ),
    "Ultralytics": (
        ["from ultralytics import YOLO", "YOLO('n.pt').train(data='c.yaml')"],
        "train(device=[0, 1])",
    ),
    "SetFit": (
        [
            "from setfit import Trainer, TrainingArguments",
            "t = Trainer(m, TrainingArguments(batch_size=4))\nt.train()",
        ],
        "trains with SetFit",
    ),
    "Prophet beside scikit-learn's figures": (
        ["from sklearn.metrics import r2_score\nfrom prophet import Prophet", "m = Prophet()\nm.fit(df)"],
        "calls `m.fit()` of prophet, whose training nb2ddp does not convert",
    ),
    "an object out of sight": (
        ["def go(model):\n    model.fit(x)"],
        "nb2ddp does not see what `model.fit()` trains with",
    ),
    "a service": (
        ["from openai import OpenAI", "c = OpenAI()\nc.fine_tuning.jobs.create(training_file='f')"],
        "it runs on the service's GPUs",
    ),
    "a service behind a cloud's client": (
        [
            "from azure.ai.projects import AIProjectClient",
            "c = AIProjectClient(endpoint='x').get_openai_client()\nc.fine_tuning.jobs.create(training_file='f')",
        ],
        "it runs on the service's GPUs",
    ),
    "a script": (
        ["!python train.py --lr 1"],
        "`torchrun --nproc_per_node 2 train.py --lr 1` starts it on two GPUs",
    ),
    "a script with a long command": (
        ["!CUDA_VISIBLE_DEVICES=0 python -u scripts/run_clm.py \\\n  --do_train"],
        "`torchrun --nproc_per_node 2 scripts/run_clm.py --do_train`",
    ),
    "a script in a cell of bash": (["%%bash\ncd repo\npython tools/train.py"], "2 tools/train.py` starts it"),
    "a script by subprocess": (
        ["import subprocess", "subprocess.run(['python', 'train.py'], check=True)"],
        "the command `python train.py`",
    ),
    "a module of a framework": (["!python -m spacy train c.cfg"], "it does not divide its training"),
    "a script's subcommand": (
        ["!python src/main.py fit --config c.yaml"],
        "the command `python src/main.py fit",
    ),
    "a module of one's own": (
        ["!python -m mine.train --lr 1"],
        "2 -m mine.train --lr 1` starts it on two GPUs",
    ),
    "a module's command": (["!python -m tool sft"], "the command `python -m tool sft`"),
    "a library, beside a backward() in no loop": (
        ["import torchkeras", "def step(x):\n    x.backward()", "torchkeras.KerasModel(net, x=1).fit(rows)"],
        "calls `torchkeras.KerasModel(...).fit()` of torchkeras",
    ),
    "TRL's command": (["!trl sft --model_name_or_path a"], "give it --num_processes 2"),
    "Accelerate's": (["!accelerate launch train_dreambooth.py"], "give it --multi_gpu --num_processes 2"),
    "torchrun on two": (["!torchrun --nproc_per_node=2 finetune.py"], "and trains in 2 as it is"),
    "torchrun": (["!torchrun --nproc_per_node 1 finetune.py"], "give it --nproc_per_node 2"),
    "torchtune's, behind an option": (
        ["!tune run --nproc_per_node 1 full_finetune"],
        "whose name has `distributed`",
    ),
    "a script that a launcher gives a command": (["!accelerate launch main.py train"], "give it --multi_gpu"),
    "a script that a launcher gives an option": (["!deepspeed main.py --do_train"], "give it --num_gpus 2"),
    "another command": (
        ["!autotrain llm --train"],
        "for several GPUs see its own documentation",
    ),
}
NOTHING: dict[str, list[str]] = {
    "what prepares data": [
        "from pytorch_forecasting import NaNLabelEncoder\nimport torchio as tio",
        "encoders = {'a': NaNLabelEncoder().fit(frame.a)}\ntio.HistogramStandardization.train(paths, output_path='a')",
    ],
    "the mode of a model that a library has loaded": [
        "from efficientnet_pytorch import EfficientNet",
        "model = EfficientNet.from_pretrained('b0')\nmodel.train()",
    ],
    "a model's mode": ["import timm", "model = timm.create_model('x')\nmodel.train()\nmodel.train(False)"],
    "folders and files": [
        "!mkdir train\n!cat train.csv\n!git clone https://x.org/train\n!unzip -q train.zip"
    ],
    "settings that bash writes": ["!(echo a; cat x) | bash > conf/training.yaml\n!bash >>train.log"],
    "what prepares rows": [
        "from t import RowsPreprocessor",
        "rows = RowsPreprocessor()\nrows.train(table, 3)",
    ],
    "a tokenizer that is trained": [
        "import sentencepiece as spm",
        "spm.SentencePieceTrainer.train(input='a.txt', model_prefix='a', vocab_size=99)",
    ],
    "a name among the arguments": ["!python judge.py --models my-dpo-model my-sft-model"],
    "scripts that prepare data": [
        "!python run_preparing_data.py\n!python run_splitting_dataset.py train\n!python -m run_tests",
        "!python prepare.py train\n!python app.py sft\n!bash run_server.sh",
    ],
    "commands that get what training has left": [
        "!tool.export_onnx --model_path training_output\n!tool show trained\n!tool --weights train_3",
        "!accelerate launch infer.py --model training_output\n!bash show.sh train.log\n!python use_finetuned.py",
    ],
    "an install": ["!pip install git+https://x.org/trainer"],
    "a chat": ["from openai import OpenAI", "OpenAI().chat.completions.create(model='m')"],
    "a function of the notebook": ["def fit(x):\n    return x", "fit(3)"],
}


@pytest.mark.parametrize(("cells", "sentence"), TRAINS.values(), ids=TRAINS)
def test_what_trains_is_named(cells: list[str], sentence: str) -> None:
    (declined,) = converted(*cells).declined
    assert sentence in declined.why
    assert "does not train" not in declined.why


@pytest.mark.parametrize("cells", NOTHING.values(), ids=NOTHING)
def test_what_does_not_train_is_not(cells: list[str]) -> None:
    facts = facts_of(*cells)
    assert [
        *frameworks.trainings(facts),
        *frameworks.unknown_trainings(facts),
        *frameworks.commands(facts),
    ] == []


def test_each_pattern_has_a_place_to_stand() -> None:
    for framework in frameworks.FRAMEWORKS:
        assert framework.functions or (framework.origins and framework.methods), framework.name
        assert framework.advice, framework.name
