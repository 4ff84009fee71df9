"""Where a part of a run stands in its config, and the tables that it holds for."""

from __future__ import annotations

from dataclasses import dataclass

from embexp.specs.partial import UnknownPartError


@dataclass(frozen=True)
class Scope:
    """Where a part of a run stands.

    Attributes:
        path: config path, such as `train` or `tables.item.init`; empty for the run itself.
        tables: names of the tables that are known to take this choice: one for a table's own, those without one of
            their own for a top-level choice. Empty for parts that are no choice of tables.
        open: whether more tables may take it: faults hide whether they have a choice of their own.
    """

    path: str
    tables: tuple[str, ...] = ()
    open: bool = False

    @property
    def own(self) -> bool:
        """Whether it is a table's own."""
        return self.path.startswith("tables.")

    def all_tables(self) -> tuple[str, ...]:
        """The tables that take this choice, for rules about all of them.

        Raises:
            UnknownPartError: there may be more.
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
