# whole: a module in a folder beside the script has a hook on a layer, which must see whole batches
import importlib, os, sys
os.makedirs(f"nets{rank}")
with open(f"nets{rank}/watch.py", "w") as file:
    file.write("means = []\ndef watch(layer): layer.register_forward_hook(lambda l, given, out: means.append(out.mean().item()))\n")
sys.path.append(os.getcwd())
watch = importlib.import_module(f"nets{rank}.watch")
model = ddp.parallelize(mlp())
watch.watch(model[0])
train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
figures.append([len(watch.means), *watch.means])
end(model)
