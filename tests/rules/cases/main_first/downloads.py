# Rank 0 downloads into a folder first; the other ranks find what is there.

# first cell
import kagglehub
from huggingface_hub import Repository
from torchvision import datasets
from trl import SFTTrainer

# case: a clone of a repository
repo = Repository("folder", clone_from="me/model")
# output
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    repo = Repository("folder", clone_from="me/model")

# case: a data set of Kaggle
path = kagglehub.dataset_download("me/data")
# output
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    path = kagglehub.dataset_download("me/data")

# case: a data set that a tracker keeps
from clearml import Dataset
path = Dataset.get(dataset_name="rows").get_local_copy()
# output
from clearml import Dataset
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    path = Dataset.get(dataset_name="rows").get_local_copy()

# case: a data set of torchvision
rows = datasets.MNIST("data", train=True, download=True)
# output
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    rows = datasets.MNIST("data", train=True, download=True)

# case: a data set of another library, by its argument
from monai.apps import MedNISTDataset
rows = MedNISTDataset("data", section="training", download=True)
# output
from monai.apps import MedNISTDataset
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    rows = MedNISTDataset("data", section="training", download=True)

# case: a function that says so by its name
from monai.apps import download_and_extract
download_and_extract("https://host/a.tar", "a.tar", "data")
# output
from monai.apps import download_and_extract
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    download_and_extract("https://host/a.tar", "a.tar", "data")

# case: a data set that is fetched where it is not there
from torch_geometric.datasets import Planetoid
rows = Planetoid("data", "Cora")
# output
from torch_geometric.datasets import Planetoid
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    rows = Planetoid("data", "Cora")

# case: a table of a class whose constructor fetches
from torch_geometric.datasets import ShapeNet
from torchtext.datasets import IMDB
parts = list(ShapeNet.seg_classes.keys())
name = IMDB.dirname.upper()

# case: an object of a library, through methods
from roboflow import Roboflow
rows = Roboflow("key").workspace().project("p").version(1).download("coco")
# output
from roboflow import Roboflow
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    rows = Roboflow("key").workspace().project("p").version(1).download("coco")

# case: data of a module out of sight, which is given settings alone
from helpers import Corpus, check_mnist_dataset_exists
from torchvision import transforms
size = 16
train_loader, test_loader = Corpus.loaders_from_mini("clean", size)
folder = check_mnist_dataset_exists()
rows = Corpus.WordsDataset("words", transform=transforms.Compose([]))
city = Corpus.CityDatasetLoader()
# output
from helpers import Corpus, check_mnist_dataset_exists
from torchvision import transforms
size = 16
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    train_loader, test_loader = Corpus.loaders_from_mini("clean", size)
    folder = check_mnist_dataset_exists()
    rows = Corpus.WordsDataset("words", transform=transforms.Compose([]))
    city = Corpus.CityDatasetLoader()

# case: data of a class that is not known, beside a model and a tensor of such classes
from pharmacy import ADME, Net, Tensor
data = ADME(name="absorption")
net = Net("small")
data_on_gpu = Tensor(data)
# output
from pharmacy import ADME, Net, Tensor
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    data = ADME(name="absorption")
net = Net("small")
data_on_gpu = Tensor(data)

# case: an object that is filled by its method
from helpers import PertData
data = PertData("data")
data.load(name="small")
data.plot()
# output
from helpers import PertData
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    data = PertData("data")
    data.load(name="small")
data.plot()

# case: a data module whose class does not say so, by the methods of Lightning's
from schnetpack.datasets import QM9
molecules = QM9("qm9.db", num_train=32)
molecules.prepare_data()
molecules.setup("fit")
molecules.plot()
# output
from schnetpack.datasets import QM9
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    molecules = QM9("qm9.db", num_train=32)
    molecules.prepare_data()
    molecules.setup("fit")
molecules.plot()

# case: an object that is set up with what it is to hold
from lab import Fabric
model = torch.nn.Linear(2, 2)
fabric = Fabric()
model = fabric.setup(model)

# case: vectors of words that a field of a library fetches
from torchtext.data import Field
words = Field()
words.build_vocab(rows, vectors="glove.6B.100d")
words.build_vocab(rows)
# output
from torchtext.data import Field
words = Field()
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    words.build_vocab(rows, vectors="glove.6B.100d")
words.build_vocab(rows)

# case: a class that is looked up, and is told to download
import helpers
kind = getattr(helpers, "Rows")
rows = kind("train", download=True)
# output
import helpers
kind = getattr(helpers, "Rows")
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    rows = kind("train", download=True)

# case: functions and classes whose names tell nothing but that something is loaded, unpacked or in a module of data
import os
from pathlib import Path
from press import Texts, digits, load_split
from press.datasets import Birds
class Settings:
    root = "data"
