"""A model whose answers a test sets."""

import json

from llm import Answer, Call


def calls(*tools, tokens=10):
    """An answer that calls tools: (name, arguments), where arguments may be text that is no JSON."""
    return Answer("", tuple(
        Call(f"call-{n}", name, arguments if isinstance(arguments, str) else json.dumps(arguments))
        for n, (name, arguments) in enumerate(tools)), tokens)


def says(text, tokens=10):
    """An answer that calls no tool."""
    return Answer(text, (), tokens)


class Model:
    """Gives one answer after the other, the last one for ever, and keeps what it was asked."""

    def __init__(self, *answers):
        self.answers, self.asked, self.tools = list(answers), [], []

    def __call__(self, _, messages, tools, deadline):
        self.asked.append([dict(message) for message in messages])
        self.tools = [tool["function"]["name"] for tool in tools]
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return answer() if callable(answer) else answer

    def results(self):
        """What the tools have answered, as the model saw it last."""
        return [message["content"] for message in self.asked[-1] if message["role"] == "tool"]
