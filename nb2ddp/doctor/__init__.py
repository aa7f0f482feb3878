"""Check whether this machine can train on several GPUs, as guides tell people to do by hand.

How it is put together::

    machine.look()      asks the Python that trains (programs/probe.py) and nvidia-smi, once
    a check             Machine -> Outcome: a status, what was seen, what to do
    examination.CHECKS  all of them, in the order in which they are shown
"""
