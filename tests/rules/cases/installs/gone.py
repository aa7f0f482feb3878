# An install leaves the script.

# case: pip
!pip install unsloth
# output

# case: pip, options first
!pip -q install unsloth
# output

# case: pip by magic
%pip install -q unsloth
# output

# case: conda by magic
%conda install cudatoolkit
# output

# case: uv
!uv pip install unsloth
# output

# case: python -m pip
!python -m pip install unsloth
# output

# case: apt
!apt-get -qq install ffmpeg
# output

# case: sudo
!sudo apt install ffmpeg
# output

# case: a variable in front
!FORCE_CUDA=1 pip install flash-attn
# output

# case: an installer from the web
!curl -fsSL https://ollama.com/install.sh | sh
# output

# case: uninstall
!pip uninstall -y transformers
# output

# case: continued lines
!pip install \
    unsloth \
    trl
# output

# case: a bash cell
%%bash
pip install unsloth
pip install trl
# output

# case: under capture
%%capture
!pip install unsloth
# output

# case: os.system
import os
os.system("pip install unsloth")
# output

# case: a process
import subprocess
subprocess.run("pip install unsloth", shell=True, check=True)
# output

# case: a process with a list
import subprocess, sys
subprocess.check_call([sys.executable, "-m", "pip", "install", "trl>=0.2"])
# output

# case: one branch of two
import os
if "COLAB_" not in "".join(os.environ.keys()):
    !pip install unsloth
else:
    # Colab
    !pip install --no-deps xformers trl
# output

# case: a version worked out
import re, torch
v = re.match(r"[\d]+", torch.__version__)
x = "x==1" if v else "x"
!pip install {x}
# output

# case: only where it is missing
try:
    import unsloth
except ImportError:
    !pip install unsloth
# output
