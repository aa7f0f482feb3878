# What a library looks for beside the file of its caller lies in the notebook's folder.

# first cell
from hydra import compose, initialize

# case: Hydra's configuration
initialize(config_path="conf", version_base=None)
# output
initialize(config_path=os.path.relpath(start=os.path.dirname(os.path.abspath(__file__)), path="conf"), version_base=None)

# case: none
initialize(version_base=None)
initialize(None)
