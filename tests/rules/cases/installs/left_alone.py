# What installs nothing is left alone.

# case: a shell line
!nvidia-smi

# case: a list of packages
!pip list

# case: a download
!wget -q https://example.com/audio.mp3

# case: a text
print("pip install unsloth")

# case: an install into another folder
import subprocess
subprocess.run(["pip", "install", "-e", "."], cwd="repo")
