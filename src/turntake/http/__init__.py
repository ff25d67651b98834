"""The service as HTTP. `routes.py` is the table of all endpoints; `app.py` builds the app from it.

A request passes `problem.py` (errors become answers), `access.py` (who may call), `limits.py` (how much, how long), and
reaches its handler: `conversations`, `turns`, `letters`, `events`, `health`, `pages` here, or messages, activity and
webhooks in `accept/`. `views.py` says how values look from outside, `server.py` runs the app.
"""
