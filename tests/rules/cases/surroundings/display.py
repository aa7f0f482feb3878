# Plots are saved, and a page that serves does not hold up the script.

# first cell
import gradio as gr

# case: the progress that Transformers shows in a notebook
import transformers
trainer.remove_callback(transformers.utils.notebook.NotebookProgressCallback)
trainer.remove_callback(transformers.PrinterCallback)
# output
import transformers
trainer.remove_callback(transformers.PrinterCallback)

# case: formats of the figures that a notebook shows
from IPython.display import set_matplotlib_formats
from matplotlib_inline import backend_inline
set_matplotlib_formats("svg")
def use_svg_display():
    backend_inline.set_matplotlib_formats("svg")
# output
from IPython.display import set_matplotlib_formats
from matplotlib_inline import backend_inline
def use_svg_display():
    pass

# case: a plot
import matplotlib.pyplot as plt
plt.plot([1])
plt.show()
# output
import matplotlib.pyplot as plt
plt.plot([1])
ddp.save_plots()

# case: a figure of Plotly's
import plotly.graph_objects as go
fig = go.Figure(data=[go.Scatter(y=[1])])
fig.show("colab")
# output
import plotly.graph_objects as go
fig = go.Figure(data=[go.Scatter(y=[1])])
ddp.show(fig)

# case: a chat page
demo = gr.ChatInterface(chat)
demo.launch(share=True)
# output
demo = gr.ChatInterface(chat)
demo.launch(share=True, prevent_thread_lock=True)

# case: a page with a queue
demo = gr.Interface(chat, 'text', 'text').queue()
demo.launch(share=True)
# output
demo = gr.Interface(chat, 'text', 'text').queue()
demo.launch(share=True, prevent_thread_lock=True)

# case: a queue in the launching line
demo = gr.Blocks()
demo.queue().launch(share=True)
# output
demo = gr.Blocks()
demo.queue().launch(share=True, prevent_thread_lock=True)

# case: a page made in a with block
with gr.Blocks() as demo:
    gr.Textbox()
demo.launch(share=True)
# output
with gr.Blocks() as demo:
    gr.Textbox()
demo.launch(share=True, prevent_thread_lock=True)

# case: a page without a name
import gradio
gradio.Interface(chat, 'text', 'text').launch(share=True)
# output
import gradio
gradio.Interface(chat, 'text', 'text').launch(share=True, prevent_thread_lock=True)

# case: a launch() of something else
demo = gr.Blocks()
rocket = Rocket()
rocket.launch()

# case: prevent_thread_lock is given
demo = gr.Blocks()
rocket = Rocket()
demo.launch(prevent_thread_lock=False)
