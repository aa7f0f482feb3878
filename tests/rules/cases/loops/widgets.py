# What trains when somebody uses a widget is declined: nobody does where a script runs.

# first cell
import ipywidgets as widgets
import torch
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train(rate=0.1):
    for batch in loader:
        loss = model(batch).mean()
        loss.backward()
        optimizer.step()

# case: a button
button = widgets.Button(description="Train")
button.on_click(lambda _: train())
# decline, line 2: `train` trains when somebody uses this widget, and nobody does under torchrun...

# case: a slider
widgets.interact_manual(train, rate=(0.1, 1.0))
# decline, line 1: `train` trains when somebody uses this widget...

# case: a page
import gradio as gr
with gr.Blocks() as page:
    start = gr.Button("Train")
    start.click(train)
# decline, line 4: `train` trains when somebody uses this widget...

# case: a Trainer
from trl import SFTTrainer
trainer = SFTTrainer(model)
def fit(_):
    trainer.train()
widgets.Button().on_click(fit)
# decline, line 5: `fit` trains when somebody uses this widget...
