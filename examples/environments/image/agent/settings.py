"""What the environment gives an agent (variables, secrets, skills), and the agent's memory."""

import os
from dataclasses import dataclass, field
from pathlib import Path

# How many characters of its memory an agent sees (the latest), and how many notes are kept.
MEMORY_SHOWN = 8_000
NOTES_KEPT = 200


class SettingsError(Exception):
    """A setting is missing or wrong. The message says which, and where to give it."""


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

    def variable(self, name: str, default: str | None = None) -> str:
        value = self.environment.get(name) or default
        if value is None:
            raise SettingsError(f"the variable {name} is not set: give it in the env of the environment")
        return value

    def seconds(self, name: str, default: float) -> float:
        text = self.variable(name, str(default))
        try:
            value = float(text)
        except ValueError:
            value = 0
        if not 0 < value <= 86_400:
            raise SettingsError(f"the variable {name} must be seconds, more than 0 and at most 86400, not {text!r}")
        return value

    def secret(self, name: str) -> str:
        try:
            return (self.secrets / name).read_text().strip()
        except OSError as err:
            raise SettingsError(f"the secret {name} cannot be read ({err}): give it in the secrets of the environment") from err

    def prompt(self) -> str:
        """All skills of the environment, one after the other, then the agent's character and memory."""
        skills = sorted((self.data / "skills").glob("*/prompt.md"))
        if not skills:
            raise SettingsError(f"there is no skill in {self.data / 'skills'}: give one in the skills of the environment")
        parts = [path.read_text().strip() for path in skills]
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

    @property
    def _notes(self) -> Path:
        return self.data / "memory" / "notes.md"
