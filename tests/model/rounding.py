"""Runs requests with speculation and without in default settings, and looks at where they part.

A program, not a test: default settings include llama.cpp's default environment, and that is read
once in a process. Prints one JSON object: the number of runs, and for each difference its place and
the gap between the two tokens' logits after the common prefix, in the exact recipe.

    python tests/model/rounding.py MODEL.gguf
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.lossless import first_difference, run, score_gap

from ssr_local.decoding.schedule import GrowingSchedule
from ssr_local.engine import Engine
from ssr_local.request import Policy, Sampling
from ssr_local.settings import EngineSettings

PROMPTS = (
    "Write a Python class Stack with push, pop, peek and is_empty.",
    "Make a JSON array with three books: title, author, year.",
    "Write an HTML table of four planets with their radius.",
    "Write a YAML file for a web service with two containers and a volume.",
)
FIELDS = {
    "sampling": Sampling(temperature=0, repetition_penalty=1),
    "thinking": "prompted",
    "thinking_budget": 50,
    "max_tokens": 170,
}


@dataclass(frozen=True)
class Difference:
    prompt: str
    place: int
    """Tokens before it, those of the prompt included."""
    gap: float
    """Between the logits of the two tokens."""


def compare(path: Path) -> list[Difference]:
    pairs = []
    early = GrowingSchedule(first_checkpoint=16)
    with Engine.load(path, EngineSettings(n_ctx=2048), schedule=early) as engine:
        for prompt in PROMPTS:
            plain = run(engine, prompt, policy=Policy.PLAIN, **FIELDS).tokens
            pairs.append((prompt, plain, run(engine, prompt, policy=Policy.SSR, **FIELDS).tokens))
    return [
        Difference(prompt, place, score_gap(path, plain[:place], plain[place], other[place]))
        for prompt, plain, other in pairs
        if (place := first_difference(plain, other)) is not None
    ]


if __name__ == "__main__":
    differences = compare(Path(sys.argv[1]))
    print(json.dumps({"runs": len(PROMPTS), "differences": [asdict(d) for d in differences]}))
