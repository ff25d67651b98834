"""Side by side with the peers that do the same job, in one run on one machine: `python -m bench`."""
