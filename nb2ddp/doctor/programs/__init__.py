"""Programs for the Python that trains: any from 3.9 on, without nb2ddp."""
