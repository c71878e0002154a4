"""A tool of an agent: what the model gets to know of it, and what a call of it does."""

from collections.abc import Callable
from dataclasses import dataclass

# The types of arguments, as the schema of a tool names them.
TYPES = {"string": str, "integer": int, "boolean": bool, "object": dict, "array": list}


class ToolError(Exception):
    """A call failed. The message goes to the model, which may try again."""


@dataclass(frozen=True)
class Tool:
    """A function that the model may call.

    run gets the arguments. It returns the text that the model sees, or the action that ends the turn. Errors: ToolError.
    """

    name: str
    description: str
    properties: dict
    required: tuple[str, ...]
    run: Callable[[dict], str | dict]

    def schema(self) -> dict:
        """The tool as the model's API takes it."""
        parameters = {"type": "object", "properties": self.properties, "required": list(self.required)}
        return {"type": "function", "function": {"name": self.name, "description": self.description, "parameters": parameters}}

    def call(self, arguments: object) -> str | dict:
        """Runs the tool, if the arguments have the types of its schema. Errors: ToolError."""
        if not isinstance(arguments, dict):
            raise ToolError(f"the arguments of {self.name} must be a JSON object, not {str(arguments)[:60]!r}")
        for name in self.required:
            if name not in arguments:
                raise ToolError(f"{self.name} needs the argument {name}")
        for name, value in arguments.items():
            if name not in self.properties:
                raise ToolError(f"{self.name} has no argument {name[:60]!r}, only {', '.join(self.properties) or 'none'}")
            wanted = self.properties[name]["type"]
            if not isinstance(value, TYPES[wanted]) or (wanted == "integer" and isinstance(value, bool)):
                raise ToolError(f"{self.name}.{name} must be of type {wanted}, not {str(value)[:60]!r}")
        return self.run(arguments)


def bounded(text: str, most: int) -> str:
    """The text, or its beginning and its end with a mark between them, at most as many characters and the mark."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters are left out …\n{text[-half:]}"
