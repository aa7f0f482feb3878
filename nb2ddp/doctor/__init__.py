"""Is this machine fit to train on several GPUs? What the guides ask people to check by hand, checked.

How it is put together::

    machine.look()      asks the Python that trains (programs/probe.py) and nvidia-smi, once
    a check             Machine -> Outcome: a status, what was seen, what to do
    examination.CHECKS  all of them, in the order in which they are shown
"""
