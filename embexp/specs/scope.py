"""The config path of a part of a run, and the tables to which it applies."""

from __future__ import annotations

from dataclasses import dataclass

from embexp.specs.partial import UnknownPartError


@dataclass(frozen=True)
class Scope:
    """The config path of a part of a run, and its tables.

    Attributes:
        path: config path, such as `train` or `tables.item.init`; empty for the run itself.
        tables: tables that are known to use this choice: the table of its own choice, or those that inherit a top-level
            choice. Empty for parts that are not choices of tables.
        open: whether more tables may inherit it, as faults hide whether they have their own choice.
    """

    path: str
    tables: tuple[str, ...] = ()
    open: bool = False

    @property
    def own(self) -> bool:
        """Whether it is a table's own choice."""
        return self.path.startswith("tables.")

    def all_tables(self) -> tuple[str, ...]:
        """The tables that use this choice, for rules about all of them.

        Raises:
            UnknownPartError: more tables may use it.
        """
        if self.open:
            raise UnknownPartError(self.path)
        return self.tables

    def beside(self, choice: str) -> str:
        """Config path of another choice of the same table, or of the top level."""
        return ".".join([*self.path.split(".")[:-1], choice])

    def choosing(self, choice: str, option: str) -> str:
        """The override that makes another choice here: `init=assign`, or `init@tables.item.init=assign`."""
        path = self.beside(choice)
        return f"{choice}={option}" if path == choice else f"{choice}@{path}={option}"
