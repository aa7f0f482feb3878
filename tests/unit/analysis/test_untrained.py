"""A notebook that does not train is told what is missing in it, and not what is missing in others."""

from __future__ import annotations

import pytest

from nb2ddp.analysis.untrained import missing
from tests.support.helpers import converted, facts_of

KINDS: dict[str, tuple[list[str], str, int | None]] = {
    "nothing at all": ([], "hold no code", None),
    "comments and a text": (["# later", '"""About this."""'], "hold no code", None),
    "pandas": (
        ["import os\nimport pandas as pd", "df = pd.read_csv('a.csv')\ndf.describe()"],
        "does not train, as far as nb2ddp can see: no Trainer, no loop with backward(), and no fit()",
        None,
    ),
    "no package": (["x = 1\nprint(x)"], "no Trainer, no loop with backward()", None),
    "Keras": (
        ["from tensorflow import keras", "model = keras.Sequential([])", "model.fit(x, y)"],
        "trains with TensorFlow, which nb2ddp does not convert: make and compile the model under tf.distribute",
        3,
    ),
    "Keras alone": (["import keras", "keras.Sequential([]).fit(x)"], "trains with Keras", 2),
    "JAX": (["import jax\nimport optax", "g = jax.grad(f)"], "trains with JAX", 2),
    "Lightning": (
        ["import lightning as L\nimport torch", "t = L.Trainer()\nt.fit(m)"],
        'Trainer(devices=2, strategy="ddp_notebook")',
        2,
    ),
    "scikit-learn": (
        ["from sklearn.svm import SVC\nimport pandas", "SVC().fit(x, y)"],
        "trains with scikit-learn",
        2,
    ),
    "a Trainer that no cell imports": (
        ["from transformers import AutoModel", "trainer = Trainer(model)\ntrainer.train()"],
        "no cell imports Trainer, which makes its trainer",
        2,
    ),
    "labels that are encoded": (
        [
            "from sklearn.preprocessing import LabelEncoder",
            "e = LabelEncoder()\ne.fit(y)\nz = e.transform(y)",
        ],
        "no loop with backward(), and no fit() of a model",
        None,
    ),
    "a job of a cloud, whose labels are encoded here": (
        [
            "from azureml.core import Experiment\nfrom sklearn.preprocessing import LabelEncoder",
            "e = LabelEncoder()\ne.fit(y)\nz = e.transform(y)",
            "run = Experiment(w, 'x').submit(job)",
        ],
        "trains with a job of a cloud",
        3,
    ),
    "gradients of torch.func": (
        ["import torch", "opt = torch.optim.SGD(model.parameters(), 0.1)", "for x in data:\n    opt.step()"],
        "no backward() gives the gradients that it steps with",
        2,
    ),
    "a model of layers": (
        ["import torch", "net = torch.nn.Linear(8, 1)\nprint(net(x))"],
        "it makes a model here, and no cell has a Trainer",
        2,
    ),
    "inference": (
        ["from transformers import AutoModelForCausalLM", "m = AutoModelForCausalLM.from_pretrained('x')"],
        "it loads a model here, and no cell has a Trainer",
        2,
    ),
    "inference, with a function of scikit-learn": (
        [
            "from sklearn.metrics import f1_score\nfrom transformers import AutoModelForCausalLM",
            "m = AutoModelForCausalLM.from_pretrained('x')",
        ],
        "it loads a model here",
        2,
    ),
    "a pipeline": (
        ["from transformers import pipeline", "p = pipeline('text-generation')\np('x')"],
        "it loads a model here",
        2,
    ),
    "a Trainer that is not started": (
        ["from trl import SFTTrainer", "trainer = SFTTrainer(model=m)", "# trainer.train()"],
        "this SFTTrainer is made, but no cell that runs calls its train()",
        2,
    ),
    "a Trainer that a library starts": (
        [
            "from trl import SFTTrainer",
            "class C:\n    def fit(self):\n        t = SFTTrainer(m)\n        t.train()",
        ],
        "cannot follow the training of this SFTTrainer: its train() stands in a function that no cell calls",
        2,
    ),
    "a script in a text": (
        ["code = '''\nimport torch\nfor x in y:\n    f(x).backward()\n'''", "open('t.py', 'w').write(code)"],
        "cannot follow the training of the code in this text: put its code into a cell",
        1,
    ),
    "a module that trains with DDP": (
        ["%%writefile t.py\nimport torch.distributed as dist\nloss.backward()"],
        "start it with torchrun as it is where it divides its batches itself",
        1,
    ),
    "a Trainer that nothing makes": (
        ["import torch", "trainer.train()"],
        "train() is called on trainer here, but no cell makes trainer",
        2,
    ),
    "no loop": (
        ["import torch", "loss = f(x)\nloss.backward()"],
        "does not train, as far as nb2ddp can see: this backward() is in no loop over batches",
        2,
    ),
    "a loop in a class that nothing makes": (
        [
            "import torch",
            "class Loop:\n    def fit(self):\n        for b in self.data:\n            f(b).backward()",
        ],
        "no cell calls the function that this backward() stands in",
        2,
    ),
    "a function of a module that is called as models are fitted": (
        ["from PIL import Image, ImageOps", "x = ImageOps.fit(Image.open('a.png'), (3, 4))"],
        "no fit() of a model",
        None,
    ),
    "a Trainer of a library that is not known, by run()": (
        ["from mingpt.trainer import Trainer", "t = Trainer(model, data)\nt.run()"],
        "calls `t.run()` of mingpt, whose training nb2ddp does not convert",
        2,
    ),
    "a loop of one's own in a library's engine": (
        ["import torch\nfrom monai.engines import SupervisedTrainer", "t = SupervisedTrainer()", "t.run()"],
        "trains with MONAI's engines",
        3,
    ),
    "a cell magic of one's own beside a framework": (
        [
            "import keras\nm = keras.Sequential([])\nm.fit(x, y)",
            "%%other torch\nimport torch\nfor x in y:\n    f(x)\n    f(x).backward()",
        ],
        "trains with Keras",
        1,
    ),
    "a loop in a module that is written": (
        [
            "%%writefile 'engine.py'\nfor x in loader:\n    model(x).backward()",
            "import engine, timm\nmodel = timm.create_model('a')\nengine.train(model)",
        ],
        "nb2ddp cannot follow the training of engine.py, which %%writefile writes here: put its code into a cell",
        1,
    ),
    "a module without a loop": (
        ["%%writefile engine.py\nx = 1", "from transformers import pipeline", "p = pipeline('x')"],
        "it loads a model here",
        3,
    ),
    "fit() of sentence-transformers": (
        [
            "from sentence_transformers import SentenceTransformer",
            "model = SentenceTransformer('a')",
            "model.fit([(loader, loss)], epochs=2)",
        ],
        "trains with Sentence Transformers' old fit(), which nb2ddp does not convert: its loop over batches",
        3,
    ),
    "fit() of a model that a function makes": (
        [
            "import sentence_transformers as st",
            "def make():\n    return st.SentenceTransformer('a')",
            "model = make()",
            "model.fit(train_objectives=[(loader, loss)])",
        ],
        "trains with Sentence Transformers' old fit(), which nb2ddp does not convert: its loop over batches",
        4,
    ),
    "a dead loop": (
        ["import torch", "if False:\n    for b in loader:\n        f(b).backward()"],
        "code that never runs",
        2,
    ),
}


@pytest.mark.parametrize(("cells", "sentence", "cell"), KINDS.values(), ids=KINDS)
def test_what_is_missing_is_said_with_its_place(cells: list[str], sentence: str, cell: int | None) -> None:
    facts = facts_of(*cells)
    why, node = missing(facts)
    assert sentence in why
    assert (facts.place(node).cell if node is not None else None) == cell
    declined = converted(*cells).declined
    assert [change.why for change in declined if change.rule == "finish"] == [why]


def test_no_two_kinds_get_the_same_text() -> None:
    texts = [missing(facts_of(*cells))[0] for cells, _, _ in KINDS.values()]
    # two are empty, four do nothing, four load a model, four fit one
    assert len(texts) - len(set(texts)) == 9
