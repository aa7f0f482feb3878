# A shell line runs on rank 0; its output is there on every rank.

# case: its output is used
files = !ls data
for file in files:
    print(file)
# output
files = ddp.shell_output("ls data")
for file in files:
    print(file)

# case: a bash cell, which IPython does not expand
i = "1"
# %%
%%bash
echo $i {i}
# output
i = "1"
# %%
ddp.shell("echo $i {i}")

# case: a bash cell with options
%%bash --out listing
ls
# decline, line 1: a script has no options of %%bash: write arguments into its text, or `lines = !command` for --out
