"""The actions that a game server accepts, as tools of the model. The sandbox sends nothing else."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tools import Tool, ToolError

# The maximum length of a text, in characters, and the maximum number of entries of an object or list.
MAX_TEXT = 500
MAX_ENTRIES = 32


@dataclass(frozen=True)
class Action:
    """The types of an action's fields, by name. A dict is an object of counts by resource, a list has names."""

    required: dict = field(default_factory=dict)
    optional: dict = field(default_factory=dict)


ACTIONS = {
    "rpg": {
        "attack": Action({"target": str}, {"weapon": str}),
        "cast": Action({"spell": str}, {"target": str}),
        "use_item": Action({"item": str}, {"target": str}),
        "move": Action({"to": str}),
        "talk": Action({"to": str, "say": str}),
        "search": Action({"where": str}),
        "rest": Action(),
        "flee": Action(),
    },
    "catan": {
        "roll_dice": Action(),
        "build_road": Action({"edge": str}),
        "build_settlement": Action({"vertex": str}),
        "build_city": Action({"vertex": str}),
        "buy_card": Action(),
        "play_card": Action({"card": str}, {"resources": dict, "edges": list}),
        "trade_bank": Action({"give": dict, "receive": dict}),
        "offer_trade": Action({"give": dict, "receive": dict}, {"to": str}),
        "answer_trade": Action({"offer": str, "accept": bool}),
        "move_robber": Action({"hex": str}, {"steal_from": str}),
        "discard": Action({"cards": dict}),
        "end_turn": Action(),
    },
}


# The types of fields in the schema of a tool.
SCHEMAS = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    dict: {"type": "object", "additionalProperties": {"type": "integer"}, "description": "counts by resource"},
    list: {"type": "array", "items": {"type": "string"}},
}


class BadAction(ToolError):
    """The answer is not a valid action. The message tells the model what is wrong."""


def skip_turn(reason: str) -> dict:
    """The action of an agent that cannot act. The reason has at most 500 characters."""
    return {"action": "skip_turn", "reason": reason[:MAX_TEXT]}


def tools(kind: str, state: dict, remember: Callable[[str], None]) -> list[Tool]:
    """A tool for each action that the state allows, and skip_turn. remember gets what later turns should know."""
    also = {"reason": {"type": "string", "description": "why, in one sentence"},
            "remember": {"type": "string", "description": "what you want to know in later turns, in one sentence"}}

    def tool(name: str, action: Action) -> Tool:
        def run(arguments: dict) -> dict:
            taken = check(kind, state, {**arguments, "action": name})
            if note := arguments.get("remember", "").strip():
                remember(note[:MAX_TEXT])
            return taken

        fields = {**action.required, **action.optional}
        return Tool(name, f"Ends the turn with the action {name}.", {n: SCHEMAS[t] for n, t in fields.items()} | also,
                    tuple(action.required), run)

    known = ACTIONS[kind]
    return [*(tool(name, known[name]) for name in _legal(state, known)), skip_tool()]


def skip_tool() -> Tool:
    """The tool of an agent that passes."""
    return Tool("skip_turn", "Ends the turn without an action.", {"reason": {"type": "string"}}, (),
                lambda arguments: skip_turn(arguments.get("reason", "the agent passes")))


def check(kind: str, state: dict, answer: dict) -> dict:
    """Returns the action of an answer, with only the fields that the game knows. Errors: BadAction."""
    name = answer.get("action")
    known = ACTIONS[kind]
    legal = _legal(state, known)
    if not isinstance(name, str) or name not in known or name not in legal:
        raise BadAction(f"action must be one of {', '.join(sorted(legal))} or skip_turn, not {str(name)[:60]!r}")
    action, fields = {"action": name}, known[name]
    for required, wanted in ((True, fields.required), (False, fields.optional)):
        for field_name, type_ in wanted.items():
            if field_name in answer:
                action[field_name] = _value(f"{name}.{field_name}", type_, answer[field_name])
            elif required:
                raise BadAction(f"{name} needs the field {field_name}")
    if isinstance(answer.get("reason"), str):
        action["reason"] = answer["reason"][:MAX_TEXT]
    return action


def _legal(state: dict, known: dict) -> list[str]:
    """The actions that the game server allows in this turn; all actions if it does not say."""
    listed = state.get("legal_actions")
    if not isinstance(listed, list):
        return list(known)
    return [name for name in listed if isinstance(name, str) and name in known]


def _value(name: str, type_: type, value: object) -> object:
    if not isinstance(value, type_):
        raise BadAction(f"{name} must be a {type_.__name__}, not {str(value)[:60]!r}")
    if type_ is str and not 0 < len(value) <= MAX_TEXT:
        raise BadAction(f"{name} must have 1 to {MAX_TEXT} characters")
    if type_ is dict and not all(isinstance(n, int) and not isinstance(n, bool) and 0 < n < 100 for n in value.values()):
        raise BadAction(f"{name} must give each resource a count, such as {{\"wool\": 1}}")
    if type_ is list and not all(isinstance(entry, str) and len(entry) <= MAX_TEXT for entry in value):
        raise BadAction(f"{name} must be a list of names")
    if type_ in (dict, list) and len(value) > MAX_ENTRIES:
        raise BadAction(f"{name} must have at most {MAX_ENTRIES} entries")
    return value
