"""What the environment gives an agent (variables, skills, limits), what must not be shown, and the agent's memory."""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

# How many characters of its memory an agent sees (the latest), and how many notes are kept.
MEMORY_SHOWN = 8_000
NOTES_KEPT = 200
# Variables with these names hold secrets. A shorter value is a placeholder, such as the key "sandbox" of an LLM route.
SECRET_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD)$")
SECRET_LENGTH = 8
# What the gateway accepts as the session of a call.
TURN = re.compile(r"[A-Za-z0-9._:-]{1,64}:[A-Za-z0-9._-]{1,63}")


class SettingsError(Exception):
    """A setting is missing or wrong. The message says which, and where to give it."""


@dataclass(frozen=True)
class Limits:
    """What one turn may use: answers of the model, tokens of all its calls, and seconds."""

    steps: int
    tokens: int
    seconds: float


@dataclass(frozen=True)
class Settings:
    """The environment of an agent. Only tests change the directories."""

    environment: dict = field(default_factory=lambda: dict(os.environ))
    secrets: Path = Path("/run/secrets")
    data: Path = Path("/data")
    workspace: Path = Path("/workspace")

    @property
    def agent(self) -> str:
        """The agent's DID. The reconciler sets it."""
        return self.variable("AGENT_DID")

    @property
    def environment_id(self) -> str:
        return self.variable("ENVIRONMENT_ID")

    @property
    def environment_type(self) -> str:
        """rpg, catan or coding. It decides what a turn is."""
        return self.variable("ENVIRONMENT_TYPE")

    @property
    def turn(self) -> str:
        """The game and the turn, such as catan-7:12, for the records of the model's calls; "" if the turn has no number."""
        text = f"{self.environment.get('GAME_ID') or self.environment_id}:{self.environment.get('TURN_NUMBER') or ''}"
        return text if TURN.fullmatch(text) else ""

    @property
    def limits(self) -> Limits:
        return Limits(int(self.number("TURN_MAX_STEPS", 20, 1_000)), int(self.number("TURN_MAX_TOKENS", 100_000, 10**8)),
                      self.number("TURN_MAX_SECONDS", 50, 86_400))

    @property
    def key_file(self) -> Path:
        """The key of the agent's DID. The files API writes it for one agent; secrets are the same for all."""
        return self.workspace / ".agent" / "did-key.pem"

    def variable(self, name: str, default: str | None = None) -> str:
        value = self.environment.get(name) or default
        if value is None:
            raise SettingsError(f"the variable {name} is not set: give it in the env of the environment")
        return value

    def number(self, name: str, default: float, most: float) -> float:
        text = self.variable(name, str(default))
        try:
            value = float(text)
        except ValueError:
            value = 0
        if not 1 <= value <= most:
            raise SettingsError(f"the variable {name} must be a number from 1 to {most}, not {text!r}")
        return value

    def prompt(self) -> str:
        """The skill that is named after the environment's type, or else all skills; then character and memory."""
        skills = sorted((self.data / "skills").glob("*/prompt.md"))
        if not skills:
            raise SettingsError(f"there is no skill in {self.data / 'skills'}: give one in the skills of the environment")
        shown = [path for path in skills if path.parent.name == self.environment_type] or skills
        parts = [path.read_text().strip() for path in shown]
        if others := [str(path) for path in skills if path not in shown]:
            parts.append("# Further skills\nRead them when you need them:\n" + "\n".join(others))
        for title, path in (("# Who you are", self.data / "character.json"), ("# What you remember", self._notes)):
            if path.is_file():
                parts.append(f"{title}\n{path.read_text().strip()[-MEMORY_SHOWN:]}")
        return "\n\n".join(parts)

    def remember(self, note: str) -> None:
        """Adds a line to the agent's memory. /data keeps it for later turns."""
        lines = self._notes.read_text().splitlines() if self._notes.is_file() else []
        lines.append("- " + " ".join(note.split()))
        self._notes.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._notes.with_suffix(".new")
        fresh.write_text("\n".join(lines[-NOTES_KEPT:]) + "\n")
        fresh.replace(self._notes)

    def public_environment(self) -> dict:
        """The variables without secrets, for the agent's commands."""
        return {name: value for name, value in self.environment.items() if not _is_secret(name, value)}

    def hidden(self) -> list[str]:
        """The texts that no model and no log may see: secrets, the agent's key, and secret variables, line by line."""
        texts = [value for name, value in self.environment.items() if _is_secret(name, value)]
        files = [*self.secrets.iterdir()] if self.secrets.is_dir() else []
        texts += [path.read_text(errors="replace") for path in (*files, self.key_file) if path.is_file()]
        lines = {line.strip() for text in texts for line in text.splitlines()}
        return sorted((line for line in lines if len(line) >= SECRET_LENGTH), key=len, reverse=True)

    @property
    def _notes(self) -> Path:
        return self.data / "memory" / "notes.md"


def _is_secret(name: str, value: str) -> bool:
    return bool(SECRET_NAME.search(name)) and len(value) >= SECRET_LENGTH
