"""Published for users and plug-in authors: a virtual clock, and what every store and every channel must pass."""
