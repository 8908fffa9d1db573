"""Says what the public library of Standard Webhooks makes of a request: ok, or the name of its error."""

import base64
import json
import sys

from standardwebhooks import Webhook

asked = json.load(sys.stdin)
try:
    Webhook(asked["secret"]).verify(base64.b64decode(asked["body"]), asked["headers"])
    print("ok")
except Exception as error:
    print(type(error).__name__)