(x, y), (more_x, more_y) = digits(root=Settings.root)
texts = Texts.load("news")
splits = {name: load_split(name, size=2) for name in ("train", "test")}
rows = torch.utils.data.TensorDataset(load_split("held out"), load_split("other"))
birds = Birds(Path("data") / "birds", parts=[0.9, 0.1])
if not rows:
    rows = load_split(os.path.join(Settings.root, "rows"))
# output
import os
from pathlib import Path
from press import Texts, digits, load_split
from press.datasets import Birds
class Settings:
    root = "data"
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    (x, y), (more_x, more_y) = digits(root=Settings.root)
    texts = Texts.load("news")
    splits = {name: load_split(name, size=2) for name in ("train", "test")}
    rows = torch.utils.data.TensorDataset(load_split("held out"), load_split("other"))
    birds = Birds(Path("data") / "birds", parts=[0.9, 0.1])
    if not rows:
        rows = load_split(os.path.join(Settings.root, "rows"))

# case: settings of an object, which has usual ones
from press import load_net
class Writer:
    def __init__(self, name, device=None):
        self.device = device if device else ("cuda" if torch.cuda.is_available() else "cpu")
        self.net = load_net(name, device=self.device)
writer = Writer("small")
# output
from press import load_net
class Writer:
    def __init__(self, name, device=None):
        self.device = device if device else ("cuda" if torch.cuda.is_available() else "cpu")
        self.net = load_net(name, device=self.device)
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    writer = Writer("small")

# case: what is given a file, data or what a loop goes through, an object that is called, and what is not kept
import pandas as pd
from press import Net, digits, load_split, settings
table = pd.read_csv("rows.csv")
a, b = digits(table)
picture = load_split("picture.png")
rows = load_split(table["a"], 4)
for row in open("rows.txt"):
    part = load_split(row)
net = Net(3)
mean, spread = net(3)
load_split("mini")
width = settings("small")

# case: a batch of each step, for which the ranks need not wait
import torch
from press import digits, load_split
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for seed in (1, 2):
    x = load_split("mini")
    for step in range(9):
        more, y = digits("batch")
        net(x + more).sum().backward()
        optimizer.step()
# output
import torch
from press import digits, load_split
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for seed in (1, 2):
    with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
        x = load_split("mini")
    for step in range(9):
        more, y = digits("batch")
        net(x + more).sum().backward()
        optimizer.step()

# case: data that is made of other data
from helpers import Rows, RowsDataset, make_loaders
table = Rows(3)
train_loader, test_loader = make_loaders(table, 16)
rows = RowsDataset(table[:10], 16)
more = RowsDataset(size=16, rows=table.first())

# case: a function of the notebook that has the argument
def rows_of(folder, download):
    return [folder, download]
rows = rows_of("data", download=True)

# case: a data set of torchvision that is there
rows = datasets.MNIST("data", download=False)

# case: a model of a repository, whose code is unpacked
import torch
net = torch.hub.load("me/code", "net")
names = torch.hub.list("me/code", force_reload=True)
# output
import torch
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    net = torch.hub.load("me/code", "net")
    names = torch.hub.list("me/code", force_reload=True)

# case: a file of Keras
import tensorflow as tf
path = tf.keras.utils.get_file("a", origin="https://host/a.tar", untar=True)
# output
import tensorflow as tf
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    path = tf.keras.utils.get_file("a", origin="https://host/a.tar", untar=True)

# case: data whose module has a name of the notebook's
import tensorflow as tf
mnist = tf.keras.datasets.mnist
train, held_out = mnist.load_data()
# output
import tensorflow as tf
mnist = tf.keras.datasets.mnist
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    train, held_out = mnist.load_data()

# case: an object of the notebook's own, which may load anything
class Rows:
    def load_data(self):
        return [1]
rows = Rows()
train = rows.load_data()

# case: what a library calls its data
from d2l import torch as d2l
batches, vocab = d2l.load_data_wiki(512, 64)
# output
from d2l import torch as d2l
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    batches, vocab = d2l.load_data_wiki(512, 64)

# case: a function that a library calls its own
from openimages.download import _download_images_by_id
_download_images_by_id(ids, "train", "./images")
# output
from openimages.download import _download_images_by_id
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    _download_images_by_id(ids, "train", "./images")

# case: a study that is kept in a store
import optuna
study = optuna.create_study(storage="sqlite:///a.db", load_if_exists=True)
# output
import optuna
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    study = optuna.create_study(storage="sqlite:///a.db", load_if_exists=True)

# last cell
t = SFTTrainer(llm)
t.train()
