"""The page of `nb2ddp web` as a Hugging Face Space."""

import os
import time

from nb2ddp.web.app import served

port = int(os.environ.get("GRADIO_SERVER_PORT", "7860"))
with served("0.0.0.0", port, browser=False) as address:
    print(address, flush=True)
    while True:
        time.sleep(3600)
