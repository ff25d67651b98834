"""flask --app flask_agent run --port 9000"""

from flask import Flask, abort, request
from signature import is_from_turntake

app = Flask(__name__)


@app.post("/turn")
def answer():
    if not is_from_turntake(request.headers, request.get_data()):
        abort(401)
    turn = request.get_json()["data"]
    return {"reply": f"You sent {turn['messageCount']} messages: {turn['text']!r}"}
