# MLflow: rank 0 logs to the notebook's store, the others to an empty one.

# first cell
import os
import mlflow
from trl import SFTTrainer

# case: an address in a call
mlflow.set_tracking_uri("sqlite:///runs.db")
mlflow.set_registry_uri(uri=f"http://{host}:5000")
# output
mlflow.set_tracking_uri(ddp.tracking_uri("sqlite:///runs.db"))
mlflow.set_registry_uri(uri=ddp.tracking_uri(f"http://{host}:5000"))

# case: in a function, and in the environment
def begin(address):
    mlflow.set_tracking_uri(address)
    return mlflow.start_run()
begin("http://localhost:5000")
os.environ["MLFLOW_TRACKING_URI"] = "http://localhost:5000"
# output
def begin(address):
    mlflow.set_tracking_uri(ddp.tracking_uri(address))
    return mlflow.start_run()
begin("http://localhost:5000")
os.environ["MLFLOW_TRACKING_URI"] = ddp.tracking_uri("http://localhost:5000")

# case: another module of this name, and other variables
import mine as mlflow
mlflow.set_tracking_uri("a")
os.environ["MLFLOW_EXPERIMENT_NAME"] = "a"
print(os.environ["MLFLOW_TRACKING_URI"])

# case: what reads the store
with mlflow.start_run():
    mlflow.log_param("a", 1)
start = mlflow.pytorch.load_model("models:/start/1")
# note, line 3: ranks other than 0 have an empty MLflow store, and read nothing that is saved

# last cell
t = SFTTrainer(llm)
t.train()
