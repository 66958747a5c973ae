"""Says what Home Assistant makes of selectors and values: the oracle of TestHomeSelectors."""

import json
import sys

from homeassistant.helpers import llm, selector

cases = json.load(sys.stdin)
answers = []
for case in cases:
    (kind, config), = case["selector"].items()
    one = selector.selector({kind: config or {}})
    accepted = []
    for value in case.get("values") or []:
        try:
            one(value)
            accepted.append(True)
        except Exception:
            accepted.append(False)
    answers.append({"schema": llm._selector_serializer(one), "accepted": accepted})
json.dump({"types": sorted(selector.SELECTORS), "answers": answers}, sys.stdout)
