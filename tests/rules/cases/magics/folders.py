# %cd changes the folder, where it is there.

# case: a folder
%cd /tmp
# output
ddp.cd("/tmp")

# case: quietly
%cd -q /tmp
# output
ddp.cd("/tmp")

# case: quoted
%cd "my folder"
# output
ddp.cd("my folder")

# case: quotes and backslashes as a shell reads them
base = {"a": "x"}
%cd drive/'My Drive'/project
%cd /content/My\ Drive/x
%cd {base["a"]}/"My Drive"
# output
base = {"a": "x"}
ddp.cd("drive/My Drive/project")
ddp.cd("/content/My Drive/x")
ddp.cd(f'{base["a"]}/My Drive')

# case: home
%cd
# output
ddp.cd("~")

# case: below home
%cd ~/x
# output
ddp.cd("~/x")

# case: the folder before
%cd a/
%cd -
# output
ddp.cd("a/")
ddp.cd("-")

# case: a variable
d = "x"
%cd {d}
# output
d = "x"
ddp.cd(f"{d}")

# case: where am I
here = %pwd
# output
here = os.getcwd()
